"""A TTFT limit that was missed while the client looked away is not held against the system; one that was waited for is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic_run import MS, ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.certificate.monitor import WORKER_STALLS
from fastllmload.experiment.level.margins import ttft_p99_at_best_ms
from fastllmload.experiment.level.verdict import LATENCY, QUEUE, Lowest, hidden_by_stall, judge_level
from fastllmload.procedure.tests import capacity, throughput
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.statistics.sequential_tests import Decision

pytestmark = pytest.mark.slow

WAITED = 450 * MS  # until the stamp of the read that brought the first tokens of one request of 32
LIMIT_MS = 400.0
CONTENT = layout.EVENT_NAMES.index("content")


def level(folder: Path, stall: tuple[int, int] | None, together: bool = True, worker: int = 0) -> Any:
    """200 requests. One of 32 has its first token *WAITED* after its submission, in a read of several events where
    *together*; *stall*: how far from that read's stamp, in ns, a stall of *worker* begins and ends.
    """
    requests = draw_requests(5, Shape(requests=200, failures=0.0))
    stalls = []
    for number, request in enumerate(requests):
        fields = request.fields
        if "t_first" not in fields:
            continue
        fields["t_first"] = fields["t_submit"] + 40 * MS
        if number % 32 == 0:
            fields["t_first"] = stamped = fields["t_submit"] + WAITED
            first = next(i for i, event in enumerate(request.events) if event[1] == CONTENT)
            bracket = (layout.STAMP_COALESCED, 0, WAITED) if together else (layout.STAMP_KERNEL, 0, 0)
            request.events = [(max(event[0], stamped), *event[1:]) for event in request.events]
            request.events[first] = (stamped, CONTENT, *bracket)
            if stall is not None:
                stalls.append((worker, stamped + stall[0], stall[1] - stall[0]))
    write_workers(folder, requests)
    write_manifest(folder, phases=[duration_phase(ORIGIN_NS, 4.0)])
    np.save(folder / WORKER_STALLS, np.array(stalls, np.int64).reshape(-1, 3))
    run = load(folder)
    return SimpleNamespace(
        folder=folder, run=run, generator_limited=False, success_rate=1.0, figure=lambda name, statistic: WAITED / MS
    )


@pytest.mark.parametrize(
    ("given", "best_ms", "said"),
    [
        ({"stall": (-149 * MS, 1 * MS)}, 301.0, Decision.CLIENT),  # the stall hides when they came
        ({"stall": (-149 * MS, -2 * MS)}, 301.0, Decision.CLIENT),  # read just after it
        ({"stall": (-455 * MS, 1 * MS)}, 0.0, Decision.CLIENT),  # not before the request
        ({"stall": (-30 * MS, 1 * MS)}, 420.0, Decision.FAIL),  # too short a stall
        ({"stall": (-149 * MS, -60 * MS)}, 450.0, Decision.FAIL),  # it looked again before they came
        ({"stall": (-149 * MS, 1 * MS), "worker": 1}, 450.0, Decision.FAIL),  # another worker
        (
            {"stall": (-149 * MS, 1 * MS), "together": False},
            450.0,
            Decision.FAIL,
        ),  # one event in its read: its own stamp
        ({"stall": None}, 450.0, Decision.FAIL),
    ],
)
def test_what_a_stall_hides_fails_no_level(
    tmp_path: Path, given: dict[str, Any], best_ms: float, said: Decision
) -> None:
    found = level(tmp_path, **given)
    assert ttft_p99_at_best_ms(found.run) == pytest.approx(max(best_ms, 40.0))
    assert capacity.judge(found, capacity.Parameters(slo_ttft_p99_ms=LIMIT_MS)) is said
    level_result: Any = SimpleNamespace(verdict=SimpleNamespace(decision=Decision.PASS, limits=()), level=found)
    assert throughput.judge(level_result, {"ttft": LIMIT_MS}) is said
    # TPOT is missed as well, and no stall excuses it
    assert throughput.judge(level_result, {"ttft": LIMIT_MS, "tpot": 1.0}) is Decision.FAIL
    assert capacity.judge(found, capacity.Parameters(slo_ttft_p99_ms=WAITED / MS)) is Decision.PASS


@pytest.mark.parametrize(
    ("stall", "p50", "saturated", "limited"),
    [
        ((-149 * MS, 1 * MS), 31.0, None, True),  # 301 ms at best, 310 allowed
        ((-149 * MS, 1 * MS), 30.0, True, False),  # 300 allowed
        (None, 31.0, True, False),
        ((-149 * MS, 1 * MS), 46.0, False, False),  # 450 are in time by themselves
    ],
)
def test_latency_alone_does_not_saturate_a_level_after_a_stall(
    tmp_path: Path, stall: tuple[int, int] | None, p50: float, saturated: bool | None, limited: bool
) -> None:
    """P99 above ten times the P50 of the lowest level: one worker's stall must not make that."""
    found = judge_level(level(tmp_path, stall).run, Lowest(1.0, p50, p50, 0.1))
    assert (found.saturated, found.generator_limited) == (saturated, limited)
    assert [limit for limit in found.limits if "stalled while first" in limit] == list(found.limits)


def test_a_stall_excuses_no_level_that_another_criterion_fails(tmp_path: Path) -> None:
    run = level(tmp_path, (-149 * MS, 1 * MS)).run
    assert hidden_by_stall(run, (LATENCY,), Lowest(1.0, 31.0, 31.0, 0.1))
    assert hidden_by_stall(run, (QUEUE, LATENCY), Lowest(1.0, 31.0, 31.0, 0.1)) == ()


def test_requests_that_failed_are_not_excused(tmp_path: Path) -> None:
    found = level(tmp_path, (-149 * MS, 1 * MS))
    found.success_rate = 0.9
    assert capacity.judge(found, capacity.Parameters(slo_ttft_p99_ms=LIMIT_MS)) is Decision.FAIL


def test_a_level_of_an_earlier_version_kept_no_stalls(tmp_path: Path) -> None:
    found = level(tmp_path, (-149 * MS, 1 * MS))
    (tmp_path / WORKER_STALLS).unlink()
    assert capacity.judge(found, capacity.Parameters(slo_ttft_p99_ms=LIMIT_MS)) is Decision.FAIL
