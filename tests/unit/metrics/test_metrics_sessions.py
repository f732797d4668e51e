"""Sessions: figures of three made-up ones, computed by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.metrics.request.action import ttfa
from fastllmload.metrics.request.durations import NULL
from fastllmload.metrics.run.block_hits import block_hits
from fastllmload.metrics.run.sent_calls import PARTS, critical_path, sent_calls
from fastllmload.metrics.run.sessions import first_actions, group, sessions_block
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
    return sessions_block(run, Window(ZERO, ZERO + 500 * MS, False), chosen, good)[0]


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
    window, measured = Window(ZERO, ZERO + 500 * MS, False), np.ones(len(run.rows), np.bool_)
    chosen = Populations(measured, measured, run.rows["status"] == layout.OK)
    one = sessions_block(run, window, chosen, measured)[1]
    assert one["session_makespan"].p50 == pytest.approx(399.0) and one["sessions_s"].value == 2.0
    assert one["sessions_s"].ci95 is None and one["sessions_s"].why_not_estimable("value").needed is None
    assert sessions_block(run, None, chosen, measured) == (None, {})


def test_what_cannot_be_estimated_counts_sessions_not_requests(run: Any) -> None:
    """One of three sessions is completed. Of depth 0 there are four calls of three sessions, of depth 1 one call of one."""
    one = found(run)
    of_depths = [(group.requests, group.ttft.why_not_estimable("mean")) for group in one.depths]
    for why, sessions in (
        (one.makespan.why_not_estimable("p50"), 1), (one.calls.why_not_estimable("mean"), 1),
        (of_depths[0][1], 2), (of_depths[1][1], 1), (one.turns[0].ttft.why_not_estimable("p50"), 2),
    ):  # fmt: skip
        assert why.reason.split()[:2] == [str(sessions), "sessions"] and why.of == "sessions"
        assert why.needed == why.sessions_needed == 80 and why.requests_needed is None
    assert [many for many, _ in of_depths] == [3, 1]


def test_an_interval_of_calls_is_one_of_sessions() -> None:
    """Of 400 sessions with ten equal calls each, the mean is as uncertain as that of 400 values, not of 4,000."""
    waits = np.random.default_rng(7).exponential(100 * MS, 400).round().astype(np.int64)
    rows = np.zeros(4000, layout.REQUEST)
    rows["status"], rows["t_submit"] = layout.OK, 1
    rows["t_first"] = rows["t_any"] = np.repeat(waits, 10) + 1
    many = group(rows, np.repeat(np.arange(400), 10), 0).ttft
    once = group(rows[::10], np.arange(400), 0).ttft
    assert many.n == 4000 and once.n == 400
    assert many.interval("mean") == pytest.approx(once.interval("mean"))


def test_times_of_a_completed_session(run: Any) -> None:
    one = found(run)
    assert one.makespan.mean == pytest.approx(399.0) and one.makespan.n == 1
    assert one.tool_time.mean == one.tool_time_all.mean == 20.0
    assert one.model_time.mean == pytest.approx(99 + 189 + 79)
    assert one.stretch.mean == pytest.approx(399 / (200 + 10 + 390 + 20 + 180))
    assert one.agents.mean == 2 and one.depth.mean == 1 and one.calls.mean == 3 and one.in_flight.mean == 1
    assert one.makespan_with_unfinished["p50"] == pytest.approx(399.0)
    assert one.makespan_with_unfinished["p99"] == pytest.approx(399.0)


@pytest.mark.parametrize("timing", ["dependent", "recorded"])
@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_a_server_as_fast_as_the_recorded_one_has_a_stretch_of_one(tmp_path: Path, timing: str, speed: float) -> None:
    """a0 of 200 ms, c0 of 390, a1 of 180, with 10 and 20 ms between: 800 ms at the recorded speed, 777.5 ms at four times
    that. When each call has its own instant, c0 ends last of all at that speed: 210 / 4 + 390 = 442.5 ms.
    """
    workload = Workload(name="graph", tokenizer="none", trace_speed=speed, trace_timing=timing)
    number = 7 if timing == "recorded" else 3
    settings = RunSettings(load=Load(num_requests=number), workload=workload)
    loaded = LoadedWorkload(graph=trace())
    plan = build_plan(
        settings, phase="measure", endpoint=ENDPOINTS["openai-chat"], model="m", out_dir=tmp_path / "b", loaded=loaded
    )
    plan.write_record(tmp_path / "plan")
    assert plan.calls is not None
    mine = [plan.calls["service_s"].tolist().index(each) for each in (0.2, 0.39, 0.18)]
    waits = (0, 210, 620) if timing == "recorded" else (0, 200 * speed + 10, 590 * speed + 30)
    begins = [wait / speed for wait in waits]
    rows = np.concatenate([
        row(one, 0, due, due + 1, due + service, t_submit=ZERO + due * MS)
        for one, due, service in zip(mine, begins, (200, 390, 180), strict=True)
    ])  # fmt: skip
    rows["input_target"] = 40
    config = RunSettings(workload=workload)
    run = SimpleNamespace(rows=rows, directory=tmp_path, document=SimpleNamespace(plan=plan.document, config=config))
    measured = np.ones(3, np.bool_)
    one = sessions_block(run, Window(ZERO, ZERO + 900 * MS, False), Populations(measured, measured, measured), None)[0]
    assert one is not None and one.completed == 1
    wanted = {("dependent", 1.0): 800, ("dependent", 4.0): 777.5, ("recorded", 1.0): 800, ("recorded", 4.0): 442.5}
    assert one.makespan.mean == pytest.approx(wanted[timing, speed])
    assert one.stretch.mean == pytest.approx(1.0)


def with_events(run: Any, *events: tuple[int, str, float]) -> Any:
    """*run* with events of (row, kind, ms)."""
    found = np.zeros(len(events), layout.EVENT)
    found["row"], found["kind"] = [one[0] for one in events], [layout.EVENT_NAMES.index(one[1]) for one in events]
    found["t_ns"] = [ZERO + round(one[2] * MS) for one in events]
    for row_number in {one[0] for one in events if one[1] == "tool"}:
        run.rows["flags"][row_number] |= layout.FLAG_TOOL
    values = {**vars(run), "events": found, "event_kind": found["kind"], "event_t": found["t_ns"]}
    return SimpleNamespace(**values)


def test_a_session_acts_when_a_reply_that_others_follow_ends(run: Any) -> None:
    """a0 is sent at 1 ms and ends at 100 ms, when the agent starts another one: no reply has called a tool before."""
    assert found(run).first_action.mean == pytest.approx(99.0)


def test_a_session_acts_with_its_first_tool_call(run: Any) -> None:
    """The first piece of a call comes at 60 ms, after some text of the same reply; later ones do not count."""
    made = with_events(run, (0, "content", 31), (0, "tool", 60), (0, "tool", 80), (1, "tool", 150))
    assert found(made).first_action.mean == pytest.approx(59.0)
    assert found(made, np.ones(6, np.bool_)).objectives == ()
    for limit, met in ((59.0, 1), (58.9, 0)):
        made.document.config = RunSettings(output=Output(goodput=(("session_first_action", limit),)))
        assert found(made).met == met


def test_without_its_events_a_tool_call_has_no_instant(run: Any) -> None:
    run.rows["flags"][2] |= layout.FLAG_TOOL
    assert found(with_events(run)).first_action.n == 0


def test_a_session_that_nothing_follows_acts_with_its_answer(run: Any) -> None:
    """b0 alone, of which nothing is left out here: its answer's first token at 60 ms is 9 ms after it was sent."""
    run.rows = run.rows[3:4].copy()
    run.rows["status"], run.rows["t_first"] = layout.OK, ZERO + 60 * MS
    calls = sent_calls(run, np.ones(1, np.bool_))
    assert calls is not None
    assert first_actions(calls, np.zeros(1, np.int64)).tolist() == [9 * MS]


def test_the_first_action_of_a_request_is_its_first_tool_call_or_its_answer(run: Any) -> None:
    """Sent at 1, 111, 321, 51, 101 and 301 ms; the last one has no answer token, and the fifth's events are lost."""
    made = with_events(run, (0, "content", 31), (0, "tool", 60), (1, "tool", 150))
    made.rows["flags"][4] |= layout.FLAG_TOOL
    values = ttfa(made, np.arange(6))
    assert values[[0, 1, 2]].tolist() == [59 * MS, 39 * MS, 9 * MS]
    assert (values[3:] == NULL).all()


def test_the_critical_path_is_walked_back_from_the_last_call(run: Any) -> None:
    calls = sent_calls(run, np.ones(len(run.rows), np.bool_))
    assert calls is not None and calls.cause.tolist() == [-1, 0, 1, -1, -1, 4]
    parts = dict(zip(PARTS, (value / MS for value in critical_path(calls, 0)), strict=True))
    assert parts == {
        "prefill": 30 + 39 + 9, "decode": 69 + 150 + 70, "tool": 20, "agent": 10, "user": 0, "unknown": 0, "client": 2
    }  # fmt: skip
    assert sum(parts.values()) == found(run).makespan.mean == 399
    shares = found(run).critical_path
    assert sum(getattr(shares, name) for name in PARTS) == pytest.approx(1.0)


@pytest.mark.parametrize(("after", "parts"), [(-90, {"client": 2}), (40, {"client": 2, "unknown": 39})])
def test_the_critical_path_begins_with_the_first_send(run: Any, after: int, parts: dict[str, float]) -> None:
    """A first call that was due 90 ms before its send is not late within the session; one that was due 39 ms after another
    call of the session was sent has waited for that.
    """
    run.rows["t_sched"][0] += min(after, 0) * MS
    if after > 0:
        run.rows["t_submit"][1] = run.rows["t_submit"][0] - after * MS
        run.rows["t_sched"][1] = run.rows["t_dispatch"][1] = run.rows["t_submit"][1] - MS
    calls = sent_calls(run, np.ones(len(run.rows), np.bool_))
    assert calls is not None
    if after > 0:
        calls.cause[2] = 0
        calls.wait_ns[2] = run.rows["t_sched"][2] - run.rows["t_end"][0]
    path = dict(zip(PARTS, (value / MS for value in critical_path(calls, 0)), strict=True))
    assert {name: path[name] for name in parts} == parts
    begin, end = int(calls.begin[0]), int(run.rows["t_end"][2])
    assert sum(path.values()) == (end - begin) / MS


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
