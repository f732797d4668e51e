"""Every figure that the README of the agentic samples states, from the graphs that their readers make."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import raises_code, says

from fastllmload.errors import InputError, InvalidValue
from fastllmload.workload.graph import CallGraph, WaitKind, read_longest_waits
from fastllmload.workload.paths import critical_paths, due_and_end, session_shapes
from fastllmload.workload.sharing.ideal import IdealHits, hit_order, ideal_hits
from fastllmload.workload.trace import prefix_hit_rate, read_trace
from fastllmload.workload.traces.formats import CALL_GRAPHS, detect_format, read_call_graph

SAMPLES = Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[4] / "shared" / "corpora")) / "agentic"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the agentic samples are not there (FASTLLMLOAD_CORPORA)")


def sample(file: str, **options: Any) -> CallGraph:
    return read_call_graph("auto", SAMPLES / file, **options)


def hits(graph: CallGraph, scope: str | None = None) -> IdealHits:
    found = ideal_hits(graph, scope)
    assert found is not None
    return found


def by_call(graph: CallGraph, values: Any) -> dict[str, int]:
    return dict(zip(graph.call_id, np.asarray(values).tolist(), strict=True))


def edges(graph: CallGraph) -> set[tuple[str, str]]:
    pairs = zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True)
    return {(graph.call_id[of], graph.call_id[to]) for of, to in pairs}


def seconds(values: Any) -> list[float]:
    return [one / 1e9 for one in np.asarray(values).tolist()]


FACTS = [  # file, format, sessions, agents, calls, hit blocks, blocks, hit tokens, tokens
    ("mooncake_plain.jsonl", "mooncake", 5, 5, 5, 8, 16, 3860, 6936),
    ("mooncake_sessions.jsonl", "mooncake", 2, 2, 5, 8, 15, 4096, 7444),
    ("agentic_mooncake.jsonl", "agentic-mooncake", 2, 4, 6, 10, 22, 640, 1380),
    ("weka_linear.json", "weka", 1, 1, 5, 11, 22, 704, 1450),
    ("weka_rows.jsonl", "weka", 3, 9, 19, 11 + 17 + 17, 22 + 32 + 32, 704 + 1088 + 1088, 1450 + 2048 + 2048),
    ("dynamo_request_trace.jsonl", "dynamo", 2, 3, 4, 3, 10, 192, 640),
    ("bailian.jsonl", "bailian", 2, 3, 5, 12, 22, 192, 344),
    ("tracelab.jsonl", "tracelab", 2, 3, 7, 0, 0, 2176, 3968),
    ("applied_compute.jsonl", "applied-compute", 2, 2, 4, 0, 0, 930, 1594),
    ("otel_spans.json", "otel", 1, 2, 3, None, None, None, None),
    ("otlp.json", "otel", 1, 1, 2, None, None, None, None),
    ("dag.jsonl", "dag", 2, 6, 9, None, None, None, None),
    ("sglang_agentic.json", "sglang-agentic", 2, 2, 4, None, None, None, None),
]


@pytest.mark.parametrize("facts", FACTS, ids=[one[0] for one in FACTS])
def test_counts_and_ideal_hit_rates(facts: tuple[Any, ...]) -> None:
    file, name, sessions, agents, calls, hit_blocks, blocks, hit_tokens, tokens = facts
    assert detect_format(SAMPLES / file) == name and name in CALL_GRAPHS
    graph = sample(file)
    assert (graph.name, graph.sessions, len(set(graph.agent)), len(graph)) == (name, sessions, agents, calls)
    found = ideal_hits(graph)
    if hit_tokens is None:
        assert found is None
        return
    assert found is not None
    sums = [int(one.sum()) for one in (found.hit_blocks, found.blocks, found.hit_tokens, found.tokens)]
    assert sums == [hit_blocks, blocks, hit_tokens, tokens] and found.token_rate() == hit_tokens / tokens
    if graph.block is not None:
        distinct = len(np.unique(graph.block))
        assert hit_blocks == blocks - distinct or graph.scope != "file"


HITS = [
    ("mooncake_plain.jsonl", [0, 2, 0, 3, 3]),
    ("mooncake_sessions.jsonl", {"a.0": 0, "a.1": 2, "b.0": 1, "a.2": 3, "b.1": 2}),
    ("agentic_mooncake.jsonl", {"r1": 0, "c1": 2, "d1": 1, "c2": 3, "r2": 4, "z1": 0}),
    ("weka_linear.json", [0, 3, 5, 1, 2]),
    ("dynamo_request_trace.jsonl", {"q1": 0, "k1": 1, "q2": 2, "s1": 0}),
    ("bailian.jsonl", {"100": 0, "200": 1, "101": 3, "102": 5, "103": 3}),
]


@pytest.mark.parametrize(("file", "expected"), HITS, ids=[one[0] for one in HITS])
def test_hits_of_each_call(file: str, expected: Any) -> None:
    graph = sample(file)
    found = hits(graph).hit_blocks
    assert (by_call(graph, found) if isinstance(expected, dict) else found.tolist()) == expected


def test_mooncake_plain() -> None:
    """Rows of one instant keep their order; an equal row hits with its last block too, but not as a whole block."""
    graph = sample("mooncake_plain.jsonl")
    assert seconds(graph.start_ns) == [0, 0.1, 0.1, 2.5, 2.6005] and graph.input.tolist() == [
        1300,
        1536,
        700,
        2100,
        1300,
    ]
    found = hits(graph)
    assert int(found.whole_tokens.sum()) == 3584 and found.hit_tokens.tolist() == [0, 1024, 0, 1536, 1300]
    assert hit_order(graph).tolist() == [0, 1, 2, 3, 4]


def test_mooncake_sessions_are_whole_prompts() -> None:
    graph = sample("mooncake_sessions.jsonl")
    assert graph.session_id == ["a", "b"] and seconds(graph.start_ns) == [0, 0.4]
    assert seconds(graph.wait_ns) == [0, 1.5, 0.2505, 0, 0]
    assert edges(graph) == {("a.0", "a.1"), ("a.1", "a.2"), ("b.0", "b.1")}
    assert (graph.context == -1).all() and "whole" in graph.notes[-1]
    added = sample("mooncake_sessions.jsonl", prompts="delta")
    assert by_call(added, added.context) == {"a.0": -1, "a.1": 0, "a.2": 1, "b.0": -1, "b.1": 3}
    assert by_call(added, hits(added).tokens)["a.1"] == 1024 + 100 + 1536


def test_agentic_mooncake() -> None:
    graph = sample("agentic_mooncake.jsonl")
    assert edges(graph) == {("r1", "c1"), ("r1", "d1"), ("c1", "c2"), ("r1", "r2"), ("c2", "r2"), ("d1", "r2")}
    due = by_call(graph, due_and_end(graph, 0, absolute=True)[0] // 1_000_000)
    assert due == {"r1": 0, "c1": 20, "d1": 30, "c2": 325, "r2": 335, "z1": 1000}
    path = critical_paths(graph, 0)[0]
    assert [graph.call_id[one] for one in path.calls] == ["r1", "c1", "c2", "r2"]
    assert (path.length_ns, path.wait_ns, path.tool_ns) == (335_000_000, 335_000_000, 300_000_000)
    shapes = session_shapes(graph)
    assert (shapes.fan_out.tolist(), shapes.depth.tolist()) == ([2, 0], [2, 1])
    assert graph.block_tokens == 64 and graph.blocks_of(graph.call_id.index("z1")).size == 2
    assert by_call(graph, graph.depth) == {"r1": 0, "c1": 1, "d1": 1, "c2": 1, "r2": 0, "z1": 0}


@pytest.mark.parametrize("file", ["weka_linear.json", "weka_rows.jsonl"])
def test_weka_linear(file: str) -> None:
    """The session as the format's description writes it, and as published sets do."""
    graph = sample(file)
    assert seconds(graph.wait_ns[:5]) == [0, 0.5, 26.5, 0.2, 0.3]
    service = (graph.end_recorded_ns - graph.start_recorded_ns)[:5]
    assert seconds(service) == [1.0, 2.0, 1.0, 0.5, 0.4]
    assert critical_paths(graph)[0].length_ns == 32_400_000_000
    assert graph.wait_kind[1:5].tolist() == [WaitKind.TOOL, WaitKind.USER, WaitKind.TOOL, WaitKind.TOOL]
    tails = graph.input[:5] - 64 * np.diff(graph.first_block)[:5]
    assert tails.tolist() == [8, 10, 8, 12, 4] and graph.model == ["model-x"] * len(graph)


def test_waits_of_a_kind_are_cut_and_the_others_kept() -> None:
    """Waits of 0.5 s (tool), 26.5 (user), 0.2 and 0.3 (tools)."""
    graph = sample("weka_linear.json")
    cut = graph.with_waits_at_most(read_longest_waits("user=2s,tool=250ms"))
    assert seconds(cut.wait_ns[1:]) == [0.25, 2.0, 0.2, 0.25] and (cut.tool_ns <= cut.wait_ns).all()
    assert "user are at most 2 s: 1 cut, by 24.500 s" in " ".join(cut.notes)
    assert "tool are at most 0.25 s: 2 cut, by 0.300 s" in " ".join(cut.notes)
    assert graph.with_waits_at_most(read_longest_waits("27s")).notes == graph.notes
    assert seconds(graph.with_waits_at_most(read_longest_waits("0")).wait_ns) == [0.0] * 5


@pytest.mark.parametrize("text", ["", "user", "user=", "users=1s", "1s,user=2s", "user=1s,user=2s", "-1s", "9e30s"])
def test_other_longest_waits_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_longest_waits(text)
    assert refused.value.code == "longest-wait-invalid"


def test_weka_sub_agents_with_relative_and_absolute_times_are_one_tree() -> None:
    graph = sample("weka_rows.jsonl")
    one, two = (slice(low, low + 7) for low in graph.first_call[1:3].tolist())
    assert graph.session_id[1:] == ["sub-relative", "sub-absolute"]
    assert seconds(graph.start_recorded_ns[one]) == [0, 2.1, 2.2, 4.6, 8.3, 9.35, 9.5]
    for name in ("start_recorded_ns", "end_recorded_ns", "wait_ns", "wait_kind", "chain", "parent_chain", "turn", "depth",
                 "background", "input", "output"):  # fmt: skip
        assert getattr(graph, name)[one].tolist() == getattr(graph, name)[two].tolist(), name
    pairs = list(zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True))
    first = [(of - 5, to - 5) for of, to in pairs if 5 <= of < 12]
    assert first == [(of - 12, to - 12) for of, to in pairs if of >= 12]
    assert {of for of, to in first if to == 4} == {0, 2, 3}, "the turn at 8.3 joins both children"
    assert seconds(graph.wait_ns[one])[4] == 0.2
    background = np.flatnonzero(graph.background[one])
    assert [graph.agent[5 + at] for at in background.tolist()] == ["sub-relative/agent_003"]
    shapes = session_shapes(graph)
    assert seconds(shapes.makespan_ns)[1:] == [10.0, 10.0] and seconds(shapes.tree_ns)[1:] == [12.35, 12.35]
    assert shapes.fan_out.tolist() == [0, 3, 3] and shapes.children_at_once.tolist() == [0, 2, 2]


def test_weka_hit_rates_by_scope() -> None:
    """In file scope (one namespace of ids a session) 17 of 32 blocks hit; 14 where children have caches of their own."""
    graph = sample("weka_rows.jsonl")
    session = graph.session_of()
    for scope, expected in (("file", [11, 17, 17]), ("session", [11, 17, 17]), ("chain", [11, 14, 14])):
        found = hits(graph, scope)
        assert [int(found.hit_blocks[session == one].sum()) for one in range(3)] == expected, scope
        assert [int(found.blocks[session == one].sum()) for one in range(3)] == [22, 32, 32]
    apart = sample("weka_rows.jsonl", scope="chain")
    assert [int(hits(apart).hit_blocks[session == one].sum()) for one in range(3)] == [11, 14, 14]


def test_a_join_is_due_after_the_last_live_end() -> None:
    """With a server twice as fast: 0.2 s after the later child's end."""
    graph = sample("weka_rows.jsonl")
    service = (graph.end_recorded_ns - graph.start_recorded_ns) // 2
    due, end = due_and_end(graph, service)
    assert due[9] == end[8] + 200_000_000 and end[8] < 8_100_000_000


def test_dynamo() -> None:
    graph = sample("dynamo_request_trace.jsonl")
    assert edges(graph) == {("q1", "k1"), ("q1", "q2"), ("k1", "q2")}
    assert seconds(graph.wait_ns) == [0, 0.1, 0.2, 0] and seconds(graph.tool_ns) == [0, 0, 0.15, 0]
    assert graph.cached_tokens is not None and graph.cached_tokens.tolist() == [0, 64, 128, -1]
    assert graph.block is not None and len(np.unique(graph.block)) == 7, "three hashes above 2^53 stay apart"
    assert seconds(graph.end_recorded_ns) == [1.0, 1.3, 2.0, 2.1]


def test_bailian_forks() -> None:
    graph = sample("bailian.jsonl")
    assert edges(graph) == {("100", "101"), ("101", "102"), ("100", "103")}
    assert graph.agent == ["100", "100", "100", "103", "200"] and not graph.background.any()
    assert graph.block_tokens == 16 and seconds(graph.start_ns) == [0, 0.25]


def test_tracelab() -> None:
    """One session is a child within another one's Task; two tools at once end with the later; a duplicate is dropped."""
    graph = sample("tracelab.jsonl")
    assert graph.session_id == ["main", "cx"] and sum(graph.left_out.values()) == 1
    assert edges(graph) == {
        ("main:0", "kid:0"), ("kid:0", "kid:1"), ("main:0", "main:1"), ("kid:1", "main:1"), ("main:1", "main:2"),
        ("cx:0", "cx:1"),
    }  # fmt: skip
    waits = by_call(graph, graph.wait_ns / 1e9)
    assert (waits["main:2"], waits["main:1"], waits["cx:1"]) == (60, 0.5, 3.0)
    assert by_call(graph, graph.wait_kind)["main:2"] == WaitKind.USER
    assert by_call(graph, graph.wait_kind)["cx:1"] == WaitKind.TOOL


def test_otel_spans() -> None:
    graph = sample("otel_spans.json")
    short = {one: one[-2:] for one in graph.call_id}
    assert {(short[of], short[to]) for of, to in edges(graph)} == {("a1", "b1"), ("a1", "a4"), ("b1", "a4")}
    assert graph.left_out == {"failed calls": 1} and "1 by tool, 2 by agent, 0 by time" in graph.notes[0]
    assert graph.cached_tokens is not None and graph.cached_tokens.tolist() == [0, -1, 40]
    assert int(graph.input[[0, 2]].sum()) == 82 and graph.input.tolist() == [12, 9, 70]
    assert graph.model == ["model-x", "model-y", "model-x"] and seconds(graph.wait_ns) == [0, 0.2, 0.5]
    assert graph.messages is not None
    assert [one["role"] for one in graph.messages[2] or ()] == ["user", "assistant", "tool", "tool"]
    assert graph.messages[0] is not None and [sorted(one) for one in graph.messages[0]] == [["content", "role"]]


def test_otlp() -> None:
    graph = sample("otlp.json")
    assert seconds(graph.wait_ns) == [0, 1.0] and len(graph.edge_to) == 1
    assert graph.messages == [[{"role": "user", "content": "Name a fjord."}], None]


def test_dag() -> None:
    graph = sample("dag.jsonl")
    assert edges(graph) == {
        ("root:0", "kid-slow:0"), ("root:0", "kid-fast:0"), ("root:0", "root:1"), ("kid-fast:0", "root:1"),
        ("kid-slow:0", "kid-slow:1"), ("root:1", "root:2"), ("kid-slow:1", "root:2"), ("forker:0", "way-a:0"),
        ("forker:0", "way-b:0"),
    }  # fmt: skip
    waits = by_call(graph, graph.wait_ns / 1e6)
    assert (waits["root:1"], waits["root:2"], waits["kid-slow:1"]) == (200, 50.5, 1500)
    context = by_call(graph, graph.context)
    assert context["way-a:0"] == context["way-b:0"] == graph.call_id.index("forker:0") and context["kid-fast:0"] == -1
    assert not graph.background.any() and graph.output.sum() == 64 + 32 + 48 + 128 + 128 + 16 + 40 + 24 + 24
    assert graph.extra is not None and graph.extra[graph.call_id.index("root:2")] == {"temperature": 0.0}
    assert graph.model is not None and graph.model[graph.call_id.index("kid-fast:0")] == "model-small"


def test_sglang() -> None:
    graph = sample("sglang_agentic.json")
    assert graph.left_out == {"turns without messages": 1} and graph.output.tolist() == [220] * 4
    assert graph.context.tolist() == [-1, 0, 1, -1] and edges(graph) == {("1:1", "1:2"), ("1:2", "1:3")}


def test_applied_compute() -> None:
    graph = sample("applied_compute.jsonl")
    assert graph.input.tolist() == [400, 530, 600, 64] and graph.output.tolist() == [30, 20, 10, 7]
    assert seconds(graph.wait_ns) == [0, 1.4, 0.8, 0] and (graph.wait_kind[1:3] == WaitKind.TOOL).all()


BAD = {
    "cycle": ("call-graph-invalid", "line 1", "'a' -> 'b' -> 'a'"),
    "unknown-predecessor": ("call-graph-invalid", "line 1", "'a'", "'ghost'"),
    "duplicate-request-id": ("call-graph-invalid", "line 2", "'a'", "line 1"),
    "no-start-no-parent": ("call-graph-invalid", "line 1", "'a'"),
    "more-blocks-than-tokens": ("dataset-field-invalid", "line 1", "3 hash_ids", "600 tokens"),
    "same-id-partial-and-full": ("dataset-field-invalid", "line 2", "hash_ids", " 2 ", "188"),
    "id-after-two-different-ids": ("dataset-field-invalid", "line 2", "hash_ids", " 9 "),
    "subagent-without-parent-turn": ("call-graph-invalid", "line 1 request 1", "'a1'"),
    "negative-think-time": ("dataset-field-invalid", "line 1 request 2", "think_time", "-0.5"),
    "zero-output": ("dataset-empty", "trace.jsonl", "1 without"),
}


def bad_cases() -> list[dict[str, Any]]:
    file = SAMPLES / "bad_traces.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


@pytest.mark.parametrize("case", bad_cases(), ids=lambda case: case["case"])
def test_bad_traces_are_refused(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in case["rows"]))
    if case["case"] == "overlapping-turns":
        graph = read_call_graph(case["format"], path)
        assert len(graph) == 2 and graph.edge_from_start.tolist() == [True] and seconds(graph.edge_wait_ns) == [2.0]
        assert any("ran: 1," in note for note in graph.notes), graph.notes
        return
    with pytest.raises(InputError) as caught:
        read_call_graph(case["format"], path, block_tokens=case.get("block_size"))
    assert says(str(caught.value), *BAD[case["case"]]) and "\n" not in str(caught.value)


def test_all_bad_cases_are_known() -> None:
    assert {case["case"] for case in bad_cases()} == {*BAD, "overlapping-turns"}


@pytest.mark.parametrize("file", ["mooncake_conversation_first3000.jsonl", "mooncake_synthetic_first1000.jsonl"])
def test_public_traces_as_graphs(file: str) -> None:
    """Each row is a session; full blocks hit as in the trace of arrivals, which counts in the same way by itself."""
    path = SAMPLES.parent / "traces" / file
    graph, trace = read_call_graph("auto", path), read_trace("mooncake", path)
    assert graph.name == "mooncake" and len(graph) == graph.sessions == len(trace)
    assert graph.start_ns.tolist() == trace.t_ns.tolist() and hits(graph).whole_rate() == prefix_hit_rate(trace)


def test_scope_and_reading_have_few_values() -> None:
    with pytest.raises(ValueError, match="planet"):
        sample("otlp.json", scope="planet")
    with raises_code("choice-unknown", "'nothing'", *CALL_GRAPHS):
        read_call_graph("nothing", SAMPLES / "otlp.json")
