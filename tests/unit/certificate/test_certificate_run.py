"""Evidence from a run folder has the right rows and window; files may be missing."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from evidence_maker import MS, START_NS, hdr_histogram, schedule

from fastllmload._ext.record import histogram
from fastllmload._ext.record.recorder import Recorder
from fastllmload.certificate import monitor
from fastllmload.certificate.evidence import bracket_class
from fastllmload.certificate.judge import judge
from fastllmload.certificate.run_evidence import from_run, throttled
from fastllmload.documents.run_parts.hosts import WatchFacts
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.records.samples import SAMPLE

pytestmark = pytest.mark.slow

KIND = {name: number for number, name in enumerate(layout.EVENT_NAMES)}
KERNEL, COALESCED, TAP = layout.STAMP_KERNEL, layout.STAMP_COALESCED, layout.STAMP_TAP
LAG_NS, TTFT_NS, ITL_NS, EVENTS = 30_000, 5 * MS, 10 * MS, 4
RATE, SECONDS = 200.0, 4.0


def write_run(folder: Path, *, coalesced: bool = False, bound: str = "duration", **config: object) -> np.ndarray:
    """RATE requests/s with exact times; returns the planned instants."""
    t_sched = schedule(np.random.default_rng(3), RATE, SECONDS)
    rows = folder / "workers" / "0"
    rows.mkdir(parents=True)
    recorder = Recorder(rows, text=False)
    for number, t in enumerate(t_sched):
        submitted = int(t) + LAG_NS + 10_000
        first = submitted + TTFT_NS
        last = first + (EVENTS - 1) * ITL_NS
        row = recorder.add_row(
            request=number, phase=layout.MEASURE, t_sched=int(t), t_dispatch=int(t) + LAG_NS,
            t_submit_start=submitted - 8_000, t_submit=submitted, t_headers=first, t_any=first, t_first=first,
            t_last=last, t_end=last, t_end_user=last + 20_000,
            status=layout.OK, stamps=KERNEL, flags=layout.FLAG_STREAM,
        )  # fmt: skip
        for i in range(EVENTS):
            same = coalesced and i == 2
            at = first + (3 if same else i) * ITL_NS
            recorder.add_event(at, row, KIND["content"], COALESCED if same else KERNEL, 1, 2 * ITL_NS if same else 0)
    recorder.close()
    phase = {
        "number": 0, "name": "measure", "mode": "open", "start_ns": START_NS,
        "end_ns": START_NS + int(SECONDS * 1e9) if bound == "duration" else None,
        "bound": bound, "ramp_share": 0.1 if bound == "duration" else 0.0,
    }  # fmt: skip
    load_config = {"rate": RATE, "arrival": "poisson", **config}
    (folder / "run.json").write_text(
        json.dumps({"schema_version": 1, "status": "done", "phases": [phase], "config": {"load": load_config}})
    )
    return t_sched


def write_samples(folder: Path, gc_runs: int = 0) -> None:
    samples = np.zeros(int(SECONDS * 4) + 8, SAMPLE)
    samples["t_ns"] = START_NS - 500 * MS + np.arange(len(samples)) * 250 * MS
    samples["cpu_ns"] = np.arange(len(samples)) * 50 * MS
    samples["released"] = np.arange(len(samples)) * 50
    samples["events"] = np.arange(len(samples)) * 200
    samples["gc_runs"][8:] = gc_runs
    samples["rss_bytes"] = 50 << 20
    np.save(folder / "samples.npy", samples)


def test_a_clean_folder_is_valid(tmp_path: Path) -> None:
    """Lag, rate, CPU share, error bars and stamp classes are those of the written rows."""
    t_sched = write_run(tmp_path)
    write_samples(tmp_path)
    found = judge(load(tmp_path))
    inside = int((t_sched >= START_NS + 0.1 * SECONDS * 1e9).sum())
    assert found.verdict == "valid", found.reasons
    assert found.schedule_lag_us.n == inside
    assert found.schedule_lag_us.p50 == found.schedule_lag_us.max == LAG_NS / 1e3
    assert found.planned_rate == pytest.approx(inside / (0.9 * SECONDS))
    assert found.offered_rate == pytest.approx(found.planned_rate, rel=0.01)
    submitted = t_sched + LAG_NS + 10_000 - START_NS
    assert found.kernel_share == 1.0
    assert found.events == EVENTS * int(((submitted >= 0.1 * SECONDS * 1e9) & (submitted < SECONDS * 1e9)).sum())
    assert found.workers[0].cpu_share == pytest.approx(0.2)
    assert found.latency_error_bar_us["ttft"].p99 == 8  # the write took longer than the error of a kernel stamp
    assert found.latency_error_bar_us["itl"].max == 5
    assert found.headroom is None


def test_the_plan_was_ahead_by_the_time_to_the_first_release(tmp_path: Path) -> None:
    """The first release of the phase counts, also in its ramp; None without the plan's time."""
    t_sched = write_run(tmp_path)
    assert judge(load(tmp_path)).plan_lead_s is None
    document = json.loads((tmp_path / "run.json").read_text())
    document["plan"] = {"whole_ns": START_NS - 250 * MS}
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert judge(load(tmp_path)).plan_lead_s == pytest.approx(0.25 + (t_sched[0] - START_NS) / 1e9, abs=1e-9)


def test_coalesced_events_widen_the_error_bar(tmp_path: Path) -> None:
    """The third of four events shares the read of the fourth: it arrived at any time after the read of the second."""
    write_run(tmp_path, coalesced=True)
    write_samples(tmp_path)
    found = judge(load(tmp_path))
    assert found.coalesced_read_share == pytest.approx(1 / EVENTS)
    assert found.latency_error_bar_us["itl"].max == (2 * ITL_NS + 5_000) / 1e3
    assert found.latency_error_bar_us["itl"].p50 == (2 * ITL_NS + 5_000) / 1e3  # two of three gaps have it as an end
    assert {r.code for r in found.reasons} == {"coalesced"}


@pytest.mark.parametrize("stalled", [False, True])
def test_brackets_are_counted_by_width_and_overlap_with_stalls(tmp_path: Path, stalled: bool) -> None:
    """One event of each request has a bracket of two gaps, during which the worker stalled (*stalled*) or not."""
    write_run(tmp_path, coalesced=True)
    write_samples(tmp_path)
    if stalled:
        begins = np.arange(START_NS - 100 * MS, START_NS + int((SECONDS + 1) * 1e9), 15 * MS)
        length = 1 * MS
        rows = np.column_stack([0 * begins, begins, 0 * begins + length, 0 * begins, 0 * begins])
        np.save(tmp_path / "worker_stalls.npy", rows)
    run = load(tmp_path)
    stamps = from_run(run).stamps
    assert stamps.brackets.sum() == stamps.requests
    (number,) = np.flatnonzero(stamps.brackets[int(stalled)])
    assert number == bracket_class(2.0 * ITL_NS) and stamps.brackets[int(stalled), number] == stamps.requests


def test_a_run_bounded_by_count_is_judged_over_its_releases(tmp_path: Path) -> None:
    """It measures until the last request ends; that must not lower its rate."""
    t_sched = write_run(tmp_path, bound="count")
    write_samples(tmp_path)
    evidence = from_run(load(tmp_path))
    assert evidence.window.start_ns == START_NS
    assert t_sched[-1] < evidence.window.end_ns <= t_sched[-1] + LAG_NS + 1
    assert len(evidence.sends.t_sched) == len(t_sched)
    assert judge(load(tmp_path)).verdict == "valid"


def test_the_files_of_the_watch_are_read(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_samples(tmp_path)
    watched = np.zeros((1, len(monitor.WATCHED), histogram.WORDS), np.int64)
    watched[0, list(monitor.WATCHED).index("socket_to_user")] = hdr_histogram(np.full(3, 45 * MS))
    np.save(tmp_path / monitor.HISTOGRAMS, watched)
    before, inside = [0, START_NS - 300 * MS, 200 * MS], [0, START_NS + 500 * MS, 45 * MS]
    np.save(tmp_path / monitor.WORKER_STALLS, np.array([before, inside, [1, START_NS, 80 * MS]]))
    np.save(tmp_path / monitor.HICCUP, hdr_histogram(np.full(1000, 3 * MS)))
    np.save(tmp_path / monitor.STALLS, np.array([[START_NS + 1_000 * MS, 9 * MS]]))
    manifest = json.loads((tmp_path / "run.json").read_text())
    manifest["watch"] = {
        "steal_share": 0.2,
        "ports": 28_232,
        "fd_limit": 1024,
        "ceiling": {"events_per_s": 1_000.0, "requests_per_s": 250.0},
    }
    manifest["workers"] = [{"worker": 0, "died": False}, {"worker": 1, "died": True}]
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    found = judge(load(tmp_path))
    assert {r.code for r in found.reasons} >= {
        "worker_stall",
        "host_hiccups",
        "host_steal",
        "headroom",
        "worker_died",
    }
    assert found.verdict == "invalid"
    assert found.headroom == pytest.approx(1 / (800 / 1000 + 200 / 250))
    assert found.host.stalls == 1
    assert [worker.stall_max_us for worker in found.workers] == [45_000, 80_000]
    assert found.workers[0].socket_to_user_us.max == pytest.approx(45_000, rel=0.01)


def test_collections_and_a_missing_sample_file(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert {r.code for r in judge(load(tmp_path)).reasons} == {"no_samples"}
    write_samples(tmp_path, gc_runs=2)
    assert {r.code for r in judge(load(tmp_path)).reasons} == {"gc"}


@pytest.mark.parametrize(("edge", "seen"), [("begin", True), ("end", True), ("before", False)])
def test_a_step_between_two_samples_at_an_edge_of_the_window_is_seen(tmp_path: Path, edge: str, seen: bool) -> None:
    """The worker counted it after the last sample before the window, or before the first sample after it."""
    write_run(tmp_path)
    write_samples(tmp_path)
    samples = np.load(tmp_path / "samples.npy")
    window = from_run(load(tmp_path)).window
    inside = int(np.searchsorted(samples["t_ns"], window.start_ns, side="right"))
    after = int(np.searchsorted(samples["t_ns"], window.end_ns))
    samples["clock_steps"][{"begin": inside, "end": after, "before": inside - 1}[edge] :] = 1
    np.save(tmp_path / "samples.npy", samples)
    assert [reason.code for reason in judge(load(tmp_path)).reasons] == ["clock_step"] * seen


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / monitor.HICCUP).write_bytes(b"\\x93NUMPY")
    run = load(tmp_path)
    assert monitor.HICCUP in run.damaged and monitor.HICCUP in run.damage[0]
    assert judge(run).host.hiccup_p99_us is None


def test_a_closed_loop_and_a_cap_are_known_by_their_settings(tmp_path: Path) -> None:
    write_run(tmp_path, concurrency=8, rate=None)
    sends = from_run(load(tmp_path)).sends
    assert sends.arrivals.process == "closed" and len(sends.first_fill) == 1


def test_a_capped_open_loop_is_judged_as_such(tmp_path: Path) -> None:
    write_run(tmp_path, max_concurrency=4)
    write_samples(tmp_path)
    found = judge(load(tmp_path))
    assert from_run(load(tmp_path)).sends.cap == 4
    assert found.verdict == "valid"  # no request had to wait


def test_tokens_sent_together_are_distinguished_from_tokens_read_together(tmp_path: Path) -> None:
    """Batched: tokens of one segment, within 1 ms or with equal tap stamps; tokens of one late read are not."""
    times = [
        (0, 0, KERNEL),
        (0, 0, KERNEL),
        (10, 0, TAP),
        (20, 0, TAP),
        (40, 5, COALESCED),
        (40, 0, KERNEL),
        (60, 0, TAP),
        (60, 0, TAP),
    ]
    rows = tmp_path / "workers" / "0"
    rows.mkdir(parents=True)
    recorder = Recorder(rows, text=False)
    row = recorder.add_row(
        phase=layout.MEASURE, t_submit=START_NS, t_dispatch=START_NS, t_sched=START_NS, status=layout.OK
    )
    for number, (at_ms, bracket_ms, stamp) in enumerate(times):
        same = layout.STAMP_SAME_READ if number else 0
        recorder.add_event(START_NS + at_ms * MS, row, KIND["content"], stamp | same, 1, bracket_ms * MS)
    recorder.finish_row(row, t_end=START_NS + 100 * MS)
    recorder.close()
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 1, "status": "done", "phases": []}))
    assert judge(load(tmp_path)).batched_share == pytest.approx(2 / len(times))


@pytest.mark.parametrize(("withheld_ms", "expected"), [(0, False), (59, False), (60, True), (180, True)])
def test_a_quota_is_the_cause_from_a_third_of_the_waits(withheld_ms: int, expected: bool) -> None:
    """Two workers waited for 100 and 80 ms; the wait of the supervisor (worker -1) does not count."""
    samples = np.zeros(6, SAMPLE)
    samples["worker"] = [-1, 0, 1, -1, 0, 1]
    samples["run_delay_ns"] = np.array([0, 10, 20, 900, 110, 100]) * MS
    run = cast(Run, SimpleNamespace(samples=samples))
    assert throttled(run, WatchFacts(throttled_ns=withheld_ms * MS)) is expected
    assert not throttled(run, WatchFacts())
