"""Sessions: figures of three made-up ones, computed by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.metrics.run.block_hits import block_hits
from fastllmload.metrics.run.sessions import PARTS, critical_path, sent_calls, session_metrics, sessions_block
from fastllmload.metrics.run.window import Populations, Window
from fastllmload.plan.build import build_plan
from fastllmload.plan.plan import Plan
from fastllmload.plan.prompts.load import LoadedWorkload
from fastllmload.records import layout
from fastllmload.settings import Load, Output, RunSettings, Workload
from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import WaitKind

MS = 1_000_000
ZERO = 1_000_000 * MS
DRAIN = layout.ERROR_NAMES.index("drain")


def trace() -> Any:
    """a: a0, its child c0, and a1 that joins both; b: b0, then b1; d: d0, then d1."""

    def call(name: str, chain: str, blocks: list[int], **values: Any) -> TracedCall:
        return TracedCall(name, "line 1", chain, 16 * len(blocks), 5, blocks=np.array(blocks), **values)

    calls = [
        call("a0", "a", [1, 2], start_ns=0, end_ns=200 * MS),
        call("c0", "c", [1, 9], after=[After("a0")], wait_ns=10 * MS, wait_kind=WaitKind.AGENT, start_ns=210 * MS,
             end_ns=600 * MS),
        call("a1", "a", [1, 2, 3], after=[After("a0", 50 * MS), After("c0")], wait_ns=20 * MS, wait_kind=WaitKind.TOOL,
             start_ns=620 * MS, end_ns=800 * MS),
        call("b0", "b", [1, 2], start_ns=300 * MS, end_ns=400 * MS),
        call("b1", "b", [1, 2, 4], after=[After("b0")], start_ns=400 * MS, end_ns=500 * MS),
        call("d0", "d", [5], start_ns=400 * MS, end_ns=500 * MS),
        call("d1", "d", [5, 6], after=[After("d0")], wait_ns=100 * MS, wait_kind=WaitKind.USER, start_ns=600 * MS,
             end_ns=700 * MS),
    ]  # fmt: skip
    return build_graph("graph", "0" * 64, calls, block_tokens=16)


def row(request: int, session: int, due: float, any_ms: float, end: float, **values: Any) -> np.ndarray:
    """Sent 1 ms after it was due; times in ms."""
    found = np.zeros(1, layout.REQUEST)
    found["request"], found["session"], found["phase"], found["status"] = request, session, layout.MEASURE, layout.OK
    found["t_sched"], found["t_dispatch"] = ZERO + due * MS, ZERO + due * MS
    found["t_submit"] = ZERO + (due + 1) * MS
    found["t_any"] = found["t_first"] = ZERO + any_ms * MS
    found["t_end"] = found["t_last"] = ZERO + end * MS
    found["prompt_tokens"], found["cached_tokens"] = 40, 16
    for name, value in values.items():
        found[name] = value
    return found


@pytest.fixture
def run(tmp_path: Path) -> Any:
    settings = RunSettings(load=Load(rate=1.0, num_requests=3), workload=Workload(name="graph", tokenizer="none"))
    loaded = LoadedWorkload(graph=trace())
    plan = build_plan(
        settings,
        phase="measure",
        endpoint=ENDPOINTS["openai-chat"],
        model="m",
        out_dir=tmp_path / "built",
        loaded=loaded,
    )
    plan.write_record(tmp_path / "plan")
    rows = np.concatenate([
        row(0, 0, 0, 31, 100), row(1, 0, 110, 150, 300), row(2, 0, 320, 330, 400, turn=2),
        row(3, 1, 50, 60, 90, status=layout.HTTP_ERROR, t_any=0, t_first=0),
        row(5, 2, 100, 130, 200), row(6, 2, 300, 0, 450, status=layout.CANCELLED, error=DRAIN, t_first=0),
    ])  # fmt: skip
    rows["input_target"] = plan.input_tokens[rows["request"]]
    return SimpleNamespace(rows=rows, directory=tmp_path, document=SimpleNamespace(plan=plan.document, config=settings))


def found(run: Any, good: Any = None) -> Any:
    measured = np.ones(len(run.rows), np.bool_)
    chosen = Populations(measured, measured, run.rows["status"] == layout.OK)
    return sessions_block(run, Window(ZERO, ZERO + 500 * MS, False), chosen, good)


def test_what_became_of_sessions_and_calls(run: Any) -> None:
    one = found(run, np.array([True, True, True, False, True, False]))
    assert (one.begun, one.completed, one.failed, one.unfinished) == (3, 1, 1, 1)
    assert (one.calls_planned, one.calls_sent, one.calls_failed, one.calls_cancelled) == (7, 6, 1, 1)
    assert one.met == 1 and one.goodput == 2.0 and one.completed_per_s == 2.0
    assert found(run, np.array([True, False, True, False, True, False])).met == 0


@pytest.mark.parametrize(
    ("goodput", "met"),
    [
        ([("session_makespan", 399.0)], 1), ([("session_makespan", 398.999)], 0),
        ([("session_stretch", 0.5)], 1), ([("session_stretch", 0.49), ("session_makespan", 9e9)], 0),
    ],
)  # fmt: skip
def test_a_session_is_good_within_the_limits_of_sessions(run: Any, goodput: list[Any], met: int) -> None:
    """One session is completed: 399 ms, of 800 with the recorded service times."""
    run.document.config = RunSettings(output=Output(goodput=tuple(goodput)))
    one = found(run)
    assert (one.met, one.goodput) == (met, 2.0 * met)
    assert [(each.objective, each.limit) for each in one.objectives] == goodput
    assert min(each.met for each in one.objectives) == met
    assert found(run, np.zeros(len(run.rows), np.bool_)).met == 0


def test_sessions_have_metrics_that_gates_and_comparisons_know(run: Any) -> None:
    one = session_metrics(found(run))
    assert one["session_makespan"].p50 == pytest.approx(399.0) and one["sessions_s"].value == 2.0
    assert session_metrics(None) == {}


def test_times_of_a_completed_session(run: Any) -> None:
    one = found(run)
    assert one.makespan.mean == pytest.approx(399.0) and one.makespan.n == 1
    assert one.tool_time.mean == one.tool_time_all.mean == 20.0
    assert one.model_time.mean == pytest.approx(99 + 189 + 79)
    assert one.stretch.mean == pytest.approx(399 / (200 + 10 + 390 + 20 + 180))
    assert one.agents.mean == 2 and one.depth.mean == 1 and one.calls.mean == 3 and one.in_flight.mean == 1
    assert one.makespan_with_unfinished["p50"] == pytest.approx(399.0)
    assert one.makespan_with_unfinished["p99"] == pytest.approx(399.0)


def test_the_critical_path_is_walked_back_from_the_last_call(run: Any) -> None:
    calls = sent_calls(run, np.ones(len(run.rows), np.bool_))
    assert calls is not None and calls.cause.tolist() == [-1, 0, 1, -1, -1, 4]
    parts = dict(zip(PARTS, (value / MS for value in critical_path(calls, 0)), strict=True))
    assert parts == {
        "prefill": 30 + 39 + 9, "decode": 69 + 150 + 70, "tool": 20, "agent": 10, "user": 0, "unknown": 0, "client": 3
    }  # fmt: skip
    shares = found(run).critical_path
    assert sum(getattr(shares, name) for name in PARTS) == pytest.approx(1.0)


def test_figures_by_turn_and_depth(run: Any) -> None:
    one = found(run)
    assert [(each.number, each.requests) for each in one.turns] == [(0, 3), (1, 1)]
    assert [(each.number, each.requests, each.ttft.mean) for each in one.depths] == [
        (0, 3, pytest.approx((30 + 9 + 29) / 3)), (1, 1, pytest.approx(39.0))
    ]  # fmt: skip
    assert one.turns[0].cached_share == pytest.approx(16 / 40)


def test_a_block_can_hit_when_its_first_token_had_come(run: Any) -> None:
    """b0 is sent at 51 ms, when a0, which has its blocks, had its first token; c0 knows one block, a1 two."""
    plan = Plan.read_record(run.directory / "plan")
    counted = np.flatnonzero(run.rows["status"] == layout.OK)
    hits = block_hits(plan, run.rows, counted, 16)
    assert hits is not None and hits.requests == 4
    tokens = 32 + 32 + 48 + 16
    assert hits.ideal_at_send == pytest.approx((0 + 16 + 32 + 0) / tokens)
    assert hits.ideal == pytest.approx((0 + 16 + 32 + 0) / tokens) and hits.achieved == pytest.approx(16 / 40)
    early = run.rows.copy()
    early["t_any"][0] = ZERO + 200 * MS  # a0 still waits for its first token when c0 is sent
    late = block_hits(plan, early, counted, 16)
    assert late is not None and late.ideal_at_send == pytest.approx((0 + 0 + 32 + 0) / tokens)


def test_a_run_without_sessions_has_no_figures_of_them(run: Any, tmp_path: Path) -> None:
    for name in ("calls.npy", "edges.npy", "blocks.npy"):
        (tmp_path / "plan" / name).unlink()
    assert found(run) is None
