"""Sessions that are under way at time zero: which, how far, what is left of them, and what the warm-up sends."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from refusals import raises_code

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import InputError, InvalidValue
from fastllmload.plan.archive import load_plan, save_plan
from fastllmload.plan.build import build_plan
from fastllmload.plan.plan import EDGE_START, SEEN, Plan
from fastllmload.plan.prompts.load import LoadedWorkload
from fastllmload.plan.seen import build_seen, repeat_seen
from fastllmload.settings import Client, Load, RunSettings, ServerControl, Workload
from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.underway import (
    AFTER_ALL_NS,
    Start,
    ages,
    arrived_before,
    arriving,
    read_start,
    turns_over,
    under_way,
)

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


def asked(**load: object) -> RunSettings:
    start, control = str(load.pop("start", "stationary")), load.pop("control", ServerControl())
    return RunSettings(
        load=Load(**{"concurrency": 3, "num_requests": 6, **load}),  # type: ignore[arg-type]
        workload=Workload(name="graph", session_start=start),
        client=Client(seed=5),
        control=control,  # type: ignore[arg-type]
    )


def planned(path: Path, graph: CallGraph, phase: str = "measure", **load: object) -> Plan:
    endpoint = ENDPOINTS[str(load.pop("protocol", "openai-chat"))]
    settings = asked(**load)
    return build_plan(
        settings, phase=phase, endpoint=endpoint, model="m", out_dir=path,
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


@pytest.mark.parametrize("protocol", ["openai-chat", "kserve-grpc"])
def test_a_saved_plan_has_what_its_warm_up_sends(tmp_path: Path, protocol: str) -> None:
    """From the file it is warmed up with the bodies that it would have had without one, as often as is asked for then."""
    graph, load = lines(*((calls, 100, 200) for calls in (12, 30, 8, 11))), {"concurrency": None, "rate": 5.0}
    measured = planned(tmp_path / "m", graph, protocol=protocol, **load, warmup_requests=3)
    warmup = planned(tmp_path / "w", graph, "warmup", protocol=protocol, **load, warmup_requests=50)
    build_seen(asked(**load), ENDPOINTS[protocol], measured, LoadedWorkload(graph=graph))
    save_plan(measured, tmp_path / "p.plan")
    loaded = load_plan(tmp_path / "p.plan", tmp_path / "loaded")
    assert loaded.digest == measured.digest
    again = repeat_seen(asked(**load, warmup_requests=50), loaded, tmp_path / "again", "p.plan")
    assert again is not None and again.requests == warmup.requests == 50
    assert [again.body(one) for one in range(50)] == [warmup.body(one) for one in range(50)]
    assert again.t_sched is not None and warmup.t_sched is not None and (again.t_sched == warmup.t_sched).all()
    assert len({again.body(one) for one in range(50)}) == len(loaded.under_way) < 50
    with raises_code("plan-mismatch", "p.plan", "--warmup 0"):
        repeat_seen(asked(**load, warmup_requests=0), loaded, tmp_path / "none", "p.plan")
    damaged = loaded.directory / SEEN / "bodies.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    save_plan(loaded, tmp_path / "d.plan")
    with raises_code("plan-changed", "bodies.bin"):
        load_plan(tmp_path / "d.plan", tmp_path / "other")


def test_a_plan_whose_warm_up_sends_nothing_of_its_sessions_is_saved_alone(tmp_path: Path) -> None:
    graph, load = lines((12, 100, 200)), {"concurrency": None, "rate": 5.0}
    for number, more in enumerate(({"warmup_requests": 0}, {"start": "fresh"})):
        plan = planned(tmp_path / str(number), graph, **load, **more)
        build_seen(asked(**load, **more), ENDPOINTS["openai-chat"], plan, LoadedWorkload(graph=graph))
        assert not (plan.directory / SEEN).exists()
        assert repeat_seen(asked(**load), plan, tmp_path / "none", "p.plan") is None


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


def test_an_open_loop_begins_as_an_endless_one_is_at_any_time() -> None:
    """By 600 seeds, against a long run of the same arrivals: 8 sessions/s of 3.19 s on average are 25.5 at once (Little's
    law), as widely spread, and as old as lengths chosen in proportion to themselves are.
    """
    calls = (1, 2, 5, 12, 3, 30, 8, 1, 40, 11)
    graph, length = lines(*((many, 100, 200) for many in calls)), np.array(calls) * 0.3 - 0.2
    many, ages_s = [], []
    for seed in range(600):
        found = arriving(graph, choose_arrivals("poisson", 8.0), 8.0, np.empty(0, np.int64), 1.0, str(seed))
        many.append(found.live + found.ending)
        ages_s += (-found.graph.start_ns / 1e9).tolist()
        last = np.maximum.reduceat(found.due_ns, found.graph.first_call[:-1])
        assert (found.graph.start_ns < 0).all() and (last >= 0).all()
    begins = np.cumsum(np.random.default_rng(1).exponential(1 / 8, 80_000))
    ends = begins + length[np.arange(80_000) % 10]
    seen = [int(((begins <= at) & (at < ends)).sum()) for at in np.arange(20.0, 9_000.0, 15.0)]
    assert np.mean(many) == pytest.approx(8 * 3.19, rel=0.03)
    assert np.std(many) == pytest.approx(np.std(seen), rel=0.15)
    waiting = length - 0.1  # until its last call is due a session has calls left
    assert np.mean(ages_s) == pytest.approx((waiting**2).mean() / 2 / waiting.mean(), rel=0.03)


def test_arrivals_before_time_zero_are_those_of_the_same_process() -> None:
    stream = random.Random(1)
    constant = arrived_before(choose_arrivals("constant", 4.0), 4.0, 2_000 * MS, stream)
    assert constant.tolist() == [-2_000 * MS + 250 * MS * one for one in range(8)]
    bursts = arrived_before(choose_arrivals("onoff:1s,3s", 50.0), 50.0, 40_000 * MS, stream)
    assert (bursts % (4_000 * MS) < 1_000 * MS).all() and len(bursts) == pytest.approx(2_000, rel=0.1)
    assert (np.diff(bursts) >= 0).all() and bursts[-1] < -2_999 * MS


def test_sessions_arrive_at_the_instants_of_a_fresh_start_and_others_are_under_way(tmp_path: Path) -> None:
    graph = lines(*((calls, 100, 200) for calls in (12, 30, 8, 11)))
    load = {"concurrency": None, "rate": 5.0, "num_requests": 20}
    fresh = planned(tmp_path / "f", graph, start="fresh", **load)
    plan = planned(tmp_path / "p", graph, **load)
    assert (
        fresh.t_start is not None and plan.t_start is not None and plan.t_sched is not None and plan.turns is not None
    )
    assert (np.diff(plan.t_start) >= 0).all() and (plan.turns["think_ns"][plan.starts] == 0).all()
    assert (plan.t_sched[plan.arrivals] == fresh.t_start).all() and len(plan.arrivals) == 20
    facts = plan.description.workload.sessions
    assert facts is not None and facts.under_way == len(plan.under_way) == len(plan.starts) - 20 > 0
    assert fresh.under_way.tolist() == [] and (fresh.arrivals == fresh.starts).all()
    assert (plan.t_sched[plan.under_way] < 300 * MS).all()  # a call every 300 ms


def test_a_share_of_their_length_does_not_go_with_arrivals(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        planned(tmp_path / "p", lines((12, 100, 200)), start="share:0.2,0.5", concurrency=None, rate=5.0)
    assert refused.value.code == "option-not-applicable"


def test_more_arrivals_than_a_plan_holds_are_refused() -> None:
    with pytest.raises(InputError) as refused:
        arrived_before(choose_arrivals("poisson", 1e6), 1e6, 2_000 * MS, random.Random(1))
    assert refused.value.code == "plan-too-large"


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


def test_a_slot_begins_with_any_turn_of_any_conversation_alike() -> None:
    """Over many seeds each of the turns is met equally often, so long conversations are in proportion to their turns."""
    turns = np.array([1, 5, 2, 12])
    met = np.zeros((4, 12), np.int64)
    for seed in range(400):
        chosen, over = turns_over(turns, read_start("stationary"), 5, str(seed))
        assert (over < turns[chosen]).all()
        np.add.at(met, (chosen, over), 1)
    expected = 400 * 5 / turns.sum()
    every = np.concatenate([met[one, :many] for one, many in enumerate(turns.tolist())])
    assert met.sum() == 2000 and (abs(every - expected) < 4 * expected**0.5).all()
    chosen, over = turns_over(turns, read_start("share:0.5,0.9"), 4, "1")
    assert (
        chosen.tolist() == [0, 1, 2, 3] and over[0] == 0 and 2 <= over[1] <= 4 and over[2] == 1 and 6 <= over[3] <= 10
    )
