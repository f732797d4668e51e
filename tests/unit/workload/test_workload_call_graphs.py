"""Graphs of calls: order, hit rates against plain simulations, and the own format, for graphs that hypothesis makes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import SCOPES, CallGraph, WaitKind
from fastllmload.workload.paths import critical_paths, due_and_end, session_shapes
from fastllmload.workload.sharing.ideal import hit_order, ideal_hits
from fastllmload.workload.traces.call_lines import write_graph
from fastllmload.workload.traces.formats import read_call_graph
from fastllmload.workload.traces.recorded import RecordedAgent, RecordedSpans, link

SIZE = 16


@st.composite
def made_calls(draw: st.DrawFn, blocks: bool = True) -> list[TracedCall]:
    """Up to 14 calls of a few agents and sessions, in any order of the file; prompts are paths of a tree of blocks."""
    count = draw(st.integers(1, 14))
    agents = [f"agent{number}" for number in range(draw(st.integers(1, 4)))]
    tree = [-1]  # parent of each node; the root has none
    calls = []
    for number in range(count):
        chosen = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        after = [After(f"c{one}", draw(st.integers(0, 3)), draw(st.booleans())) for one in chosen]
        call = TracedCall(
            f"c{number}", f"trace line {number + 1}", draw(st.sampled_from(agents)), 1, draw(st.integers(1, 9)), after,
            session=draw(st.sampled_from([None, "one", "two"])), wait_ns=draw(st.integers(0, 5)),
            wait_kind=draw(st.sampled_from(WaitKind)), background=draw(st.sampled_from([None, True, False])),
        )  # fmt: skip
        call.due_ns = None if after else draw(st.integers(0, 20))
        if blocks:
            path: list[int] = []
            node = 0
            for _ in range(draw(st.integers(0, 5))):
                children = [one for one, of in enumerate(tree) if of == node]
                fresh = draw(st.integers(0, len(children)))
                if fresh == len(children):
                    tree.append(node)
                    children.append(len(tree) - 1)
                node = children[fresh]
                path.append(node)
            call.blocks = np.array(path, np.int64) * 3 + 5
            call.input = len(path) * SIZE + draw(st.integers(1, SIZE - 1))
        else:
            call.input = draw(st.integers(1, 99))
        calls.append(call)
    return draw(st.permutations(calls))


def built(calls: Sequence[TracedCall], scope: str = "file") -> CallGraph:
    return build_graph("made", "", calls, block_tokens=SIZE, scope=scope, left_out={"x": 1}, notes=["A note."])


@given(made_calls())
@settings(deadline=None)
def test_sessions_are_consecutive_and_predecessors_come_first(calls: list[TracedCall]) -> None:
    graph = built(calls)
    session, by_id = graph.session_of(), {call.id: call for call in calls}
    assert sorted(graph.call_id) == sorted(by_id) and graph.first_call[-1] == len(graph)
    assert (graph.edge_from < graph.edge_to).all() and (session[graph.edge_from] == session[graph.edge_to]).all()
    assert (np.diff(graph.start_ns) >= 0).all() and graph.start_ns[0] == 0
    pairs = list(zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True))
    assert pairs == sorted(pairs) and len(set(pairs)) == len(pairs)
    for at, name in enumerate(graph.call_id):
        stated = {one.call for one in by_id[name].after}
        found = {graph.call_id[of] for of, to in pairs if to == at}
        assert stated == found or (not stated and found == {graph.call_id[graph.first_call[session[at]]]})
        assert bool(found) == (at not in graph.first_call.tolist())
    keys = [(graph.agent[at], int(graph.turn[at])) for at in range(len(graph))]
    assert len(set(keys)) == len(keys)
    for name in set(graph.agent):
        own = [at for at in range(len(graph)) if graph.agent[at] == name]
        assert len({int(session[at]) for at in own}) == 1 and graph.turn[own].tolist() == list(range(len(own)))


@given(made_calls())
@settings(deadline=None)
def test_calls_are_in_order_of_derived_starts(calls: list[TracedCall]) -> None:
    graph = built(calls)
    due = due_and_end(graph)[0]
    for low, high in zip(graph.first_call[:-1].tolist(), graph.first_call[1:].tolist(), strict=True):
        assert due[low] == 0 and (np.diff(due[low:high]) >= 0).all()


def simulated(graph: CallGraph, scope: str, capacity: int | None) -> list[int]:
    """Hits by a tree of cached blocks from which the least recently used leaf is dropped, and nothing else."""
    session = graph.session_of()
    used: dict[tuple[object, ...], int] = {}  # path from the root, with its scope in front
    found = [0] * len(graph)
    for clock, call in enumerate(hit_order(graph).tolist()):
        group = {"file": 0, "session": int(session[call]), "chain": (int(session[call]), int(graph.chain[call]))}[scope]
        ids = graph.blocks_of(call).tolist()
        paths = [(group, *ids[: end + 1]) for end in range(len(ids))]
        found[call] = next((number for number, path in enumerate(paths) if path not in used), len(paths))
        used.update(dict.fromkeys(paths, clock))
        while capacity is not None and len(used) > capacity:
            leaves = [
                one for one in used if not any(len(other) > len(one) and other[: len(one)] == one for other in used)
            ]
            oldest = min(leaves, key=lambda one: (used[one], -len(one)))
            del used[oldest]
    return found


@given(made_calls(), st.integers(0, 4))
def test_no_call_waits_longer_than_its_kind_may(calls: list[TracedCall], most: int) -> None:
    """Each call is due as before, or *most* after what it waited for; edges from the instant of another call are kept."""
    graph = built(calls)
    cut = graph.with_waits_at_most(dict.fromkeys(WaitKind, most))
    ends = ~graph.edge_from_start
    total = (cut.edge_wait_ns + cut.wait_ns[cut.edge_to])[ends]
    assert (total == np.minimum((graph.edge_wait_ns + graph.wait_ns[graph.edge_to])[ends], most)).all()
    assert (cut.edge_wait_ns[~ends] == graph.edge_wait_ns[~ends]).all() and (cut.edge_wait_ns >= 0).all()
    assert (due_and_end(cut)[0] <= due_and_end(graph)[0]).all()


@given(made_calls(), st.sampled_from(SCOPES), st.none() | st.integers(0, 8))
@settings(deadline=None)
def test_hits_are_those_of_a_tree_of_blocks(calls: list[TracedCall], scope: str, capacity: int | None) -> None:
    graph = built(calls)
    found = ideal_hits(graph, scope, capacity)
    if found is None:
        assert graph.block is None
        return
    assert found.hit_blocks.tolist() == simulated(graph, scope, capacity)
    assert (found.hit_tokens <= found.tokens).all() and (found.whole_tokens <= found.hit_tokens).all()
    if capacity is None and scope == "file" and graph.block is not None:
        assert found.hit_blocks.sum() == found.blocks.sum() - len(np.unique(graph.block))


@given(made_calls(), st.sampled_from(SCOPES))
@settings(deadline=None)
def test_ids_are_apart_between_scopes(calls: list[TracedCall], scope: str) -> None:
    graph = built(calls, scope)
    of_file = built(calls)
    if graph.block is None or of_file.block is None:
        return
    assert np.array_equal(np.unique(graph.block), np.arange(int(graph.block.max(initial=-1)) + 1))
    found, expected = ideal_hits(graph), ideal_hits(of_file, scope)
    assert found is not None and expected is not None
    assert found.hit_blocks.tolist() == expected.hit_blocks.tolist()


def same(one: CallGraph, two: CallGraph) -> None:
    """All fields but the digest of the file."""
    for name in (field.name for field in fields(CallGraph) if field.name != "sha256"):
        first, second = getattr(one, name), getattr(two, name)
        equal = np.array_equal(first, second) if isinstance(first, np.ndarray) else first == second
        assert equal, (name, first, second)


@given(made_calls(), st.sampled_from(SCOPES))
@settings(deadline=None)
def test_the_own_format_is_read_back_unchanged(calls: list[TracedCall], scope: str) -> None:
    graph = built(calls, scope)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.jsonl"
        write_graph(graph, path)
        same(graph, read_call_graph("auto", path))


@given(made_calls(blocks=False), st.integers(0, 20))
@settings(deadline=None)
def test_a_critical_path_is_the_longest_one(calls: list[TracedCall], service: int) -> None:
    """Its parts add up, and no call in the foreground ends later."""
    graph = built(calls)
    due, end = due_and_end(graph, service)
    paths, shapes = critical_paths(graph, service), session_shapes(graph, service)
    for number, (path, low, high) in enumerate(
        zip(paths, graph.first_call[:-1].tolist(), graph.first_call[1:].tolist(), strict=True)
    ):
        foreground = [int(end[at]) for at in range(low, high) if not graph.background[at]]
        assert path.calls[0] == low and path.length_ns == max(foreground) == shapes.makespan_ns[number]
        assert path.service_ns + path.wait_ns == path.length_ns and 0 <= path.tool_ns <= max(path.wait_ns, 0)
        assert shapes.tree_ns[number] == end[low:high].max() and shapes.calls[number] == high - low
    assert (end - due == service).all()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9))), st.integers(0, 25), st.integers(0, 25))
def test_time_in_tools_counts_overlaps_once(found: list[tuple[int, int]], low: int, high: int) -> None:
    spans = RecordedSpans()
    for start, length in found:
        spans.append((start, start + length))
    covered = {at for start, length in found for at in range(start, start + length)}
    assert spans.inside(low, high) == len([at for at in covered if low <= at < high])
    assert spans.within(low, high) == any(low <= start <= high and start + length <= high for start, length in found)


def test_several_roots_of_a_session_keep_their_offset() -> None:
    calls = [
        TracedCall("late", "f line 1", "b", 1, 1, session="s", due_ns=900),
        TracedCall("first", "f line 2", "a", 1, 1, session="s", due_ns=400),
    ]
    graph = build_graph("made", "", calls)
    assert graph.call_id == ["first", "late"] and graph.edge_from_start.tolist() == [True]
    assert (
        graph.edge_wait_ns.tolist() == [500] and graph.parent_chain.tolist() == [-1, -1] and not graph.background.any()
    )


def test_what_no_call_waits_for_is_in_the_background_with_all_that_it_spawned() -> None:
    calls = [
        TracedCall("m0", "f line 1", "main", 1, 1, due_ns=0),
        TracedCall("k0", "f line 2", "kid", 1, 1, [After("m0")]),
        TracedCall("g0", "f line 3", "grandchild", 1, 1, [After("k0")]),
        TracedCall("k1", "f line 4", "kid", 1, 1, [After("k0"), After("g0")]),
        TracedCall("j0", "f line 5", "joined", 1, 1, [After("m0")]),
        TracedCall("m1", "f line 6", "main", 1, 1, [After("m0"), After("j0")]),
    ]
    graph = build_graph("made", "", calls)
    assert {graph.agent[at] for at in np.flatnonzero(graph.background).tolist()} == {"kid", "grandchild"}
    assert dict(zip(graph.agent, graph.depth.tolist(), strict=True)) == {
        "main": 0,
        "kid": 1,
        "grandchild": 2,
        "joined": 1,
    }


def refused(calls: Sequence[TracedCall], code: str, *values: object) -> None:
    with raises_code(code, *values):
        build_graph("made", "", calls, block_tokens=SIZE)


def test_calls_that_form_no_graph_are_refused() -> None:
    start = TracedCall("a", "f line 1", "x", 1, 1, due_ns=0)
    refused([], "dataset-empty")
    refused([TracedCall("", "f line 1", "x", 1, 1, due_ns=0)], "dataset-field-invalid", "line 1", "call")
    refused([TracedCall("a", "f line 1", "", 1, 1, due_ns=0)], "dataset-field-invalid", "line 1", "agent")
    refused([TracedCall("a", "f line 1", "x", 1, 1 << 70, due_ns=0)], "dataset-field-invalid", "output", str(1 << 70))
    refused([TracedCall("a", "f line 1", "x", 1, 1, due_ns=0, kept=-2)], "dataset-field-invalid", "kept", "-2")
    refused([start, TracedCall("b", "f line 2", "x", 1, 1, [After("c")])], "call-graph-invalid", "line 2", "'b'", "'c'")
    refused(
        [start, TracedCall("b", "f line 2", "x", 1, 1, [After("a"), After("a")])], "call-graph-invalid", "'a' twice"
    )
    refused([start, TracedCall("b", "f line 2", "x", 1, 1, [After("b")])], "call-graph-invalid", "'b' -> 'b'")
    refused(
        [start, TracedCall("b", "f line 2", "x", 1, 1, context="q", due_ns=1)], "call-graph-invalid", "line 2", "'q'"
    )
    refused(
        [start, TracedCall("b", "f line 2", "x", 1, 1, [After("a")], wait_ns=-5)], "dataset-field-invalid", "-5e-09 s"
    )
    refused([TracedCall("b", "f line 2", "x", 0, 1, due_ns=1)], "dataset-field-invalid", "line 2", "'b'")
    refused([TracedCall("b", "f line 2", "x", 1, 1, start_ns=3, end_ns=2)], "dataset-field-invalid", "1e-09 s before")
    refused(
        [TracedCall("a", "f line 1", "x", 1, 1, start_ns=9),
         TracedCall("b", "f line 2", "x", 1, 1, [After("a")], start_ns=3)],
        "trace-unsorted", "line 2", "'b'", "'a'",
    )  # fmt: skip
    calls = [start, TracedCall("b", "f line 2", "y", 1, 1, [After("a")], parent="z"),
             TracedCall("c", "f line 3", "z", 1, 1, [After("b")], parent="y")]  # fmt: skip
    refused(calls, "call-graph-invalid", "ancestor")


def test_ids_of_one_length_and_one_place() -> None:
    def call(name: str, tokens: int, *ids: int) -> TracedCall:
        return TracedCall(name, f"f line {name}", name, tokens, 1, due_ns=0, blocks=np.array(ids))

    refused([call("1", 32, 7, 8), call("2", 20, 7, 8)], "dataset-field-invalid", "line 1", " 8 ", "16", "4")
    refused([call("1", 20, 7, 8), call("2", 21, 7, 8)], "dataset-field-invalid", "line 2", " 8 ", "5", "4")
    refused([call("1", 32, 7, 8), call("2", 32, 8, 7)], "dataset-field-invalid", "line 2", " 8 ")
    refused([call("1", 16, 7, 8)], "dataset-field-invalid", "line 1", "2 hash_ids", "16 tokens")
    huge = TracedCall("3", "f line 3", "3", 16, 1, due_ns=0, blocks=np.array([1 << 63], np.uint64))
    refused([call("1", 16, -7), huge], "dataset-field-invalid", "line 1", "negative")
    graph = build_graph("made", "", [call("1", 16, 7), huge], block_tokens=SIZE)
    assert graph.block is not None and graph.block.tolist() == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=30))
def test_a_call_follows_the_calls_that_had_ended_last(times: list[tuple[int, int]]) -> None:
    """Those that ended by its start, but before whose end no other such call began; else it is due after the one before."""
    agent = RecordedAgent("a")
    for number, (start, length) in enumerate(times):
        agent.calls.append(TracedCall(str(number), "f", "a", 1, 1, start_ns=start, end_ns=start + length))
    link([agent])
    for number, call in enumerate(agent.calls):
        at = call.start_ns or 0
        over = [(one.start_ns or 0, one.end_ns or 0) for one in agent.calls[:number] if (one.end_ns or 0) <= at]
        followed = sorted(int(one.call) for one in call.after if not one.from_start)
        if over:
            newest = max(start for start, _ in over)
            ends = [times[one][0] + times[one][1] for one in followed]
            assert max(end for _, end in over) in ends and all(end >= newest for end in ends)
            assert call.wait_ns == at - max(ends)
        else:
            assert not followed and len(call.after) == (number > 0)
