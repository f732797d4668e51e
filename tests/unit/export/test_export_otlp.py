"""Spans of requests: what a line of OTLP has, by hand; read again by our own loader of traces; sent to a collector."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_run import real_run
from refusals import raises_code, says
from support.agentic_traces import write_trace
from synthetic_run import KIND, MS, ORIGIN_NS, Request, write_workers

from fastllmload.cli.main import main
from fastllmload.export.otlp import endpoint_of, messages, rejected_of
from fastllmload.plan.archive import load_plan
from fastllmload.plan.plan import STITCHED
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.traces.formats import detect_format, read_call_graph

OFFSET = 1_800_000_000_000_000_000 - ORIGIN_NS


def request(number: int, session: int, turn: int, submit_ms: int, end_ms: int, ok: bool = True) -> Request:
    submit, first, end = (ORIGIN_NS + ms * MS for ms in (submit_ms, submit_ms + 10, end_ms))
    fields = {
        "request": number, "session": session, "turn": turn, "phase": layout.MEASURE, "t_sched": submit - 2000,
        "t_dispatch": submit - 1, "t_submit_start": submit - 1, "t_submit": submit, "t_headers": submit + 1, "t_any": first,
        "t_first": first, "t_last": end - MS, "t_end": end, "t_end_user": end, "http_status": 200 if ok else 503,
        "retry_after_ms": -1, "prompt_tokens": 40 + number, "completion_tokens": 3, "reasoning_tokens": -1,
        "cached_tokens": 16 if turn else -1, "flags": layout.FLAG_STREAM | layout.FLAG_DONE, "events": 2,
        "content_events": 2,
        "status": layout.OK if ok else layout.HTTP_ERROR,
    }  # fmt: skip
    return Request(fields, [(first, KIND["content"], 1, 0), (end - MS, KIND["content"], 2, 0)])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A session of two requests, one of a single one, and a failure."""
    write_workers(
        tmp_path,
        [
            request(0, 0, 0, 0, 50),
            request(1, 1, 0, 20, 90),
            request(2, 0, 1, 250, 300),
            request(3, 2, 0, 400, 410, ok=False),
        ],
    )
    manifest = {
        "schema_version": 1, "status": "done", "run_id": "r1", "phases": [],
        "environment": {"clock_offset_ns": OFFSET}, "config": {"target": {"urls": ["http://10.0.0.1:8000"]}},
        "target": {"urls": ["http://10.0.0.1:8000"], "model": "m", "endpoint_type": "openai-chat"},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    return load(tmp_path)


def spans_of(lines: bytes) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines.splitlines()]
    return [
        span
        for each in found
        for one in each["resourceSpans"]
        for scope in one["scopeSpans"]
        for span in scope["spans"]
    ]


def named(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_spans_by_hand(run: Run) -> None:
    around, *calls = spans_of(b"".join(messages(run)))
    zero = 1_800_000_000_000_000_000
    assert len(calls) == 4 and named(around)["gen_ai.operation.name"] == "invoke_agent"
    assert (int(around["startTimeUnixNano"]), int(around["endTimeUnixNano"])) == (zero, zero + 300 * MS)
    by_id = {named(span)["fastllmload.request_id"]: span for span in calls}
    later = by_id["r1-1-2"]
    assert (later["name"], later["kind"], later["traceId"]) == ("chat m", 3, around["traceId"])
    assert later["parentSpanId"] == around["spanId"] == by_id["r1-1-0"]["parentSpanId"]
    assert "parentSpanId" not in by_id["r1-1-1"] and by_id["r1-1-1"]["traceId"] != around["traceId"]
    assert (int(later["startTimeUnixNano"]), int(later["endTimeUnixNano"])) == (zero + 250 * MS, zero + 300 * MS)
    wanted = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": "42", "gen_ai.usage.output_tokens": "3", "gen_ai.usage.cache_read.input_tokens": "16",
        "server.address": "10.0.0.1", "server.port": "8000", "fastllmload.scheduled_delay_ns": "2000",
    }  # fmt: skip
    assert wanted.items() <= named(later).items()
    assert {each["name"]: int(each["timeUnixNano"]) for each in later["events"]} == {
        "fastllmload.first_token_of_any_kind": zero + 260 * MS,
        "fastllmload.first_answer_token": zero + 260 * MS,
        "fastllmload.last_answer_token": zero + 299 * MS,
    }
    failed = by_id["r1-1-3"]
    assert failed["status"]["code"] == 2 and named(failed)["error.type"] == "http_error"
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in calls)
    assert len({span["spanId"] for span in calls}) == 4


def test_our_own_loader_reads_them(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The calls, their tokens, times and sessions come back; the failed call is left out, as of any trace."""
    path = tmp_path / "spans.jsonl"
    assert main(["export", str(run.directory), "--format", "otel", "-o", str(path)]) == 0
    assert detect_format(path) == "otel"
    graph = read_call_graph("otel", path)
    assert (len(graph.session_id), graph.input.tolist(), graph.output.tolist()) == (2, [40, 42, 41], [3, 3, 3])
    assert graph.first_call.tolist() == [0, 2, 3] and graph.turn.tolist() == [0, 1, 0]
    assert graph.start_recorded_ns.tolist() == [0, 250 * MS, 20 * MS]
    assert graph.end_recorded_ns.tolist() == [50 * MS, 300 * MS, 90 * MS]
    assert graph.wait_ns.tolist()[1] == 200 * MS and list(
        zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True)
    ) == [(0, 1)]
    assert graph.cached_tokens is not None and graph.cached_tokens.tolist()[1] == 16


SAMPLES = Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[4] / "shared" / "corpora")) / "agentic"
GRAPHS = (
    "agentic_mooncake.jsonl", "applied_compute.jsonl", "bailian.jsonl", "dag.jsonl", "dynamo_request_trace.jsonl",
    "mooncake_sessions.jsonl", "otel_spans.json", "otlp.json", "sglang_agentic.json", "tracelab.jsonl", "weka_linear.json",
    "weka_rows.jsonl",
)  # fmt: skip
SPEED = 40.0


def check_round_trip(trace: Path, folder: Path, *options: str) -> int:
    """Send *trace*, export the run with its prompts, read it again: the same calls, agents, edges, waits, blocks and
    messages. Returns the number of edges.
    """
    name, spans, sent = detect_format(trace), folder / "spans", str(folder / "run")
    words = ["--workload", name, "--dataset-path", str(trace), "--trace-speed", str(SPEED), "--warmup", "0"]
    words += ["--osl", "3"] if name == "dag" else []
    plan = str(folder / "plan")
    assert main([*words, *(options or ("--tokenizer", "none")), "--ui", "none", "--save-plan", plan, "-o", sent]) == 0
    assert main(["export", sent, "--format", "otel", "-o", str(spans), "--plan", plan]) == 0
    before, after = read_call_graph(name, trace), read_call_graph("otel", spans)
    of_request = {
        f"{span['traceId']}/{span['spanId']}": int(named(span)["fastllmload.request_id"].rpartition("-")[2])
        for span in spans_of(spans.read_bytes())
        if span["kind"] == 3
    }
    request = np.array([of_request[call] for call in after.call_id])
    assert sorted(request.tolist()) == list(range(len(before)))

    def edges(graph: CallGraph, number: np.ndarray, speed: float) -> list[tuple[int, int, int, bool]]:
        wait = np.round(graph.edge_wait_ns / speed).astype(np.int64)
        columns = number[graph.edge_from], number[graph.edge_to], wait, graph.edge_from_start
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    assert edges(after, request, 1.0) == edges(before, np.arange(len(before)), SPEED)
    assert after.wait_ns.tolist() == np.round(before.wait_ns / SPEED)[request].tolist()
    for each in ("turn", "depth", "background", "wait_kind"):
        assert getattr(after, each).tolist() == getattr(before, each)[request].tolist(), each
    # Agents are numbered as they begin, which the server decides.
    number = dict(zip(zip(after.session_of(), after.chain, strict=True), before.chain[request].tolist(), strict=True))
    parents = [number.get(one, -1) for one in zip(after.session_of(), after.parent_chain, strict=True)]
    assert [number[one] for one in zip(after.session_of(), after.chain, strict=True)] == before.chain[request].tolist()
    assert parents == before.parent_chain[request].tolist()
    assert (after.block is None) == (before.block is None or bool((before.context >= 0).any()))
    if after.block is not None:
        shared = [first_alike(before, one) for one in range(len(before))]
        own = np.argsort(request)  # calls of the export by their place in the file that was sent
        assert [first_alike(after, one, own) for one in own] == shared and after.block_tokens == before.block_tokens
        assert (
            after.input[own].tolist() == before.input.tolist() and after.output[own].tolist() == before.output.tolist()
        )
    with tempfile.TemporaryDirectory() as opened:
        sent_plan = load_plan(Path(plan), Path(opened))
        for one, messages in enumerate(after.messages or []):
            body = json.loads(sent_plan.body(int(request[one])))
            assert messages is None or messages == body["messages"]
            assert (messages is None) == bool(sent_plan.turns["flags"][request[one]] & STITCHED)  # type: ignore[index]
    return len(before.edge_from)


def first_alike(graph: CallGraph, call: int, order: np.ndarray | None = None) -> list[tuple[int, int]]:
    """Where each block of *call* is first, in the *order* of calls: the place of that call, and in it."""
    calls = range(len(graph)) if order is None else order.tolist()
    found: dict[int, tuple[int, int]] = {}
    for place, one in enumerate(calls):
        for at, block in enumerate(graph.blocks_of(one).tolist()):
            found.setdefault(block, (place, at))
    return [found[block] for block in graph.blocks_of(call).tolist()]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the agentic samples are not there (FASTLLMLOAD_CORPORA)")
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    check_round_trip(SAMPLES / name, tmp_path)


def test_trees_with_joins_come_back_as_they_were(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", 40, seed=6)
    assert check_round_trip(tmp_path / "trace.jsonl", tmp_path) > 130


def test_a_run_of_the_engine(tmp_path: Path) -> None:
    """As many spans of requests as were measured, each within that of its conversation."""
    run = load(real_run())
    spans = spans_of(b"".join(messages(run)))
    around = {span["spanId"]: span for span in spans if span["kind"] == 1}
    calls = [span for span in spans if span["kind"] == 3]
    inner = [(span, around[span["parentSpanId"]]) for span in calls if "parentSpanId" in span]
    assert inner and all(
        outer["traceId"] == span["traceId"]
        and int(outer["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
        and int(span["endTimeUnixNano"]) <= int(outer["endTimeUnixNano"])
        for span, outer in inner
    )
    assert len(calls) == int((run.rows["phase"] == layout.MEASURE).sum())


class Collector(HTTPServer):
    """Keeps what it is sent; *answer* and *status* are its answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.answer = 200, b"{}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def test_sent_to_a_collector(
    run: Run, collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b,x=1")
    words = ["export", str(run.directory), "--format", "otel", "--to", collector.url]
    assert main(words) == 0
    ((path, headers, body),) = collector.taken
    assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
    assert (headers["Api-Key"], headers["X"]) == ("a b", "1")
    assert spans_of(body) == spans_of(b"".join(messages(run)))
    capsys.readouterr()
    collector.answer = b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}'
    assert main(words) == 3
    assert says(capsys.readouterr().err, "collector-refused", "2 spans", "too old")
    collector.status = 404
    assert main(words) == 3
    assert says(capsys.readouterr().err, "collector-refused", "404")


def test_refusals(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with raises_code("value-invalid", "'host:4318'"):
        endpoint_of("host:4318")
    assert endpoint_of("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"
    assert rejected_of(b"") is None and rejected_of(b"[]") is None
    assert main(["export", str(run.directory), "--to", "http://c"]) == 2
    assert says(capsys.readouterr().err, "option-not-applicable", "--to")
    both = ["export", str(run.directory), "--format", "otel", "--to", "http://c", "-o", str(tmp_path / "x")]
    assert main(both) == 2 and says(capsys.readouterr().err, "options-conflict", "--output")


def test_messages_come_back_as_they_were_sent(tmp_path: Path) -> None:
    """Texts, calls of tools and their answers, definitions of tools, and replies of a planned history, in the convention's
    form; a turn with the server's own reply has none.
    """
    call = {"id": "t1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    rows: list[dict[str, Any]] = [
        {"id": "a", "at_s": 0, "tools": tools, "messages": [
            {"role": "system", "content": "be short"}, {"role": "user", "content": "find it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "t1", "content": "found"},
        ]},
        {"id": "b", "after": ["a"], "context": "a", "tools": tools, "messages": [{"role": "user", "content": "more"}]},
        {"id": "k", "after": ["a"], "chain": "kid", "messages": [{"role": "user", "name": "x", "content": "as it is"}]},
    ]  # fmt: skip
    trace = tmp_path / "t.jsonl"
    every = {"session": "s", "chain": "main", "output_tokens": 2}
    trace.write_text("".join(json.dumps({**every, **row}) + "\n" for row in rows))
    for history in ("planned", "real"):
        folder = tmp_path / history
        folder.mkdir()
        assert check_round_trip(trace, folder, "--history", history) == 2
    spans = [named(span) for span in spans_of((tmp_path / "planned" / "spans").read_bytes()) if span["kind"] == 3]
    first = json.loads(spans[0]["gen_ai.input.messages"])
    assert first[2]["parts"] == [{"type": "tool_call", "id": "t1", "name": "find", "arguments": '{"a": 1}'}]
    assert json.loads(spans[0]["gen_ai.tool.definitions"]) == [{"type": "function", **tools[0]["function"]}]
    after = read_call_graph("otel", tmp_path / "planned" / "spans")
    assert after.tools is not None and after.tools[0] == tools and after.messages is not None
    assert [len(one or ()) for one in sorted(after.messages, key=lambda one: len(one or ()))] == [1, 4, 6]


def test_the_plan_of_another_run_is_refused(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", 2, seed=6)
    options = ["--workload", "agentic-mooncake", "--dataset-path", str(tmp_path / "trace.jsonl"), "--model", "m"]
    assert main([*options, "--warmup", "0", "--ui", "none", "-o", str(tmp_path / "run")]) == 0
    assert main(["plan", "save", str(tmp_path / "p"), *options, "--seed", "9"]) == 0
    words = ["export", str(tmp_path / "run"), "--plan", str(tmp_path / "p")]
    for more in (["--format", "otel"], ["--format", "csv"], ["--format", "otel", "--redact"]):
        assert main([*words, *more, "-o", str(tmp_path / "out")]) == 2
