"""Sessions that are under way at time zero: which, how far, what is left of them, and what the warm-up sends."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import InputError, InvalidValue
from fastllmload.plan.build import build_plan
from fastllmload.plan.plan import EDGE_START, Plan
from fastllmload.plan.prompts.load import LoadedWorkload
from fastllmload.settings import Client, Load, RunSettings, ServerControl, Workload
from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.underway import AFTER_ALL_NS, Start, ages, read_start, under_way

MS = 1_000_000


def line(name: str, at_ms: int, calls: int, service_ms: int, wait_ms: int) -> list[TracedCall]:
    """A session of one agent, whose prompts grow by a block a call."""
    found, start = [], at_ms
    for number in range(calls):
        found.append(
            TracedCall(
                f"{name}{number}",
                "line 1",
                chain=name,
                input=16 * (number + 1),
                output=3,
                after=[After(f"{name}{number - 1}")] if number else [],
                wait_ns=wait_ms * MS if number else 0,
                start_ns=start * MS,
                end_ns=(start + service_ms) * MS,
                blocks=np.array([0, *(ord(name) * 1000 + one for one in range(1, number + 1))]),
            )
        )
        start += service_ms + wait_ms
    return found


def lines(*shapes: tuple[int, int, int]) -> CallGraph:
    """Sessions of (calls, service ms, wait ms)."""
    calls = [one for number, shape in enumerate(shapes) for one in line(chr(97 + number), number, *shape)]
    return build_graph("test", "0" * 64, calls, block_tokens=16)


def planned(path: Path, graph: CallGraph, phase: str = "measure", **load: object) -> Plan:
    start, control = str(load.pop("start", "stationary")), load.pop("control", ServerControl())
    settings = RunSettings(
        load=Load(**{"concurrency": 3, "num_requests": 6, **load}),  # type: ignore[arg-type]
        workload=Workload(name="graph", session_start=start),
        client=Client(seed=5),
        control=control,  # type: ignore[arg-type]
    )
    return build_plan(
        settings, phase=phase, endpoint=ENDPOINTS["openai-chat"], model="m", out_dir=path,
        loaded=LoadedWorkload(graph=graph),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "later", "share:", "share:1", "share:0.5,0.2", "share:0,1", "share:-1,0.5", "share:nan,1"]
)
def test_other_starts_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a start of sessions"):
        read_start(text)


def test_a_stationary_start_is_what_an_observer_finds_at_any_time() -> None:
    """Inspection paradox: the mean length of the session found is E[L^2] / E[L], and its mean age half of that."""
    length = np.array([1, 2, 3, 10], np.int64) * 1_000_000
    chosen, age = ages(length, Start("stationary"), 20_000, random.Random(1))
    found = float((length**2).sum() / length.sum())
    assert length[chosen].mean() == pytest.approx(found, rel=1e-3)
    assert age.mean() == pytest.approx(found / 2, rel=1e-3)
    assert (age >= 0).all() and (age < length[chosen]).all()
    assert np.bincount(chosen).tolist() == pytest.approx([1250, 2500, 3750, 12500], abs=1)


def test_a_share_is_drawn_within_its_bounds_from_the_sessions_in_their_order() -> None:
    length = np.array([100, 1000], np.int64)
    chosen, age = ages(length, Start("share", 0.25, 0.75), 5, random.Random(1))
    assert chosen.tolist() == [0, 1, 0, 1, 0]
    assert ((age >= length[chosen] // 4) & (age <= length[chosen] * 3 // 4)).all()


def test_calls_are_due_when_they_would_have_been() -> None:
    """One session of 4 calls, 10 ms each with waits of 20 ms, at half its length of 100 ms: calls of 0 and 30 ms are past,
    those of 60 and 90 ms are due after 10 and 40 ms.
    """
    graph = lines((4, 10, 20))
    found = under_way(graph, Start("share", 0.5, 0.5), 1, 2, 1.0, "1")
    assert found.live == 1 and found.graph.sessions == 2
    assert found.due_ns[:4].tolist() == [-50 * MS, -20 * MS, 10 * MS, 40 * MS]
    assert found.latest.tolist() == [1]
    assert (found.due_ns[4:] >= AFTER_ALL_NS).all()


def test_waits_take_their_part_of_the_time_at_another_speed() -> None:
    found = under_way(lines((4, 10, 20)), Start("share", 0.5, 0.5), 1, 1, 0.5, "1")
    assert found.due_ns.tolist() == [-35 * MS, -15 * MS, 5 * MS, 25 * MS]


def test_a_session_in_its_last_call_leaves_its_slot_when_that_would_have_ended() -> None:
    """At 95 of 100 ms the last call of the first session is being answered: the slot begins another one after 5 ms."""
    graph = lines((4, 10, 20), (2, 10, 20))
    found = under_way(graph, Start("share", 0.95, 0.95), 1, 1, 1.0, "1")
    assert found.live == 0 and found.graph.sessions == 1
    assert found.due_ns.tolist() == [5 * MS, 35 * MS, 65 * MS, 95 * MS]  # the trace's first, which was not sent yet


def test_every_session_is_sent_once_a_round_whether_entire_or_not() -> None:
    graph = lines((3, 10, 20), (3, 10, 20), (3, 10, 20), (3, 10, 20))
    found = under_way(graph, Start("stationary"), 2, 8, 1.0, "1")
    names = [name[0] for name in found.graph.session_id]
    assert sorted(names[:2] + names[2:4]) == ["a", "b", "c", "d"] and sorted(names[4:]) == ["a", "b", "c", "d"]


def test_the_plan_continues_sessions_by_edges_from_their_first_call(tmp_path: Path) -> None:
    """a waits for x (past) and y (left): the wait after x is kept as one from the instant of the first call."""
    calls = [
        TracedCall("r", "1", chain="r", input=10, output=3, start_ns=0, end_ns=10 * MS),
        TracedCall("x", "2", chain="x", input=10, output=3, after=[After("r")], start_ns=10 * MS, end_ns=200 * MS),
        TracedCall("y", "3", chain="y", input=10, output=3, after=[After("r")], wait_ns=140 * MS, start_ns=150 * MS,
                   end_ns=160 * MS),
        TracedCall("a", "4", chain="r", input=10, output=3, after=[After("x"), After("y")], wait_ns=100 * MS,
                   start_ns=300 * MS, end_ns=310 * MS),
    ]  # fmt: skip
    graph = build_graph("test", "0" * 64, calls, block_tokens=16)
    share = 100 / 310
    plan = planned(tmp_path / "p", graph, start=f"share:{share},{share}", concurrency=1, num_requests=1)
    assert plan.turns is not None and plan.edges is not None
    assert plan.requests == 2  # y at 50 ms, a 100 ms after the later of y's end and 200 - 100 = 100 ms
    assert plan.turns["think_ns"].tolist() == pytest.approx([50 * MS, 100 * MS], abs=10)
    edges = sorted((int(e["flags"]), int(e["wait_ns"])) for e in plan.edges)
    assert edges[0] == (0, 0) and edges[1][0] == EDGE_START
    assert edges[1][1] == pytest.approx(50 * MS, abs=10)  # x ended 100 ms after time zero, 50 after y is due
    assert plan.turns["waits_for"].tolist() == [0, 2]


def test_the_warm_up_sends_the_prompts_that_the_rest_continues(tmp_path: Path) -> None:
    """Each prompt of the measured phase begins with one of the warm-up, byte for byte, where its session was under way."""
    graph = lines((6, 10, 20), (6, 10, 20), (6, 10, 20), (6, 10, 20))
    measured = planned(tmp_path / "m", graph)
    warmup = planned(tmp_path / "w", graph, "warmup", warmup_requests=7)
    assert warmup.requests == 7 and warmup.turns is not None and (warmup.turns["waits_for"] == 0).all()
    assert measured.calls is not None

    def text(plan: Plan, request: int) -> bytes:
        body = plan.body(request)
        begin = body.index(b'"content":"') + 11
        return body[begin : body.index(b'"', begin)]

    seen = {text(warmup, one) for one in range(4, 7)}
    under = [one for one in measured.starts.tolist() if measured.calls["turn"][one] > 0]
    assert len(under) == 3 == len(seen)
    for one in under:
        assert any(text(measured, one).startswith(before) for before in seen)
    facts = measured.description.workload.sessions
    assert facts is not None and facts.under_way == 3 and facts.start == "stationary"
    assert facts.calls == measured.requests


def test_ideal_hits_count_what_the_warm_up_has_sent(tmp_path: Path) -> None:
    """A call finds all blocks but its last one, whether the call before it was sent in the warm-up or in the run."""
    graph = lines((6, 10, 20), (6, 10, 20))
    warm = planned(tmp_path / "m", graph, concurrency=2, num_requests=2)
    cold = planned(tmp_path / "c", graph, concurrency=2, num_requests=2, warmup_requests=0)
    emptied = planned(
        tmp_path / "e", graph, concurrency=2, num_requests=2, control=ServerControl(between=("reset-cache",))
    )
    for plan, primed in ((warm, True), (cold, False), (emptied, False)):
        assert plan.calls is not None
        own = plan.input_tokens - 16
        first = plan.starts
        later = np.setdiff1d(np.arange(plan.requests), first)
        assert (plan.calls["ideal_tokens"][later] == own[later]).all()
        assert (plan.calls["ideal_tokens"][first] == (own[first] if primed else [0, 16])).all()


def test_a_trace_without_times_has_no_instant_within_a_session() -> None:
    calls = [TracedCall("a", "1", chain="a", input=10, output=3, start_ns=0)]
    with pytest.raises(InputError, match="neither recorded service times nor waits"):
        under_way(build_graph("test", "0" * 64, calls, block_tokens=16), Start("stationary"), 1, 1, 1.0, "1")


def test_calls_that_continue_conversations_are_refused(tmp_path: Path) -> None:
    calls = [
        TracedCall("a", "1", chain="a", input=10, output=3, start_ns=0, end_ns=MS),
        TracedCall(
            "b", "2", chain="a", input=10, output=3, after=[After("a")], context="a", start_ns=2 * MS, end_ns=3 * MS
        ),
    ]
    with pytest.raises(InputError, match="call b of the trace continues a conversation"):
        planned(tmp_path / "p", build_graph("test", "0" * 64, calls, block_tokens=16))


@pytest.mark.parametrize("start", ["fresh", "stationary"])
def test_a_pool_has_rounds_of_other_text_before_it_is_repeated(tmp_path: Path, start: str) -> None:
    """12 calls a round of the trace: 167 rounds are 2,000 calls; a block of one round is in no other."""
    graph = lines((6, 10, 20), (6, 10, 20))
    plan = planned(tmp_path / "p", graph, start=start, concurrency=2, num_requests=None, duration=60.0)
    assert plan.cycles and plan.calls is not None and plan.blocks is not None
    assert 2_000 <= plan.requests <= 2_000 + 3 * 12
    ends = np.cumsum(plan.calls["blocks"].astype(np.int64))
    own = np.split(np.asarray(plan.blocks[: ends[-1]]), ends[:-1])
    opened = {int(blocks[0]) for blocks in own}
    assert 167 <= len(opened) <= 170
