"""A fleet on agents behaves like one on this machine: phases, deaths, commands; and hosts and drivers can be lost."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from refusals import raises_code
from support.plan_builder import asked, build

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import encoded
from fastllmload.engine import phases
from fastllmload.engine.hosts import group as groups
from fastllmload.engine.hosts.fleet import HostFleet
from fastllmload.engine.hosts.group import HostGroup, plan_files
from fastllmload.engine.hosts.kept.events import Questions
from fastllmload.engine.hosts.link.beats import Growing, SummedHistograms
from fastllmload.engine.hosts.link.messages import Beat, Changes, Increments, WorkerEnd
from fastllmload.engine.hosts.placement import local
from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.engine.interrupts import STOP
from fastllmload.engine.recording.live import Live
from fastllmload.engine.recording.totals import HISTOGRAMS
from fastllmload.engine.workers.spec import PhaseSpec, WorkerSpec
from fastllmload.plan.plan import Plan
from fastllmload.records.run import read_document
from fastllmload.records.samples import SampleLog

pytestmark = pytest.mark.slow
AGENT = (sys.executable, str(Path(__file__).parents[3] / "support" / "agent_of_fake_workers.py"))
UNTIL_S = 60.0


def wait(condition: Callable[[], Any], meanwhile: Callable[[], Any] = lambda: None) -> None:
    until = time.monotonic() + UNTIL_S
    while not condition():
        assert time.monotonic() < until
        meanwhile()
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return build(tmp_path_factory.mktemp("plans") / "plan-measure", asked(rate=10.0, duration=2.0))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where agents make their folders."""
    folder = tmp_path / "agents"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan, scratch: Path
) -> Iterator[Callable[..., HostFleet]]:
    """`hosts(how, per_host, numbers)` starts a fleet of fake workers on agents; all have ended at the end of the test."""
    monkeypatch.setattr(local, "AGENT", AGENT)
    started: list[HostFleet] = []

    def start(
        how: str = "", per_host: tuple[int, ...] = (1, 1), numbers: tuple[int, ...] = (0,), **fields: Any
    ) -> HostFleet:
        monkeypatch.setenv("FAKE_WORKER", how)
        group = HostGroup(LocalPlacement(len(per_host)))
        try:
            group.gather()
            group.assign(per_host)
            group.send_files(plan_files([plan]))
            specs = [spec(worker, sum(per_host), plan, numbers) for worker in range(sum(per_host))]
            (tmp_path / "run").mkdir()
            started.append(HostFleet.start(group, specs, tmp_path / "run", **fields))
        except BaseException:
            group.close()
            raise
        return started[-1]

    yield start
    for fleet in started:
        pids = [pid for host in fleet.group.hosts if host.started for pid in host.started.pids]
        fleet.receiver.close()
        fleet.group.close()
        wait(lambda pids=pids: not any(map(runs, pids)))  # type: ignore[misc]


def spec(worker: int, workers: int, plan: Plan, numbers: tuple[int, ...]) -> WorkerSpec:
    return WorkerSpec(
        worker=worker, workers=workers, supervisor_pid=1, run_id="00000000", targets=(), timeout_ns=1, rows_dir="",
        phases=tuple(
            PhaseSpec(number=n, name="measure", phase_code=1, plan_dir=str(plan.directory), mode="open") for n in numbers
        ),
    )  # fmt: skip


def agent_pid(fleet: HostFleet, host: int) -> int:
    facts = fleet.group.hosts[host].facts
    assert facts is not None
    return facts.pid


def test_two_phases_run_on_two_hosts(hosts: Any, phase: Any, tmp_path: Path) -> None:
    fleet = hosts(per_host=(2, 1), numbers=(0, 1))
    first, second = phase(fleet, 0).run(), phase(fleet, 1).run()
    assert fleet.join(UNTIL_S) == []
    assert (first.released, first.ok, second.released, second.ok) == (30, 30, 30, 30)
    assert [member.process.returncode for member in fleet.members] == [0, 0, 0]
    fleet.finish(tmp_path / "run")
    assert [(host.workers, host.status) for host in fleet.entries()] == [((0, 1), "ended"), ((2,), "ended")]
    assert fleet.missing == {"rows": 0, "events": 0, "texts": 0}
    assert sorted(path.name for path in (tmp_path / "run" / "workers").iterdir()) == ["0", "1", "2"]
    assert (tmp_path / "run" / "hosts" / "1" / "samples.npy").exists()


def test_an_agent_removes_its_folder_when_the_driver_has_all_files(
    hosts: Any, phase: Any, tmp_path: Path, scratch: Path
) -> None:
    fleet = hosts()
    assert len(list(scratch.iterdir())) == 2
    phase(fleet).run()
    fleet.stop(1.0)
    fleet.finish(tmp_path / "run")
    wait(lambda: not list(scratch.iterdir()))


def test_rows_that_are_not_to_be_copied_stay_in_the_folder_of_the_host(hosts: Any, phase: Any, tmp_path: Path) -> None:
    fleet = hosts(per_host=(1,), collect="summary")
    phase(fleet).run()
    fleet.stop(1.0)
    document = RunDocument(status="running", hosts=fleet.entries())
    (tmp_path / "run" / "run.json").write_bytes(encoded(document))
    fleet.finish(tmp_path / "run")
    found = fleet.entries()[0]
    assert (found.status, found.events, fleet.update()) == ("ended", 0, [])
    own, home = Path(str(found.folder)), tmp_path / "run"
    assert {each.name for each in (own / "workers" / "0").iterdir()} >= {"requests.npy", "tokens.npy"}
    assert not list(home.glob("workers/*/tokens.npy")) and (home / "workers" / "0" / "requests.npy").exists()
    assert (home / "hosts" / "0" / "samples.npy").exists() and (
        home / "hosts" / "0" / "summary" / "requests.npy"
    ).exists()
    # The host answers questions about its events, and its folder becomes one of a run.
    assert fleet.ask({0: Questions(window=None)}, replace(document, status="done")) == {}
    answers = {each.name for each in (home / "hosts" / "0" / "summary").iterdir()}
    assert answers == {"requests.npy", "event_totals.npy", "event_summary.json"}
    assert read_document(own).certificate is not None and not (own / "plans").exists()


def test_a_worker_that_dies_is_reported_with_its_last_line(hosts: Any, phase: Any) -> None:
    dead: list[Any] = []
    fleet = hosts("dies")
    outcome = phase(fleet, died=dead.append).run()
    assert [member.spec.worker for member in dead] == [0] and not dead[0].lost
    assert (outcome.released, outcome.ok) == (20, 10)
    redact = lambda text: text.replace("sk-secret", "***")  # noqa: E731
    assert fleet.last_message(dead[0], redact) == "Error: Bearer *** was refused"


def test_samples_have_the_counters_and_the_processes_figures(hosts: Any, phase: Any) -> None:
    fleet = hosts("waits", per_host=(1, 2))
    run = phase(fleet, interrupts=SimpleNamespace(level=0, wait=time.sleep))
    fleet.begin_phase(0)
    wait(lambda: fleet.ready(0), fleet.pump)
    fleet.start_clock(time.monotonic_ns())
    wait(lambda: fleet.total(k.W_RELEASED) == 30, fleet.pump)
    rows = fleet.samples(5, 0)
    assert rows["worker"].tolist() == [0, 1, 2] and (rows["released"] == 10).all() and (rows["t_ns"] == 5).all()
    assert (rows["rss_bytes"] > 1 << 20).all() and (rows["cpu_ns"] > 0).all()
    one = fleet.members[1].figures()
    assert one is not None and one.rss_bytes == rows["rss_bytes"][1]
    assert run.live.record(0) is None  # the first reading has no share of CPU time
    assert fleet.words_by_host()[:, k.W_RELEASED].tolist() == [10, 20]


def test_an_instant_that_has_passed_is_reported_as_late(hosts: Any, tmp_path: Path) -> None:
    fleet = hosts()
    fleet.begin_phase(0)
    wait(lambda: fleet.ready(0), fleet.pump)
    fleet.start_clock(time.monotonic_ns() - 1_000_000)
    found: list[tuple[str, str]] = []
    wait(lambda: len(found) == 2, lambda: (fleet.pump(), found.extend(fleet.update())))
    assert [code for code, _ in found] == ["host-late", "host-late"]
    fleet.stop(1.0)
    fleet.finish(tmp_path / "run")
    assert [host.status for host in fleet.entries()] == ["late", "late"]


def test_a_late_start_of_the_warm_up_is_none_of_the_measurement(hosts: Any, phase: Any, tmp_path: Path) -> None:
    fleet = hosts(numbers=(0, 1))
    fleet.begin_phase(0)
    wait(lambda: fleet.ready(0), fleet.pump)
    fleet.start_clock(time.monotonic_ns() - 1_000_000)
    wait(lambda: fleet.phase_ended(0), fleet.pump)
    phase(fleet, 1).run()
    fleet.join(UNTIL_S)
    assert fleet.update() == []
    fleet.finish(tmp_path / "run")
    assert [host.status for host in fleet.entries()] == ["ended", "ended"]


def test_workers_that_ignore_everything_are_killed(
    hosts: Any, phase: Any, ui: Any, signals: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(phases, "ABORT_NS", 20_000_000)
    fleet = hosts("ignores everything")
    ui.hook = lambda snapshot: setattr(signals, "level", STOP)
    assert phase(fleet).run().cut
    fleet.stop(0.0)
    assert [member.process.returncode for member in fleet.members] == [-15, -15]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_ends_loses_its_workers_and_the_others_continue(
    hosts: Any, phase: Any, tmp_path: Path, scratch: Path, number: int
) -> None:
    dead: list[Any] = []
    fleet = hosts("waits")
    fleet.begin_phase(0)
    wait(lambda: fleet.ready(0), fleet.pump)
    pids = [member.pid for member in fleet.members]
    os.kill(agent_pid(fleet, 1), number)
    wait(lambda: fleet.group.hosts[1].lost, fleet.pump)
    dead += fleet.watch()
    assert [code for code, _ in fleet.update()] == ["host-lost"] and fleet.update() == []
    assert [member.lost for member in fleet.members] == [False, True]
    assert [member.spec.worker for member in fleet.alive] == [0]
    wait(lambda: not runs(pids[1]))
    assert runs(pids[0])
    assert fleet.sending_must_end() is None
    fleet.on_loss = "stop"
    assert fleet.sending_must_end() is not None
    fleet.stop(1.0)
    fleet.finish(tmp_path / "run")
    assert [host.status for host in fleet.entries()] == ["ended", "lost"]
    left = Path(str(fleet.entries()[1].folder))
    assert left.parent == scratch and (left / "workers" / "1").is_dir()


def test_a_host_that_reports_nothing_is_lost(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = hosts("waits")
    monkeypatch.setattr(groups, "SILENT_S", 1.0)
    stopped = agent_pid(fleet, 0)
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait(lambda: fleet.group.hosts[0].lost, fleet.pump)
        assert fleet.group.hosts[1].lost is None
    finally:
        with contextlib.suppress(ProcessLookupError):  # the driver has killed it
            os.kill(stopped, signal.SIGCONT)


def test_a_driver_that_is_frozen_for_a_while_loses_nothing(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its silence does not count as that of the hosts; agents leave out beats and continue."""
    fleet = hosts("waits", per_host=(1,))
    monkeypatch.setattr(groups, "SILENT_S", 2.0)
    fleet.begin_phase(0)
    wait(lambda: fleet.ready(0), fleet.pump)
    fleet.start_clock(time.monotonic_ns() + 1_000_000_000)
    time.sleep(6)
    wait(lambda: fleet.total(k.W_RELEASED) == 10, fleet.pump)
    assert fleet.group.hosts[0].lost is None
    fleet.command(k.ABORT)
    wait(lambda: fleet.phase_ended(0), fleet.pump)


def test_agents_end_when_the_driver_is_gone_and_keep_their_folders(hosts: Any, scratch: Path) -> None:
    fleet = hosts("waits")
    fleet.begin_phase(0)
    wait(lambda: fleet.ready(0), fleet.pump)
    pids = [member.pid for member in fleet.members] + [agent_pid(fleet, host) for host in range(2)]
    began = time.monotonic()
    for host in fleet.group.hosts:
        fleet.group._by_link.clear()
        host.link.close()
        host.link = None
    wait(lambda: not any(map(runs, pids)))
    assert time.monotonic() - began < UNTIL_S
    left = sorted(path.relative_to(folder).as_posix() for folder in scratch.iterdir() for path in folder.glob("*/*"))
    assert left == ["hosts/0", "hosts/1", "workers/0", "workers/1"]  # and no bodies of requests


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.setattr(groups, "__version__", "0.0.1")
    group = HostGroup(LocalPlacement(1))
    try:
        with raises_code("hosts-differ", "0.0.1"):
            group.gather()
    finally:
        group.close()
    wait(lambda: not list(scratch.iterdir()))


def test_an_agent_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.setattr(local, "AGENT", (sys.executable, "-c", "raise SystemExit(3)"))
    group = HostGroup(LocalPlacement(1))
    try:
        with raises_code("host-unusable", "host 0", "exit code 3"):
            group.gather()
    finally:
        group.close()


def test_a_plan_that_was_changed_on_its_way_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch: Path
) -> None:
    """The digest of the plan is checked on each host."""
    made = build(tmp_path / "plan-measure", asked(rate=10.0, duration=2.0))
    lengths = np.load(tmp_path / "plan-measure" / "output_tokens.npy")
    np.save(tmp_path / "plan-measure" / "output_tokens.npy", lengths + 1)
    group = HostGroup(LocalPlacement(1))
    try:
        group.gather()
        group.assign([1])
        group.send_files(plan_files([made]))
        (tmp_path / "run").mkdir()
        with raises_code("plan-changed", "host 0", "output_tokens.npy"):
            HostFleet.start(group, [spec(0, 1, made, (0,))], tmp_path / "run")
    finally:
        group.close()


def test_cpus_that_a_host_does_not_have_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch: Path, plan: Plan
) -> None:
    group = HostGroup(LocalPlacement(1))
    try:
        group.gather()
        group.assign([1])
        group.send_files(plan_files([plan]))
        (tmp_path / "run").mkdir()
        with raises_code("cpu-unavailable", "host 0", 4000):
            HostFleet.start(group, [spec(0, 1, plan, (0,))], tmp_path / "run", pinned=[4000])
    finally:
        group.close()


class Bare(HostFleet):
    """A fleet without agents: what they report is passed to it."""

    def __init__(self, hosts: int) -> None:
        self.counters = np.zeros((hosts, k.WORDS), np.int64)
        self.used = np.zeros((hosts, 5), np.int64)
        self.histograms = SummedHistograms(len(HISTOGRAMS), hosts, HISTOGRAMS.index(k.H_LAG))
        self.members = []


def test_histograms_of_all_hosts_are_those_of_all_values(rng: np.random.Generator) -> None:
    """As if every value had been recorded in one histogram, after any number of exchanges."""
    fleet, expected = Bare(3), [histogram.empty() for _ in HISTOGRAMS]
    own = [np.zeros((len(HISTOGRAMS), histogram.WORDS), np.int64) for _ in range(3)]
    senders = [Growing(len(HISTOGRAMS)) for _ in range(3)]
    for number in range(6):
        for host in range(3 if number else 1):
            values = rng.integers(1000 * (host + 1), 10**9, 50)
            for at in (0, len(HISTOGRAMS) - 1):
                histogram.record_many(own[host][at], values)
                histogram.record_many(expected[at], values)
            place: Any = SimpleNamespace(number=host, first=host, count=1)
            fleet._apply(
                place,
                Beat(number=number, words=Changes(b"", b""), histograms=senders[host].increments(own[host].copy())),
            )
        for kind, every in zip(HISTOGRAMS, expected, strict=True):
            assert (fleet.histogram(kind) == every).all()
    assert (fleet.lags_by_host() == [of_host[HISTOGRAMS.index(k.H_LAG)] for of_host in own]).all()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    "beat",
    [
        Beat(number=1, words=Changes((k.WORDS).to_bytes(4, "little"), bytes(8))),
        Beat(number=1, words=Changes(b"", b""), figures=bytes(16)),
        Beat(number=1, words=Changes(b"", b""), ended=(WorkerEnd(worker=0, returncode=0),)),
        Beat(number=1, words=Changes(b"", b""), histograms=Increments(b"", b"", bytes(16))),
        Beat(
            number=1,
            words=Changes(b"", b""),
            histograms=Increments(b"\xff\xff\xff\xff", bytes(4), bytes(16 * len(HISTOGRAMS))),
        ),
    ],
)
def test_a_host_that_reports_for_another_one_is_refused(beat: Beat) -> None:
    from fastllmload.engine.hosts.link.connection import LinkError

    place: Any = SimpleNamespace(number=1, first=1, count=1)
    fleet = Bare(2)
    with pytest.raises(LinkError):
        fleet._apply(place, beat)
    assert not fleet.counters.any() and not any(fleet.histogram(kind).any() for kind in HISTOGRAMS)


def test_a_start_is_sent_in_one_frame_for_many_workers() -> None:
    from fastllmload.engine.hosts.group import relative

    made = WorkerSpec(
        worker=0, workers=64, supervisor_pid=1, run_id="0", rows_dir="/run/workers/0", targets=(), timeout_ns=1,
        phases=(PhaseSpec(number=0, name="w", phase_code=0, plan_dir="/run/.work/plan-warmup", mode="open"),),
        cacert="/etc/ca.pem",
    )  # fmt: skip
    found = relative(made)
    assert (found.rows_dir, found.phases[0].plan_dir, found.cacert, found.key) == (
        "workers", "plans/plan-warmup", "tls/cacert", None,
    )  # fmt: skip
    assert replace(found, rows_dir="", phases=(), cacert=None) == replace(made, rows_dir="", phases=(), cacert=None)


def test_the_samples_of_a_phase_are_written_as_on_one_machine(hosts: Any, phase: Any, tmp_path: Path) -> None:
    fleet = hosts(numbers=(0, 1))
    phase(fleet, 0).run()
    log = SampleLog(tmp_path / "more.npy")
    Live(fleet, log, None).record(0)
    log.close()
    rows = np.load(tmp_path / "more.npy")
    assert rows["worker"].tolist() == [0, 1] and (rows["ok"] == 10).all()
