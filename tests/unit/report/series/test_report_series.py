"""Series and curves equal a plain recomputation, request by request and event by event."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import MS, ORIGIN_NS, Request, Shape, draw_requests, duration_phase, write_manifest, write_workers
from typed_documents import with_keys

from fastllmload._ext.record import histogram
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.idle import Reader
from fastllmload.metrics.tokens.timeline import on_timeline
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.report.series import axis as axes
from fastllmload.report.series import chosen_requests, curves, host, tokens
from fastllmload.report.series import curves as arrival_gaps
from fastllmload.report.series import load as loads

pytestmark = pytest.mark.slow

SECONDS = 5.0
READER = Reader()


@pytest.fixture(scope="module", params=[Shape(), Shape(tokens_per_event=4, say_tokens=True)], ids=["single", "several"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    write_workers(folder, draw_requests(11, request.param), workers=2)
    write_manifest(folder, phases=[duration_phase(ORIGIN_NS, SECONDS)])
    return load(folder)


@pytest.fixture
def axis(run: Run) -> axes.TimeAxis:
    found = axes.time_axis(run)
    assert found is not None
    return found


def own_bin(axis: axes.TimeAxis, t: int) -> int:
    return min(max((int(t) - axis.zero_ns) // axis.width_ns, 0), axis.bins - 1)


def test_the_axis_covers_the_measured_phase(run: Run, axis: axes.TimeAxis) -> None:
    last = max(int(run.rows["t_end"].max()), int(run.rows["t_dispatch"].max()))
    assert axis.zero_ns == ORIGIN_NS
    assert axis.zero_ns + (axis.bins - 1) * axis.width_ns <= last < axis.zero_ns + axis.bins * axis.width_ns
    assert axis.window == window_of(run)


def test_rates_count_each_request_once(run: Run, axis: axes.TimeAxis) -> None:
    found = loads.load_over_time(run, axis)
    sent, completed, failed = np.zeros(axis.bins), np.zeros(axis.bins), np.zeros(axis.bins)
    for row in run.rows:
        if row["t_dispatch"]:
            sent[own_bin(axis, row["t_dispatch"])] += 1
        if row["status"] == layout.OK:
            completed[own_bin(axis, row["t_last"])] += 1
        elif row["status"] > layout.OK:
            failed[own_bin(axis, row["t_end"])] += 1
    assert np.allclose(found.sent * axis.width_s, sent)
    assert np.allclose(found.completed * axis.width_s, completed)
    assert np.allclose(found.failed * axis.width_s, failed)
    by_status = loads.failures_over_time(run, axis)
    assert np.allclose(sum(by_status.values()), failed)
    assert [float(counts.sum()) for counts in by_status.values()] == sorted(
        (float(counts.sum()) for counts in by_status.values()), reverse=True
    )


def test_in_flight_is_the_mean_over_each_bin(run: Run, axis: axes.TimeAxis) -> None:
    area = np.zeros(axis.bins)
    for row in run.rows:
        for k in range(axis.bins):
            low, high = axis.zero_ns + k * axis.width_ns, axis.zero_ns + (k + 1) * axis.width_ns
            area[k] += max(0, min(int(row["t_end"]), high) - max(int(row["t_dispatch"]), low))
    assert np.allclose(loads.load_over_time(run, axis).in_flight, area / axis.width_ns, atol=1e-6)


def test_an_open_interval_without_an_end_stays_open() -> None:
    axis = axes.TimeAxis(0, 10, 3)
    found = loads.mean_open(axis, np.array([5, 0, 20]), np.array([0, 7, 25]))
    assert found.tolist() == pytest.approx([0.5, 1.0, 1.5])  # the second never began


def plain_gaps(run: Run, row: int) -> tuple[list[int], list[int], list[int]]:
    """(times, tokens, gaps) of one request, straight from its events."""
    own = slice(int(run.first_event[row]), int(run.first_event[row + 1]))
    timed = on_timeline(run)[own]
    times = run.event_t[own][timed].tolist()
    sizes = [max(1, size) for size in run.event_tokens[own][timed].tolist()]
    return times, sizes, [b - a for a, b in pairwise(times)]


def test_tokens_and_gaps_equal_a_plain_loop_over_the_events(
    run: Run, axis: axes.TimeAxis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens.slices, "__defaults__", (100,))  # many slices
    latency = populations(run, window_of(run)).latency
    found = tokens.token_series(run, axis, latency, within_chunks=True, reader=READER)
    expected = np.zeros((found.gap_axis.bins, curves.BUCKETS), np.int64)
    for row in range(len(run.rows)):
        times, sizes, between = plain_gaps(run, row)
        assert found.pause_ns[row] == pytest.approx(max(between)) if between else math.isnan(found.pause_ns[row])
        if latency[row]:
            for t, ns in zip(times[1:], between, strict=True):
                expected[own_bin(found.gap_axis, t), int(curves.bucket_of(np.array([ns]))[0])] += 1
            for t, size in zip(times, sizes, strict=True):
                expected[own_bin(found.gap_axis, t), 0] += size - 1
    assert (found.gap_counts == expected).all()
    ok = run.rows["status"] == layout.OK
    assert found.tokens_s is not None
    assert float(found.tokens_s.sum()) * axis.width_s == pytest.approx(float(run.rows["completion_tokens"][ok].sum()))


def test_chunk_gaps_exclude_gaps_within_a_chunk(run: Run, axis: axes.TimeAxis) -> None:
    latency = populations(run, window_of(run)).latency
    found = tokens.token_series(run, axis, latency, within_chunks=False, reader=READER)
    assert found.gap_counts.sum() == sum(len(plain_gaps(run, row)[2]) for row in np.flatnonzero(latency))


def test_waits_equal_those_of_a_simulated_reader(run: Run, axis: axes.TimeAxis) -> None:
    everyone = np.ones(len(run.rows), np.bool_)
    found = tokens.token_series(run, axis, everyone, within_chunks=False, reader=READER)
    seen = 0
    for row in range(len(run.rows)):
        times, sizes, _ = plain_gaps(run, row)
        if not times:
            assert math.isnan(found.late_ns[row])
            continue
        ready, idle = int(run.rows["t_submit"][row]) + READER.first_ns, 0
        for t, size in zip(times, sizes, strict=True):
            for _ in range(size):
                idle += max(0, t - ready)
                ready = max(ready, t) + READER.per_token_ns
        assert max(0, found.late_ns[row]) == idle
        one = chosen_requests.delivery_of(run, row, "", float(found.pause_ns[row]), READER)
        assert one.wait_s == pytest.approx(idle / 1e9, abs=1e-9)
        assert one.slack_s == pytest.approx(-found.late_ns[row] / 1e9, abs=1e-9)
        assert one.tokens == sum(sizes)
        assert (np.diff(one.read_s) >= 0).all() and (one.read[0], one.read[-1]) == (1, one.tokens)
        assert one.read_s[-1] == pytest.approx((ready - int(run.rows["t_submit"][row]) - READER.per_token_ns) / 1e9)
        seen += 1
    assert seen > 50


def test_chosen_requests_are_those_at_the_ranks(run: Run, axis: axes.TimeAxis) -> None:
    sets = populations(run, window_of(run))
    found = tokens.token_series(run, axis, sets.latency, within_chunks=False, reader=READER)
    picked = {why: row for row, why in chosen_requests.choose_rows(found, sets.latency, sets.measured).items()}
    late = found.late_ns[sets.latency]
    assert found.late_ns[picked["Worst request"]] == np.nanmax(late)
    assert found.late_ns[picked["Median request"]] == sorted(late[~np.isnan(late)])[round((len(late) - 1) / 2)]
    nobody = np.zeros(len(run.rows), np.bool_)
    assert chosen_requests.choose_rows(found, nobody, sets.measured), "without a success those that failed are shown"
    assert chosen_requests.choose_rows(found, nobody, nobody) == {}


def test_a_long_answer_is_thinned_for_drawing(run: Run, axis: axes.TimeAxis) -> None:
    row = int(np.argmax(run.rows["events"]))
    whole = chosen_requests.delivery_of(run, row, "", math.nan, Reader(speed=1000.0))
    drawn = chosen_requests.thinned(whole, 5)
    assert len(whole.t_s) > 5 >= len(drawn.t_s)
    assert len(whole.waits) > 5 >= len(drawn.waits)
    assert (drawn.t_s[-1], drawn.received[-1]) == (whole.t_s[-1], whole.received[-1])
    assert (drawn.read_s[-1], drawn.read[-1]) == (whole.read_s[-1], whole.read[-1])
    assert drawn.waits[0, 0] == whole.waits[0, 0] and drawn.waits[-1, 1] == whole.waits[-1, 1]
    assert chosen_requests.thinned(whole, 10_000).waits is whole.waits


def test_close_intervals_are_merged() -> None:
    given = np.array([[0.0, 1.0], [1.5, 2.0], [5.0, 6.0], [6.1, 7.0]])
    assert chosen_requests.merged(given, 1.0).tolist() == [[0.0, 2.0], [5.0, 7.0]]
    assert chosen_requests.merged(given, 0.05).tolist() == given.tolist()


def test_curves_are_exact_percentiles() -> None:
    values = np.random.default_rng(3).lognormal(3, 1, 5000)
    found = curves.curve_of(values)
    ordered = np.sort(values)
    for tail, value in zip(found.tail.tolist()[:-1], found.value.tolist()[:-1], strict=True):
        assert value == pytest.approx(percentile(ordered, 1 - 10**-tail))
    assert found.value[-1] == ordered[-1] and found.tail[-1] == pytest.approx(math.log10(5000))
    assert found.solid_until == pytest.approx(math.log10(500))


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_curves_of_few_values(n: int) -> None:
    found = curves.curve_of(np.arange(n, dtype=np.float64) + 1)
    assert found.n == n and len(found.value) == (2 if n == 1 else n)
    assert n == 0 or found.tail[-1] > 0, "a line that can be seen"
    assert found.value.tolist() == sorted(found.value.tolist()) and found.solid_until == 0


def test_bucket_curves_are_exact_to_the_bucket_width() -> None:
    ns = np.random.default_rng(4).lognormal(16, 1.5, 20_000).astype(np.int64)
    ns[:500] = 0
    counts = np.bincount(curves.bucket_of(ns), minlength=curves.BUCKETS)
    exact, bucketed = curves.curve_of(ns, 1e6), curves.curve_of_buckets(counts, 1e6)
    rank = np.floor((1 - 10.0**-bucketed.tail) * (len(ns) - 1)).astype(int)
    rank[-1] = len(ns) - 1
    assert np.allclose(bucketed.value, np.sort(ns)[rank] / 1e6, rtol=0.0082, atol=0)
    assert bucketed.n == exact.n


def test_buckets_are_monotonic_within_their_limits() -> None:
    ns = np.array([0, 1, 2, 63, 64, 1000, 10**9, 3 * 10**12, 2**62])
    found = curves.bucket_of(ns)
    assert found[0] == 0 and found[1] == 1 and found[-1] == curves.BUCKETS - 1
    assert (np.diff(curves.bucket_of(np.arange(0, 100_000, 7))) >= 0).all()
    middle = curves.bucket_values()
    assert (np.abs(middle[found[1:-1]] / ns[1:-1] - 1) < 0.0082).all()


def test_percentiles_over_time_need_enough_values() -> None:
    axis = axes.TimeAxis(0, 10, 3)
    t = np.array([1] * 100 + [11] * 5)
    values = np.arange(105)
    found = curves.percentiles_over_time(axis, t, values)
    assert found["p99"][0] == pytest.approx(np.percentile(np.arange(100), 99)) and math.isnan(found["p99"][1])
    assert found["p50"][1] == 102 and found["max"][1] == 104 and math.isnan(found["max"][2])
    counts = np.stack([np.bincount(curves.bucket_of(values[t // 10 == k]), minlength=curves.BUCKETS) for k in range(3)])
    bucketed = curves.percentiles_of_buckets(counts)
    assert bucketed["p50"][0] == pytest.approx(49.5, rel=0.02) and math.isnan(bucketed["p90"][1])


def test_hdr_bars_count_every_value() -> None:
    words = histogram.empty()
    ns = np.random.default_rng(5).lognormal(10, 2, 3000).astype(np.int64)
    histogram.record_many(words, ns)
    found = host.bars(words)
    assert found.n == found.counts.sum() == 3000
    for low, high, count in zip(found.edges_us, found.edges_us[1:], found.counts, strict=False):
        # A value near an edge may lie on either side: HDR keeps three digits
        inside = np.count_nonzero((ns >= low * 1e3 * 1.001) & (ns < high * 1e3 * 0.999))
        around = np.count_nonzero((ns >= low * 1e3 * 0.999) & (ns < high * 1e3 * 1.001))
        assert low < 1 or inside <= count <= around


def test_arrival_gaps_name_the_process_and_follow_it(tmp_path: Path) -> None:
    rows = [Request({"request": k, "t_sched": ORIGIN_NS + k * 10 * MS, "t_dispatch": ORIGIN_NS + k * 10 * MS + 1000,
                     "phase": layout.MEASURE, "status": layout.OK}) for k in range(50)]  # fmt: skip
    write_workers(tmp_path, rows)
    write_manifest(tmp_path, phases=[duration_phase(ORIGIN_NS, 0.5)])
    run = load(tmp_path)

    def of_load(**load: Any) -> Run:
        return with_keys(run, config={"load": load})

    found = arrival_gaps.arrival_gaps(of_load(rate=100.0, arrival="constant"))
    assert found is not None and found.asked is not None and found.planned is not None
    assert found.process == "constant" and set(found.asked.value) == {10.0} == set(found.planned.value)
    found = arrival_gaps.arrival_gaps(of_load(rate=100.0, arrival="poisson"))
    assert found is not None and found.asked is not None
    expected = -np.log(10.0**-found.asked.tail) * 10
    assert np.allclose(found.asked.value, expected, rtol=0.01)
    found = arrival_gaps.arrival_gaps(of_load(concurrency=4))
    assert found is not None and found.asked is None and found.planned is None
