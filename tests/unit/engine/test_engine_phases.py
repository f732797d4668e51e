"""A phase ends at its bound, by the user, by a full disk, by the drain time-out, and when workers die."""

from types import SimpleNamespace

import numpy as np
import pytest
from refusals import raises_code

from fastllmload._ext.record import counters as k
from fastllmload.engine import phases
from fastllmload.engine.interrupts import DRAIN, STOP
from fastllmload.engine.recording.live import Live
from fastllmload.engine.workers import fleet as fleets
from fastllmload.errors import HostLimitError
from fastllmload.host.cpu import ProcessFigures
from fastllmload.records.samples import SampleLog

pytestmark = pytest.mark.slow


NO_CLASSES = {"closed_classes": {}, "closed_cycles": False}


def test_two_phases_run_one_after_the_other_and_workers_end_by_themselves(fleet, phase):
    workers = fleet(workers=2, numbers=(0, 1))
    first, second = phase(workers, 0).run(), phase(workers, 1).run()
    workers.join(10)
    assert (first.released, first.ok, second.released, second.ok) == (20, 20, 20, 20)
    assert second.start_ns > first.start_ns
    assert not workers.watch() and all(member.process.returncode == 0 for member in workers.members)


def test_time_zero_is_reported_before_the_workers_get_it(fleet, phase):
    workers = fleet()
    seen = []
    run = phase(workers, started=lambda start: seen.append((start, int(workers.members[0].words[k.W_START_NS]))))
    outcome = run.run()
    assert seen == [(outcome.start_ns, 0)]


def test_a_duration_bounds_the_phase_even_when_its_end_is_detected_later(fleet, phase):
    plan = SimpleNamespace(requests=10, cycles=True, duration_s=0.25, t_sched=None, concurrency=4, **NO_CLASSES)
    outcome = phase(fleet(), plan=plan).run()
    assert outcome.end_ns - outcome.start_ns == 250_000_000
    assert not outcome.cut


@pytest.mark.parametrize(("level", "word"), [(DRAIN, k.DRAIN), (STOP, k.ABORT)])
def test_an_interrupt_is_sent_to_the_workers_and_cuts_the_phase(fleet, phase, ui, signals, level, word):
    workers = fleet("waits" if level == STOP else "disk full")
    ui.hook = lambda snapshot: setattr(signals, "level", level)
    plan = SimpleNamespace(requests=10, cycles=False, duration_s=3600.0, t_sched=None, concurrency=None, **NO_CLASSES)
    outcome = phase(workers, plan=plan).run()
    assert outcome.cut and workers.members[0].words[k.W_COMMAND] == word
    assert outcome.end_ns < outcome.start_ns + 3_600_000_000_000
    assert any("no more requests" in line for line in ui.lines)


def test_an_interrupt_before_the_clock_starts_nothing(fleet, phase, signals):
    workers = fleet()
    signals.level = DRAIN
    assert phase(workers).run() is None
    assert workers.members[0].words[k.W_START_NS] == 0


def test_a_full_disk_stops_sending(fleet, phase, ui):
    outcome = phase(fleet("disk full")).run()
    assert outcome.cut and outcome.ok == 10
    assert [line for line in ui.lines if "disk is full" in line]


def test_the_supervisors_drain_time_out_cancels_what_hangs(fleet, phase, ui, monkeypatch):
    monkeypatch.setattr(phases, "LEAST_GRACE_S", 0.02)
    outcome = phase(fleet("drains for ever"), own_grace=True).run()
    assert outcome.timed_out and not outcome.cut
    assert [line for line in ui.lines if "drain time-out" in line]


def test_the_drain_time_out_follows_the_slowest_answers(fleet, phase):
    workers = fleet("waits")
    run = phase(workers, own_grace=True)
    assert run._grace_s() == 60.0
    words = workers.members[0].shared.histogram(k.H_E2E)
    from fastllmload._ext.record import histogram

    histogram.record_many(words, np.full(100, 30_000_000_000, np.int64))
    assert run._grace_s() == pytest.approx(150.0, rel=0.01)


def test_a_dead_worker_is_reported_and_the_others_continue(fleet, phase):
    dead = []
    outcome = phase(fleet("dies", workers=2), died=dead.append).run()
    assert [member.spec.worker for member in dead] == [0]
    assert (outcome.released, outcome.ok) == (20, 10)


def test_a_dead_worker_has_nothing_in_flight(fleet, phase):
    """Its counters keep their last values; its requests still count."""
    workers = fleet("dies", workers=2)
    phase(workers).run()
    for member in workers.members:
        member.words[k.W_IN_FLIGHT] = member.words[k.W_CONNECTIONS] = 3
    assert [workers.total(word) for word in (k.W_IN_FLIGHT, k.W_CONNECTIONS, k.W_RELEASED)] == [3, 3, 20]


def test_failures_are_counted_by_url_of_this_phase(fleet, tmp_path):
    """URLs with several addresses are counted once; those after the last counter are counted together."""
    workers = fleet(workers=2)
    urls = ["http://a", "http://b", "http://b", *(f"http://{n}" for n in range(3, 130))]
    live = Live(workers, SampleLog(tmp_path / "log.npy"), None, urls)
    workers.members[0].words[k.W_FAILED_AT0] = 5
    live.begin()
    assert live.failed_at() == {}
    for member in workers.members:
        member.words[k.W_FAILED_AT0 + 1 : k.W_FAILED_AT0 + 3] = 2
    workers.members[1].words[k.W_FAILED_AT0 + k.LAST_URL] = 1
    assert live.failed_at() == {"http://b": 8, "the other URLs": 1}
    assert Live(workers, live.log, None, ["http://a", "http://a"]).failed_at() is None
    live.log.close()


def test_a_phase_does_not_begin_without_one_of_its_workers(fleet, phase):
    dead = []
    workers = fleet("dies at once", workers=2)
    assert phase(workers, died=dead.append).run() is None
    assert dead and "ModuleNotFoundError" in workers.last_message(dead[0], str)


def test_a_worker_that_has_failed_but_not_ended_is_reported_by_join(fleet, phase):
    """The phase ends before the process does, so the phase detects no death."""
    dead = []
    workers = fleet("fails slowly")
    assert phase(workers, died=dead.append).run() is not None
    assert dead + workers.join(10) == workers.members
    assert workers.last_message(workers.members[0], str) == "OSError: no more of that"


def test_a_worker_that_ignores_abort_is_killed_by_stop(fleet, phase, ui, signals, monkeypatch):
    monkeypatch.setattr(phases, "ABORT_NS", 20_000_000)
    workers = fleet("ignores everything")
    ui.hook = lambda snapshot: setattr(signals, "level", STOP)
    assert phase(workers).run().cut
    workers.stop(0.0)
    assert workers.members[0].process.returncode == -15


def test_a_worker_without_a_heartbeat_is_killed_and_reported(fleet, phase, monkeypatch):
    """Its heartbeat is too old; otherwise the phase would never end."""
    monkeypatch.setattr(phases, "SILENT_NS", 20_000_000)
    dead = []
    assert phase(fleet("ignores everything"), died=dead.append).run() is not None
    assert [member.stuck for member in dead] == [True]


def test_the_last_message_of_a_worker_is_redacted(fleet, phase):
    workers = fleet("dies")
    phase(workers).run()
    said = workers.last_message(workers.members[0], lambda text: text.replace("sk-secret", "***"))
    assert said == "Error: Bearer *** was refused"


def test_snapshots_count_the_phases_own_requests(fleet, phase, ui):
    workers = fleet(numbers=(0, 1))
    phase(workers, 0).run()
    phase(workers, 1).run()
    assert ui.snapshots[-1].released == 10
    assert ui.phases == [("measure", 10, None)] * 2


def test_no_snapshot_is_taken_that_would_not_be_displayed(fleet, phase, ui, monkeypatch):
    """A snapshot takes a millisecond of CPU time; samples are still taken."""
    asked = []
    monkeypatch.setattr(ui, "due", lambda t: asked.append(t))
    run = phase(fleet(numbers=(0, 1)))
    run.run()
    assert len(asked) >= 2 and asked == sorted(asked) and not ui.snapshots
    assert run.live.log.rows == len(asked)


def test_samples_of_every_worker_are_readable_while_the_clock_runs(fleet, phase, ui, tmp_path):
    seen = []
    ui.hook = lambda snapshot: seen.append(np.load(tmp_path / "samples.npy"))
    phase(fleet(workers=2, numbers=(0, 1))).run()  # a phase follows, so the workers are still alive at the last update
    last = seen[-1][-2:]
    assert sorted(last["worker"]) == [0, 1]
    assert (last["released"] == 10).all() and (last["rss_bytes"] > 1 << 20).all()


@pytest.mark.parametrize(
    ("ran_s", "waited_s", "why"),
    [(0.2, 0.1, "this host is too busy or its CPU quota too small"), (0.1, 0.0, "most of that time it was stopped")],
)
def test_workers_that_are_not_ready_in_time_are_a_host_limit(fleet, phase, monkeypatch, ran_s, waited_s, why):
    """One that neither ran nor waited for a CPU was stopped by a signal, or waited for a disk."""
    known = ProcessFigures(round(ran_s * 1e9), 0, 0, 0, round(waited_s * 1e9))
    monkeypatch.setattr(phases, "STARTING_S", 0.3)
    monkeypatch.setattr(fleets, "process_figures", lambda pid: known)
    with raises_code("workers-not-ready", "worker 0", "0.3 s", f"{ran_s} s", f"{waited_s} s", why) as caught:
        phase(fleet("never ready")).run()
    assert isinstance(caught.value, HostLimitError)
