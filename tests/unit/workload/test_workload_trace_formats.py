"""Each format of agentic traces: what it means where its samples are silent, and one sentence for what is wrong."""

from __future__ import annotations

import copy
import gzip
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload.errors import InputError
from fastllmload.plan.prompts.load import load_workload
from fastllmload.settings import Workload
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.paths import critical_paths
from fastllmload.workload.sharing.ideal import ideal_hits
from fastllmload.workload.trace import read_trace
from fastllmload.workload.traces.call_lines import Line, write_graph
from fastllmload.workload.traces.formats import CALL_GRAPHS, detect_format, read_call_graph

Row = dict[str, Any]


def written(folder: Path, rows: list[Row] | str | bytes) -> Path:
    path = folder / "trace"
    text = "".join(json.dumps(row) + "\n" for row in rows) if isinstance(rows, list) else rows
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def graph_of(folder: Path, rows: list[Row] | str | bytes, name: str = "auto", **options: Any) -> CallGraph:
    return read_call_graph(name, written(folder, rows), **options)


def edges(graph: CallGraph) -> list[tuple[str, str]]:
    pairs = zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True)
    return sorted((graph.call_id[of], graph.call_id[to]) for of, to in pairs)


def waits(graph: CallGraph) -> dict[str, float]:
    return dict(zip(graph.call_id, (graph.wait_ns / 1e9).tolist(), strict=True))


# -- files -------------------------------------------------------------------------------------------------------------


def moon(at: float | None, *ids: int, **more: Any) -> Row:
    row = {"timestamp": at, "input_length": 512 * len(ids), "output_length": 5, "hash_ids": list(ids), **more}
    return {name: value for name, value in row.items() if value is not None}


def test_gzip_and_a_byte_order_mark(tmp_path: Path) -> None:
    rows = [moon(0, 1), moon(5, 1, 2)]
    plain = graph_of(tmp_path, rows)
    packed = gzip.compress(b"\xef\xbb\xbf" + "".join(json.dumps(row) + "\n\n" for row in rows).encode())
    again = graph_of(tmp_path, packed)
    assert again.sha256 != plain.sha256 and again.input.tolist() == plain.input.tolist() == [512, 1024]
    for broken in (packed[:-9], packed[:20] + b"!" + packed[21:]):
        with raises_code("dataset-invalid", "gzip", tmp_path):
            graph_of(tmp_path, broken)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    with raises_code("file-unreadable", tmp_path / "none"):
        read_call_graph("auto", tmp_path / "none")
    with raises_code("dataset-invalid", "zstd"):
        graph_of(tmp_path, b"\x28\xb5\x2f\xfd000")
    for text in ("", "[]", '{"cats": 3}\n', "timestamp,input\n1,2\n"):
        with raises_code("dataset-invalid", "mooncake"):
            graph_of(tmp_path, text)
    with raises_code("dataset-empty"):
        graph_of(tmp_path, "", "mooncake")
    with raises_code("dataset-empty"):
        graph_of(tmp_path, "[]", "weka")
    with raises_code("dataset-invalid", "line 1", "`id`", "those of --workload tracelab"):
        graph_of(tmp_path, '{"round_index": 1, "timing_events": []}\n', "weka")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mooncake", '{"output_length": 5}\n{"output_length": "x"}\n', ("line 2", "output_length", "'x'")),
        ("mooncake", '{"output_length": 5}\n\n{"output_le', ("line 3", "too early")),
        ("mooncake", '{"input_length": 5}\n', ("line 1", "output_length")),
        ("weka", '{"id": 1, "block_size": 64, "requests": [{"t": 0, "type": "s"}, {"t": "now", "type": "s"}]}',
         ("requests[1].t", "'now'")),
        ("weka", '{"id": 1,\n "block_size": 64,\n "requests": [}\n', ("line 3", "not JSON")),
        ("mooncake", b'{"output_length": 5, "session_id": "\xff"}\n', ("line 1", "UTF-8")),
        ("mooncake", '{"output_length": 5, "session_id": ' + "[" * 9999 + "\n", ("line 1",)),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_named_with_line_and_field(
    tmp_path: Path, name: str, text: str | bytes, said: tuple[str, ...]
) -> None:
    with raises_code("dataset-invalid", *said):
        graph_of(tmp_path, text, name)


def test_a_broken_line_at_the_end_of_a_long_file(tmp_path: Path) -> None:
    lines = [b'{"timestamp": %d, "input_length": 700, "output_length": 5, "hash_ids": [%d, %d]}\n' % (n, 2 * n, 2 * n + 1)
             for n in range(100_000)]  # fmt: skip
    lines[99_998] = b'{"timestamp": 5, "input_le\n'
    with raises_code("dataset-invalid", "line 99999 column 27"):
        graph_of(tmp_path, b"".join(lines))


# -- Mooncake ----------------------------------------------------------------------------------------------------------


def turn(session: str, at: float | None, *ids: int, **more: Any) -> Row:
    return moon(at, *ids, session_id=session, **more)


def test_rows_of_a_session_that_share_nothing_are_additions(tmp_path: Path) -> None:
    rows = [turn("a", 0, 1, 2), turn("a", None, 3, delay=1), turn("a", None, 4, delay=2), turn("b", 7, 1, 2)]
    graph = graph_of(tmp_path, rows)
    assert graph.context.tolist() == [-1, 0, 1, -1] and graph.input.tolist() == [1024, 512, 512, 1024]
    found = ideal_hits(graph)
    assert found is not None and found.tokens.tolist() == [1024, 1024 + 5 + 512, 1024 + 5 + 512 + 5 + 512, 1024]
    assert found.hit_tokens.tolist() == [0, 1029, 1029 + 512 + 5, 1024] and ideal_hits(graph, capacity=9) is None
    assert graph_of(tmp_path, rows, prompts="whole").context.tolist() == [-1] * 4


@pytest.mark.parametrize(
    "rows",
    [
        [turn("a", 0, 1, 2), turn("a", None, 1, 2, 3, delay=1), turn("a", None, 4, delay=2)],
        [turn("a", 0, 1, 2), turn("a", None, 1, 3, delay=1)],
        [{"session_id": "a", "timestamp": 0, "input_length": 9, "output_length": 1},
         {"session_id": "a", "delay": 0, "input_length": 9, "output_length": 1}],
    ],
)  # fmt: skip
def test_rows_that_may_be_both_need_a_statement(tmp_path: Path, rows: list[Row]) -> None:
    with raises_code("trace-prompts-ambiguous", "line 2", "--trace-prompts whole", "--trace-prompts delta"):
        graph_of(tmp_path, rows)
    assert (graph_of(tmp_path, rows, prompts="whole").context == -1).all()
    assert graph_of(tmp_path, rows, prompts="delta").context[1] == 0


def test_other_names_of_mooncake_columns_and_instants_of_later_rows(tmp_path: Path) -> None:
    rows = [
        {"session_id": 1, "created_time": 10, "output_length": 4, "hash_ids": [1]},
        {"session_id": 1, "delay_ms": 2.5, "output_length": 4, "hash_ids": [1, 2]},
        {"session_id": 2, "timestamp": 20, "output_length": 4, "hash_ids": [1]},
        {"session_id": 2, "timestamp": 90, "output_length": 4, "hash_ids": [1, 3]},
    ]
    graph = graph_of(tmp_path, rows)
    assert waits(graph) == {"1.0": 0, "1.1": 0.0025, "2.0": 0, "2.1": 0.07} and graph.input.tolist() == [512, 1024] * 2
    assert "end: 1;" in graph.notes[0]
    with raises_code("dataset-field-invalid", "line 2", "delay"):
        graph_of(tmp_path, [turn("a", 0, 1), turn("a", None, 1, 2)])
    with raises_code("trace-unsorted", "line 2", " 4 ", " 5 "):
        graph_of(tmp_path, [turn("a", 5, 1), turn("a", 4, 1, 2)])
    with raises_code("trace-unsorted", "line 2", " 4 ", " 5 "):
        graph_of(tmp_path, [moon(5, 1), moon(4, 1, 2)])
    with raises_code("dataset-field-invalid", "line 1", "timestamp", "-3"):
        graph_of(tmp_path, [moon(-3, 1)])
    with raises_code("dataset-field-invalid", "line 1", "1 hash_ids of 512", "600"):
        graph_of(tmp_path, [moon(0, 1, input_length=600)])
    assert graph_of(tmp_path, [moon(0, 1, input_length=600)], block_tokens=1024).block_tokens == 1024
    with raises_code("dataset-field-invalid", "line 1", "input_length"):
        graph_of(tmp_path, '{"timestamp": 0, "output_length": 1}', "mooncake")


def test_mooncake_rows_of_another_block_size(tmp_path: Path) -> None:
    """Two rows that only blocks of 64 tokens fit are read with that size; a row that fits neither is refused."""
    rows = [moon(0, 1, 2, input_length=100), moon(1, 1, 3, 4, input_length=192)]
    graph = graph_of(tmp_path, rows)
    assert graph.block_tokens == 64 and "64" in graph.notes[0] and "512" in graph.notes[0]
    with raises_code("dataset-field-invalid", "line 1", "2 hash_ids of 512", "100"):
        graph_of(tmp_path, [*rows, moon(2, 1, 3, input_length=900)])
    with raises_code("dataset-field-invalid", "line 1", "2 hash_ids of 512", "100"):
        graph_of(tmp_path, rows[:1])
    with raises_code("dataset-field-invalid", "line 2", "3 hash_ids of 96", "192"):
        graph_of(tmp_path, rows, block_tokens=96)


def agentic(name: str, *ids: int, **more: Any) -> Row:
    return {"request_id": name, "session_id": "s", "input_length": 64 * len(ids), "output_length": 1, "hash_ids": list(ids),
            **more}  # fmt: skip


def test_agentic_rows_of_two_block_sizes(tmp_path: Path) -> None:
    """A root's delay counts from its instant; blocks that no size fits are refused."""
    graph = graph_of(tmp_path, [agentic("a", 1, timestamp=5, delay=20), agentic("b", 1, 2, wait_for=["a"], delay=1)])
    assert graph.block_tokens == 64 and waits(graph) == {"a": 0, "b": 0.001}
    later = graph_of(
        tmp_path, [agentic("a", 1, timestamp=5, delay=20), agentic("b", 1, 2, timestamp=6, session_id="t")]
    )
    assert later.call_id == ["b", "a"] and later.start_ns.tolist() == [0, 19_000_000]
    rows = [agentic("a", 1, 2, timestamp=0), agentic("b", 1, 2, 3, 4, 5, input_length=1280, wait_for=["a"])]
    with raises_code("dataset-field-invalid", "line 2", "5 hash_ids", "1280", "64"):
        graph_of(tmp_path, rows)


# -- Weka --------------------------------------------------------------------------------------------------------------


def weka(*requests: Row, **more: Any) -> list[Row]:
    return [{"id": "w", "block_size": 64, "requests": list(requests), **more}]


def asked(t: float, took: float | None = 1.0, **more: Any) -> Row:
    row = {"t": t, "type": "s", "in": 64, "out": 1, "hash_ids": [1], "api_time": took, **more}
    return {name: value for name, value in row.items() if value is not None}


def agent(t: float, name: str, *requests: Row, status: str = "completed") -> Row:
    return {"t": t, "type": "subagent", "agent_id": name, "status": status, "requests": list(requests)}


def test_a_sub_agent_of_a_sub_agent(tmp_path: Path) -> None:
    """Times relative to two spawns; the child's next request waits for the grandchild, the main one's for the child."""
    inner = agent(1.5, "b", asked(0.0, 2.0))
    graph = graph_of(tmp_path, weka(asked(0), agent(2.0, "a", asked(0.0), inner, asked(4.0)), asked(10.0)))
    starts = dict(zip(graph.call_id, (graph.start_recorded_ns / 1e9).tolist(), strict=True))
    assert starts == {"w:0": 0, "w/a:0": 2.0, "w/b:0": 3.5, "w/a:1": 6.0, "w:1": 10.0}
    assert edges(graph) == [
        ("w/a:0", "w/a:1"), ("w/a:0", "w/b:0"), ("w/a:1", "w:1"), ("w/b:0", "w/a:1"), ("w:0", "w/a:0"), ("w:0", "w:1"),
    ]  # fmt: skip
    assert waits(graph) == {"w:0": 0, "w/a:0": 1.0, "w/b:0": 0.5, "w/a:1": 0.5, "w:1": 3.0}
    assert graph.depth.tolist() == [0, 1, 2, 1, 0] and not graph.background.any()


def test_weka_without_ends(tmp_path: Path) -> None:
    """An end follows from the next think time; else the wait contains the service, which is said."""
    graph = graph_of(tmp_path, weka(asked(0, None), asked(5, None, think_time=2.0), asked(9, None)))
    assert waits(graph) == {"w:0": 0, "w:1": 2.0, "w:2": 4.0}
    assert graph.end_recorded_ns.tolist() == [3_000_000_000, -1, -1]
    assert any("end: 1;" in note for note in graph.notes)


def test_weka_turns_that_overlap_run_at_once(tmp_path: Path) -> None:
    """Turns 1 and 2 run at once after turn 0, and turn 3 follows both."""
    graph = graph_of(tmp_path, weka(asked(0, 1.0), asked(2, 5.0), asked(3, 1.0), asked(9, 1.0)))
    assert edges(graph) == [("w:0", "w:1"), ("w:0", "w:2"), ("w:1", "w:3"), ("w:2", "w:3")]
    assert waits(graph) == {"w:0": 0, "w:1": 1, "w:2": 2, "w:3": 2} and not graph.edge_from_start.any()


def test_weka_agents_that_nothing_joins(tmp_path: Path) -> None:
    requests = (
        asked(0),
        agent(1.5, "a", asked(1.5, 90.0)),
        agent(1.5, "a", asked(1.5, 1.0)),
        agent(1.6, "e"),
        asked(5),
    )
    graph = graph_of(tmp_path, weka(*requests))
    assert [graph.agent[at] for at in np.flatnonzero(graph.background).tolist()] == ["w/a"]
    assert "w/a~2" in graph.agent and graph.left_out == {"sub-agents without requests": 1}
    assert any("began: 1," in note for note in graph.notes)


def test_weka_scopes(tmp_path: Path) -> None:
    local = weka(asked(0)) + weka(asked(0), id="v")
    assert graph_of(tmp_path, local).block.tolist() == [0, 1]  # type: ignore[union-attr]
    shared = [{**row, "hash_id_scope": "global"} for row in local]
    graph = graph_of(tmp_path, shared)
    assert graph.scope == "file" and graph.block is not None and graph.block.tolist() == [0, 0]
    assert graph_of(tmp_path, json.dumps(shared, indent=1)).sessions == 2, "one array over many lines"


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        (weka(asked(5), asked(4)), "trace-unsorted", ("line 1 request 2", " 4,")),
        (weka(asked(0, -1.0)), "dataset-field-invalid", ("request 1", "api_time", "-1")),
        (weka({**asked(0), "type": "x"}), "dataset-field-invalid", ("request 1", "'x'")),
        (weka(asked(0, hash_ids=[1, 2])), "dataset-field-invalid", ("request 1", "2 hash_ids", "64 tokens")),
        (weka(asked(0), hash_id_scope="moon"), "dataset-field-invalid", ("hash_id_scope", "'moon'")),
        (weka(asked(0), block_size=0), "dataset-field-invalid", ("block_size", "0")),
        (
            weka(asked(0)) + weka(asked(0), id="v", block_size=32),
            "dataset-field-invalid",
            ("line 2", "block_size", "32"),
        ),
        (weka(asked(0)) + weka(asked(0)), "call-graph-invalid", ("line 2", "'w:0'", "line 1")),
        (weka(asked(0, out=0)), "dataset-empty", ("1 without",)),
        (weka(asked(7), agent(8, "a", asked(8), agent(8.5, "b", asked(0)))), "ok", ()),
    ],
)
def test_weka_files_that_are_wrong(tmp_path: Path, rows: list[Row], code: str, said: tuple[str, ...]) -> None:
    if code == "ok":
        assert len(graph_of(tmp_path, rows)) == 3
        return
    with raises_code(code, *said):
        graph_of(tmp_path, rows)


# -- Dynamo ------------------------------------------------------------------------------------------------------------

T0 = 1_777_312_800_000


def ended(name: str, session: str, at: int, took: int | None, parent: str | None = None, **more: Any) -> Row:
    replay = {"trace_block_size": 64, "input_length": 64, "input_sequence_hashes": [2**64 - 1]}
    request = {"request_id": name, "output_tokens": 3, "request_received_ms": T0 + at, "total_time_ms": took,
               "replay": replay, **more}  # fmt: skip
    context = {"session_id": session, "parent_session_id": parent}
    return {"event": {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "agent_context": context,
                      "request": {key: value for key, value in request.items() if value is not None}}}  # fmt: skip


def test_dynamo_deep_trees_and_lost_parents(tmp_path: Path) -> None:
    rows = [
        ended("g", "grand", 250, 50, "kid"), ended("k", "kid", 110, 90, "top"), ended("t", "top", 0, 100),
        ended("k2", "kid", 400, 10, "top"), ended("t2", "top", 1000, 10), ended("o", "orphan", 5, 1, "ghost"),
        {"event": {"schema": "dynamo.request.trace.v1", "event_type": "request_payload", "payload": {"x": [1]}}},
    ]  # fmt: skip
    graph = graph_of(tmp_path, rows)
    assert edges(graph) == [("g", "k2"), ("k", "g"), ("k", "k2"), ("k2", "t2"), ("t", "k"), ("t", "t2")]
    assert waits(graph) == {"t": 0, "k": 0.01, "g": 0.05, "k2": 0.1, "t2": 0.59, "o": 0}
    assert graph.depth.tolist() == [0, 1, 2, 1, 0, 0] and "file: 1;" in graph.notes[0]


def test_dynamo_files_that_are_wrong(tmp_path: Path) -> None:
    first = ended("a", "s", 0, 1)
    other = ended("b", "s", 5, 1, replay={"trace_block_size": 32, "input_length": 32, "input_sequence_hashes": [1]})
    with raises_code("dataset-field-invalid", "line 2", "trace_block_size", "32", "64"):
        graph_of(tmp_path, [first, other])
    older = {"event": {**first["event"], "schema": "dynamo.agent.trace.v1"}}
    with raises_code("dataset-field-invalid", "line 1", "'dynamo.agent.trace.v1'"):
        graph_of(tmp_path, [older])
    run = {"event": {**first["event"], "agent_context": {"session_id": "run", "trajectory_id": "x"}}}
    with raises_code("dataset-field-invalid", "line 1", "trajectory_id"):
        graph_of(tmp_path, [run])
    with raises_code("dataset-field-invalid", "line 1", "input_tokens"):
        graph_of(tmp_path, [ended("a", "s", 0, 1, replay=None)])
    with raises_code("dataset-empty", "1 without"):
        graph_of(tmp_path, [ended("a", "s", 0, 1, output_tokens=0)])
    unended = graph_of(tmp_path, [ended("a", "s", 0, None), ended("b", "s", 5, 1)])
    assert waits(unended) == {"a": 0, "b": 0.005} and any("end: 1;" in note for note in unended.notes)


# -- OpenTelemetry -----------------------------------------------------------------------------------------------------


def span(name: str, start: float, end: float, parent: str | None = None, trace: str = "t", **attributes: Any) -> Row:
    found = {"gen_ai." + key.replace("__", "."): value for key, value in attributes.items()}
    return {"trace_id": trace, "span_id": name, "parent_span_id": parent, "name": name, "attributes": found,
            "start_time": int((1_777_000_000 + start) * 1e9), "end_time": str(int((1_777_000_000 + end) * 1e9))}  # fmt: skip


def chat(name: str, start: float, end: float, parent: str | None = None, **more: Any) -> Row:
    tokens = {"usage__input_tokens": 9, "usage__output_tokens": 2}
    return span(name, start, end, parent, operation__name="chat", **{**tokens, **more})


def invoked(name: str, start: float, end: float, parent: str | None = None, **more: Any) -> Row:
    return span(name, start, end, parent, operation__name="invoke_agent", **more)


def test_agents_without_a_parent_follow_each_other_in_time(tmp_path: Path) -> None:
    """A pipeline: the second agent begins when the first is over, and not its child."""
    rows = [
        invoked("A", 0, 3),
        chat("a1", 0, 1, "A"),
        chat("a2", 1.5, 3, "A"),
        invoked("B", 4, 6),
        chat("b1", 4, 6, "B"),
    ]
    graph = graph_of(tmp_path, rows)
    assert edges(graph) == [("t/a1", "t/a2"), ("t/a2", "t/b1")] and waits(graph)["t/b1"] == 1
    assert graph.parent_chain.tolist() == [-1, -1, -1] and not graph.background.any()
    assert graph.notes[0].endswith("0 by tool, 0 by agent, 2 by time")


def test_agents_that_run_at_once(tmp_path: Path) -> None:
    """Two children at once are two agents; one that an agent without calls of its own spawned has no parent."""
    rows = [
        invoked("M", 0, 9), chat("m1", 0, 1, "M"), invoked("A", 1, 5, "M"), invoked("B", 1, 4, "M"),
        chat("a1", 1.5, 5, "A"), chat("b1", 2, 4, "B"), chat("m2", 5.5, 6, "M"),
        invoked("E", 20, 29, trace="u"), invoked("F", 20, 29, "E", trace="u"), chat("f1", 21, 22, "F", trace="u"),
    ]  # fmt: skip
    graph = graph_of(tmp_path, [{"spans": rows}])
    assert edges(graph) == [("t/a1", "t/m2"), ("t/b1", "t/m2"), ("t/m1", "t/a1"), ("t/m1", "t/b1"), ("t/m1", "t/m2")]
    assert waits(graph)["t/m2"] == 0.5 and graph.session_id == ["t", "u"] and graph.depth.tolist() == [0, 1, 1, 0, 0]


def test_traces_of_one_conversation_are_one_session(tmp_path: Path) -> None:
    rows = [
        chat("a", 0, 1, conversation__id="c"),
        chat("b", 61, 62, trace="u", conversation__id="c", input__messages='[{"role": "user", "content": "More."}]'),
    ]
    graph = graph_of(tmp_path, rows)
    assert graph.sessions == 1 and waits(graph)["u/b"] == 60 and graph.wait_kind.tolist() == [0, WaitKind.USER]


def test_what_spans_say_of_messages_and_tools(tmp_path: Path) -> None:
    parts = [
        {"role": "user", "parts": [{"type": "text", "content": "Go."}, "Now."]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": {"y": 2}}]},
    ]
    row = chat("a", 0, 1, input__messages=parts, system_instructions="Be short.",
               tool__definitions='[{"type": "function", "name": "f", "parameters": {}}]')  # fmt: skip
    graph = graph_of(tmp_path, [row, chat("b", 2, 3), chat("none", 4, 5, usage__input_tokens=0)])
    assert graph.messages is not None and graph.messages[0] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Go.\nNow."},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": '{"y":2}'},
    ]  # fmt: skip
    assert graph.tools == [[{"type": "function", "function": {"name": "f", "parameters": {}}}], None]
    assert list(graph.left_out.values()) == [1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"span_id": ""}, ("line 1", "span_id")),
        ({"start_time": "noon"}, ("start_time", "'noon'")),
        ({"start_time": 12}, ("start_time", "12")),
        ({"end_time": 1_700_000_000_000_000_000}, ("end_time", "before start_time")),
        ({"attributes": [{"key": "a"}]}, ("attributes",)),
        (
            {"attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "many"}},
            ("input_tokens", "'many'"),
        ),
        (
            {"attributes": {"gen_ai.operation.name": "chat", "gen_ai.input.messages": "[{"}},
            ("input.messages", "not JSON"),
        ),
        ({"attributes": {"gen_ai.operation.name": "chat", "gen_ai.input.messages": "{}"}}, ("input.messages",)),
    ],
)
def test_spans_that_are_wrong(tmp_path: Path, change: Row, said: tuple[str, ...]) -> None:
    with raises_code("dataset-field-invalid", *said):
        graph_of(tmp_path, [{**chat("a", 0, 1), **change}])
    with raises_code("dataset-field-invalid", "resourceSpans"):
        graph_of(tmp_path, [{"resourceSpans": 5}])


def stated(name: str, start: float, end: float, *links: tuple[str, float, str], **values: Any) -> Row:
    """A span of our own export; waits in seconds."""
    span = chat(name, start, end, "A")
    span["attributes"] |= {"fastllmload.wait_ns": 0, "fastllmload.wait_kind": "unknown"}
    span["attributes"] |= {f"fastllmload.{key.replace('__', '.')}": value for key, value in values.items()}
    for of, wait_s, since in links:
        edge = {"fastllmload.wait_ns": round(wait_s * 1e9), "fastllmload.wait_from": since}
        span.setdefault("links", []).append({"context": {"trace_id": "t", "span_id": of}, "attributes": edge})
    return span


def test_spans_of_our_own_say_what_they_waited_for(tmp_path: Path) -> None:
    """Not what their times suggest: k ended before m1 began, which did not wait for it. A call that failed is left out, and
    what counts from an instant may have been sent a little earlier than its predecessor.
    """
    rows = [
        stated("m0", 0, 1), stated("k", 2, 3, ("m0", 0.5, "end"), agent=1, agent__parent=0, wait_ns=400_000_000),
        stated("m1", 4, 5, ("m0", 0, "end"), ("x", 1, "end"), wait_ns=3_000_000_000, wait_kind="tool"),
        {**stated("x", 1, 2), "status": {"code": 2}}, stated("z", 3.9, 5, ("m1", 0, "start"), agent=2),
    ]  # fmt: skip
    graph = graph_of(tmp_path, rows)
    assert edges(graph) == [("t/m0", "t/k"), ("t/m0", "t/m1"), ("t/m1", "t/z")]
    assert waits(graph) == {"t/m0": 0, "t/k": 0.4, "t/m1": 3, "t/z": 0}
    assert graph.edge_wait_ns.tolist() == [500_000_000, 0, 0] and graph.edge_from_start.tolist() == [False, False, True]
    assert dict(zip(graph.call_id, graph.depth.tolist(), strict=True)) == {"t/m0": 0, "t/k": 1, "t/m1": 0, "t/z": 0}
    assert graph.left_out == {"failed calls": 1, "links to calls that are left out": 1}
    for change, said in (
        ({"wait_kind": "x"}, "wait_kind"), ({"wait_ns": -5}, "wait_ns"), ({"agent": "x"}, "fastllmload.agent"),
    ):  # fmt: skip
        with raises_code("dataset-field-invalid", tmp_path / "trace", "line 2", said):
            graph_of(tmp_path, [rows[0], stated("k", 2, 3, **change)])
    with raises_code("dataset-field-invalid", tmp_path / "trace", "line 2", "wait_from", "'y'"):
        graph_of(tmp_path, [rows[0], stated("k", 2, 3, ("m0", 0, "y"))])


@pytest.mark.parametrize("parents", [["a"], ["b", "a"], ["b", "c", "b"]])
def test_spans_around_each_other_are_refused(tmp_path: Path, parents: list[str]) -> None:
    rows = [chat(name, at, at + 1, parent) for at, (name, parent) in enumerate(zip("abc", parents, strict=False))]
    with raises_code("call-graph-invalid", "line", "parent_span_id"):
        graph_of(tmp_path, rows)


def test_typed_attributes(tmp_path: Path) -> None:
    typed = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"doubleValue": 3.0}},
        {"key": "gen_ai.output.messages", "value": {"arrayValue": {"values": [{"kvlistValue": {"values": []}}]}}},
    ]
    graph = graph_of(tmp_path, [{**chat("a", 0, 1), "attributes": typed}])
    assert (graph.input.tolist(), graph.output.tolist()) == ([7], [3])


# -- TraceLab, DAGs and the rest ---------------------------------------------------------------------------------------


def round_of(session: str, *events: tuple[str, str], **more: Any) -> Row:
    timing = [{"event_type": kind, "timestamp": f"2026-05-01T10:{at}Z"} for kind, at in events]
    return {"session_id": session, "round_index": 0, "input_tokens_total": 100, "output_tokens": 5, "timing_events": timing,
            "tools": [], **more}  # fmt: skip


def test_tracelab_rounds_without_what_is_needed(tmp_path: Path) -> None:
    good = round_of("a", ("user_message", "00:00"), ("text", "00:02"))
    rows = [good, round_of("a", ("text", "00:09")), round_of("a", ("user_message", "00:30"), output_tokens=0),
            round_of("a", ("tool_result", "00:05"))]  # fmt: skip
    graph = graph_of(tmp_path, rows)
    assert waits(graph) == {"a:0": 0, "a:1": 3} and len(graph) == 2
    assert list(graph.left_out.values()) == [1, 1]
    with raises_code("dataset-field-invalid", "line 1", "prefix_tokens", "101", "100"):
        graph_of(tmp_path, [{**good, "prefix_tokens": 101}])
    with raises_code("dataset-field-invalid", "line 1", "timestamp", "10:99"):
        graph_of(tmp_path, [round_of("a", ("user_message", "99:00"))])
    times = {"emitted_at": good["timing_events"][1]["timestamp"], "result_at": good["timing_events"][0]["timestamp"]}
    odd = graph_of(tmp_path, [{**good, "tools": [{"tool_name": "Task", **times}]}])
    assert list(odd.left_out.values()) == [1], "a tool that ends before it begins"


def dag(name: str, *turns: Row, **more: Any) -> Row:
    return {"session_id": name, "turns": [{"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, **one}
                                          for one in turns], **more}  # fmt: skip


def test_dag_children_that_nothing_joins(tmp_path: Path) -> None:
    rows = [
        dag("m", {}, {"spawns": ["late"], "forks": [{"child": "side", "background": True}]}, pre_session_spawns=["pre"]),
        dag("late", {}), dag("side", {}), dag("pre", {}, {}),
    ]  # fmt: skip
    graph = graph_of(tmp_path, rows)
    assert {graph.agent[at] for at in np.flatnonzero(graph.background).tolist()} == {"late", "side", "pre"}
    from_start = {graph.call_id[one] for one in graph.edge_to[graph.edge_from_start].tolist()}
    assert from_start == {"pre:0"} and graph.call_id[0] == "m:0" and graph.sessions == 1
    assert graph.depth.tolist()[0] == 0 and set(graph.depth.tolist()[1:]) == {0, 1}


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ([dag("m", {"spawns": ["x"]})], "call-graph-invalid", ("line 1 turn 0", "'x'")),
        ([dag("m", {"spawns": ["m2"]}, {"spawns": ["m2"]}), dag("m2", {})], "call-graph-invalid", ("turn 1", "'m2'", "'m'")),
        ([dag("m", {"spawns": [{"children": ["k"], "join_at": 3}]}, {}), dag("k", {})], "call-graph-invalid",
         ("join_at is 3", "1 to 1")),
        ([dag("m", {"spawns": [{"children": ["k"], "join_at": 1}]}), dag("k", {})], "call-graph-invalid", ("join_at is 1",)),
        ([dag("m", {"forks": ["k"]}, {}), dag("k", {})], "call-graph-invalid", ("turn 0", "'k'")),
        ([dag("m", {}), dag("m", {})], "call-graph-invalid", ("line 2", "'m'", "line 1")),
        ([dag("m")], "dataset-field-invalid", ("line 1", "'m'")),
        ([dag("m", {"messages": []})], "dataset-field-invalid", ("turn 0", "messages")),
        ([dag("m", {"delay": -1})], "dataset-field-invalid", ("turn 0", "delay", "-1")),
        ([dag("m", {}, orchestrator=True)], "dataset-invalid", ("line 1", "orchestrator")),
    ],
)  # fmt: skip
def test_dags_that_are_wrong(tmp_path: Path, rows: list[Row], code: str, said: tuple[str, ...]) -> None:
    with raises_code(code, *said):
        graph_of(tmp_path, rows)


def test_other_formats_that_are_wrong(tmp_path: Path) -> None:
    lengths = {"num_turns": 2, "input_prompt_length": 9, "assistant_response_length": [1, 1], "tool_call_output_length": [1],
               "tool_call_latency": [1, 1], "final_assistant_response_length": 1}  # fmt: skip
    with raises_code("dataset-field-invalid", "line 1", "tool_call_output_length", "1", "num_turns", "2"):
        graph_of(tmp_path, [lengths])
    row = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}
    with raises_code("call-graph-invalid", "line 2", "parent_chat_id 7"):
        graph_of(tmp_path, [row, {**row, "chat_id": 2, "parent_chat_id": 7}])
    with raises_code("call-graph-invalid", "line 2", "chat_id 1", "line 1"):
        graph_of(tmp_path, [row, row])
    with raises_code("trace-unsorted", "line 2", "timestamp 1", "2 of chat 1"):
        graph_of(tmp_path, [{**row, "timestamp": 2}, {**row, "chat_id": 2, "parent_chat_id": 1, "timestamp": 1}])
    with raises_code("dataset-field-invalid", "line 2", "3 hash_ids of 512 tokens", "600", "input_length"):
        graph_of(tmp_path, [turn("a", 0, 1), {**turn("a", 5, 1, 2, 3), "input_length": 600}])
    for rows, fields in (([turn("a", None, 1)], "timestamp"), ([agentic("a", 1)], "timestamp or wait_for")):
        with raises_code("call-graph-invalid", "line 1", f"add {fields}"):
            graph_of(tmp_path, rows)


# -- our own format ----------------------------------------------------------------------------------------------------


def test_the_own_format_needs_few_fields(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "input_tokens": 40, "output_tokens": 3, "hash_ids": [9, 8, 7], "block_tokens": 16, "at_s": 2},
        {"id": "b", "input_tokens": 16, "output_tokens": 1, "after": ["a"], "wait_s": 0.25, "wait_kind": "tool"},
        {"id": "c", "input_tokens": 16, "output_tokens": 1, "chain": "a",
         "after": [{"call": "a", "wait_s": 1, "from": "start"}, {"call": "b", "wait_s": 0.5}]},
    ]  # fmt: skip
    graph = graph_of(tmp_path, rows)
    assert (graph.name, graph.session_id, graph.agent, graph.block_tokens) == ("graph", ["a"], ["a", "b", "a"], 16)
    assert graph.edge_wait_ns.tolist() == [0, 10**9, 5 * 10**8] and graph.edge_from_start.tolist() == [
        False,
        True,
        False,
    ]
    assert graph.wait_kind.tolist() == [0, WaitKind.TOOL, 0] and not graph.background.any()


def test_texts_and_contexts_are_written_too(tmp_path: Path) -> None:
    rows = [
        {"fastllmload_graph": 1, "source": "x", "left_out": {"bad": 2}, "notes": ["One."]},
        {"id": "a", "messages": [{"role": "user", "content": "é"}], "model": "m", "body": {"top_p": 0.5}, "at_s": 0},
        {"id": "b", "messages": [{"role": "user", "content": "y"}], "after": ["a"], "context": "a", "kept": 1,
         "tools": [{"type": "function"}], "cached_tokens": 7, "prefix_tokens": 0, "start_s": 3, "end_s": 4.5,
         "parent": None},
    ]  # fmt: skip
    graph = graph_of(tmp_path, rows)
    write_graph(graph, tmp_path / "again")
    again = read_call_graph("graph", tmp_path / "again")
    for name, value in vars(graph).items():
        other = getattr(again, name)
        assert name == "sha256" or (
            np.array_equal(value, other) if isinstance(value, np.ndarray) else value == other
        ), name
    assert again.kept.tolist() == [-1, 1] and again.extra == [{"top_p": 0.5}, None] and ideal_hits(again) is None
    assert (
        again.parent_chain.tolist() == [-1, -1] and again.name == "x" and detect_format(tmp_path / "again") == "graph"
    )


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"fastllmload_graph": 2}, "dataset-invalid", ("line 1", "fastllmload_graph is 2")),
        ({"fastllmload_graph": 1, "scope": "x"}, "dataset-field-invalid", ("line 1", "scope", "'x'")),
        ({"wait_kind": "x"}, "dataset-field-invalid", ("line 1", "wait_kind", "'x'")),
        ({"wait_s": -1}, "dataset-field-invalid", ("wait_s", "-1")),
        ({"wait_s": "soon"}, "dataset-invalid", ("wait_s", "'soon'")),
        ({"delay": 1}, "dataset-invalid", ("line 1", "delay")),
        ({"after": [{"call": "b", "from": "x"}]}, "dataset-field-invalid", ("from is 'x'",)),
        ({"hash_ids": [1]}, "dataset-field-invalid", ("line 1", "block_tokens")),
        ({"input_tokens": -1}, "dataset-field-invalid", ("input_tokens", "-1")),
        ({"prefix_tokens": 9}, "dataset-field-invalid", ("line 1", "prefix_tokens is 9", "1 token")),
        ({"kept": 1}, "dataset-field-invalid", ("line 1", "kept is 1", "context")),
        ({"at_s": None}, "call-graph-invalid", ("line 1", "at_s or after")),
    ],
)
def test_graphs_that_are_wrong(tmp_path: Path, change: Row, code: str, said: tuple[str, ...]) -> None:
    line = {} if "fastllmload_graph" in change else {"id": "a", "input_tokens": 1, "output_tokens": 1, "at_s": 0}
    with raises_code(code, *said):
        graph_of(tmp_path, [{**line, **change}])


def test_the_page_lists_all_formats_and_its_example_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "traces.md").read_text()
    table = page.partition("## Formats")[2].partition("## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)`", table, re.M)) == set(CALL_GRAPHS)
    graph = graph_of(tmp_path, page.partition("```json\n")[2].partition("```")[0])
    assert edges(graph) == [("k0", "m1"), ("m0", "k0"), ("m0", "m1")] and graph.depth.tolist() == [0, 1, 0]
    fields = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", page.partition("| field of")[2], re.M)))
    assert sorted(fields) == sorted(Line.__struct_encode_fields__)


def test_calls_of_two_block_sizes(tmp_path: Path) -> None:
    line = {"id": "a", "input_tokens": 9, "output_tokens": 1, "at_s": 0, "hash_ids": [1], "block_tokens": 16}
    with raises_code("dataset-field-invalid", "line 2", "block_tokens is 32", "16"):
        graph_of(tmp_path, [line, {**line, "id": "b", "block_tokens": 32}])


# -- damage ------------------------------------------------------------------------------------------------------------

MADE: dict[str, list[Row]] = {
    "mooncake": [turn("a", 0, 1, 2), turn("a", None, 1, 2, 3, delay=1), moon(5, 1, 4)],
    "agentic-mooncake": [agentic("a", 1, timestamp=5), agentic("b", 1, 2, wait_for=["a"], delay=1, tool_wait_ms=2)],
    "weka": weka(asked(0), agent(1.5, "a", asked(0.0), asked(2.0)), asked(5, think_time=1.0, stop="end_turn")),
    "dynamo": [ended("t", "top", 0, 100), ended("k", "kid", 110, 90, "top"), ended("t2", "top", 400, 10)],
    "otel": [invoked("A", 0, 3), chat("a1", 0, 1, "A", input__messages=[{"role": "user", "parts": ["x"]}]),
             chat("a2", 1.5, 3, "A", tool__definitions=[{"name": "f"}])],
    "tracelab": [round_of("a", ("user_message", "00:00"), ("text", "00:02"), prefix_tokens=3),
                 round_of("a", ("tool_result", "00:05"), trace_key="k")],
    "dag": [dag("m", {}, {"spawns": [{"children": ["k"], "join_at": 2}]}, {}), dag("k", {"delay": 4, "forks": ["f"]}),
            dag("f", {"extra": {"a": 1}})],
    "sglang-agentic": [{"conversations": [[{"messages": [{"role": "user", "content": "x"}]}, {"messages": []}]]}],
    "bailian": [{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 16, "output_length": 1,
                 "hash_ids": [1]},
                {"chat_id": 2, "parent_chat_id": 1, "timestamp": 3, "input_length": 20, "output_length": 1,
                 "hash_ids": [1, 2]}],
    "applied-compute": [{"num_turns": 1, "input_prompt_length": 9, "assistant_response_length": [1],
                         "tool_call_output_length": [1], "tool_call_latency": [1.5], "final_assistant_response_length": 1}],
    "graph": [{"fastllmload_graph": 1, "block_tokens": 16, "left_out": {"x": 1}, "notes": ["y"]},
              {"id": "a", "input_tokens": 20, "output_tokens": 3, "hash_ids": [9, 8], "at_s": 2, "start_s": 2, "end_s": 3},
              {"id": "b", "input_tokens": 16, "output_tokens": 1, "after": [{"call": "a", "wait_s": 1}], "chain": "c",
               "parent": "a", "background": True, "wait_kind": "tool", "kept": 1, "context": "a", "model": "m"}],
}  # fmt: skip
ODD: list[Any] = [
    None, 0, -1, 2**63, 2**64, 10**30, 1e300, -0.5, "", "x", [], [1], {}, {"a": 1}, True, [None], "2026-05-01T10:00:00Z",
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each object or array within *value*, with each of its keys."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def test_each_format_is_read_as_made(tmp_path: Path) -> None:
    assert set(MADE) == set(CALL_GRAPHS)
    for name, rows in MADE.items():
        assert graph_of(tmp_path, rows, name).name == name


@pytest.mark.parametrize("name", MADE)
@given(random=st.randoms(use_true_random=False))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_trace_is_read_or_refused_in_one_sentence(tmp_path: Path, name: str, random: Random) -> None:
    """What is read can be written, too."""
    rows = copy.deepcopy(MADE[name])
    for _ in range(random.randint(1, 3)):
        within, key = random.choice(places(rows) or [(rows, slice(0, 0))])
        if random.random() < 0.2:
            del within[key]
        elif isinstance(within, list) and isinstance(key, int) and random.random() < 0.2:
            within.insert(key, copy.deepcopy(within[key]))
        elif not isinstance(key, slice):
            within[key] = copy.deepcopy(random.choice(ODD))
    try:
        graph = graph_of(tmp_path, rows, name)
    except InputError as problem:
        assert "\n" not in problem.message
        return
    write_graph(graph, tmp_path / "again")
    again = read_call_graph("graph", tmp_path / "again")
    assert sorted(again.call_id) == sorted(graph.call_id) and edges(again) == edges(graph)
    ideal_hits(graph, capacity=3)
    assert len(critical_paths(graph)) == graph.sessions


@pytest.mark.parametrize("name", MADE)
@given(random=st.randoms(use_true_random=False))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_bytes_are_read_or_refused_in_one_sentence(tmp_path: Path, name: str, random: Random) -> None:
    """Bytes of any value, numbers that no double has, and names with escapes, also in a file whose format is found out."""
    text = "".join(json.dumps(row) + "\n" for row in MADE[name]).encode()
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(text))
        new = random.choice(
            (bytes([random.randrange(256)]), b"1e999", b"\\u005f", b"\\ud800", b"NaN", b"\r\n", b'"a":1,')
        )
        text = text[:at] + new + text[at + random.randint(0, 1) :]
    for workload in {name, "auto", "mooncake"}:
        (tmp_path / "damaged").write_bytes(text)
        try:
            if workload == "mooncake":
                load_workload(Workload(name=workload, dataset_path=str(tmp_path / "damaged"), tokenizer="none"))
            else:
                read_call_graph(workload, tmp_path / "damaged")
        except InputError as problem:
            assert "\n" not in problem.message


@pytest.mark.parametrize("name", ["session_id", "session\\u005fid", "\\u0073ession_id"])
def test_a_session_is_known_by_its_name_however_it_is_written(tmp_path: Path, name: str) -> None:
    """Also in a file of the workload `mooncake`, which has sessions where a row names one."""
    file = tmp_path / "rows"
    file.write_text("".join(json.dumps(row) + "\n" for row in MADE["mooncake"]).replace("session_id", name))
    loaded = load_workload(Workload(name="mooncake", dataset_path=str(file), tokenizer="none"))
    assert loaded.trace is None and loaded.graph is not None and loaded.graph.sessions == 2
    with raises_code("dataset-invalid", file, "session_id"):
        read_trace("mooncake", file)


def test_a_value_does_not_name_a_session(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    rows = [moon(0, 1), {**moon(5, 1, 4), "note": "session_id \u00e9"}, {**moon(6, 1), "session_id": None}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = load_workload(Workload(name="mooncake", dataset_path=str(file), tokenizer="none"))
    assert loaded.graph is None and loaded.trace is not None and len(loaded.trace) == 3
