"""Requests as spans of OpenTelemetry's conventions for generative AI, in OTLP's JSON: to a file, a line per batch, or to the
endpoint of a collector. `workload.traces.otel` reads such files.

A session is a trace; one with several requests has a span around them. A span lasts from the last byte sent to the end of
the answer, in the wall clock of the run's start. A call of a graph has a link to each call that it waited for.
With the run's plan a request has its prompt: messages, or the ids of the trace's blocks that it is made of.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import numpy as np

from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.documents.fields import known
from fastllmload.errors import InputError, RunFolderError, TargetError
from fastllmload.export.columns import blocks
from fastllmload.metrics.run.block_hits import first_blocks
from fastllmload.metrics.run.sent_calls import WAITS, sent_calls, sent_edges
from fastllmload.plan.plan import STITCHED, Plan
from fastllmload.records import layout
from fastllmload.records.run import RowNames, Run
from fastllmload.workload.graph import WaitKind

OWN = "fastllmload."  # of attributes that no convention has
PATH = "/v1/traces"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"  # key=value,key=value: what collectors want for authentication
TIMEOUT_S = 30.0
AT_ONCE = 512  # spans of one message
CLIENT, INTERNAL = 3, 1  # kinds of spans
UNSET, ERROR = 0, 2  # status codes
OPERATIONS = {"openai-completions": "text_completion", "openai-embeddings": "embeddings", "pooling": "embeddings"}
PROVIDERS = {"openai": "openai", "anthropic": "anthropic"}  # by how the name of a protocol begins
Json = dict[str, Any]


def messages(run: Run, plan: Plan | None = None) -> Iterator[bytes]:
    """`ExportTraceServiceRequest`s of the measured requests that were sent and ended, each on one line of JSON. *plan*: of
    the run, whose prompts are added.

    RunFolderError where the run does not say how its clock relates to the time of day.
    """
    offset = known(run.document.environment.clock_offset_ns)
    if offset is None:
        raise RunFolderError(
            "run-not-begun", f"{run.directory} does not say when its clock began, so spans have no time of day"
        )
    document = run.document
    resource = {
        "service.name": "fastllmload",
        "service.version": document.tool.version,
        "fastllmload.run_id": document.run_id,
        "fastllmload.plan.digest": document.plan.digest,
    }
    head = {"resource": {"attributes": attributes(resource)}}
    scope = {"name": "fastllmload", "version": document.tool.version or ""}
    encoder = msgspec.json.Encoder()
    for spans in batches(_spans(run, int(offset), plan)):
        yield encoder.encode({"resourceSpans": [{**head, "scopeSpans": [{"scope": scope, "spans": spans}]}]}) + b"\n"


def batches(spans: Iterable[Json]) -> Iterator[list[Json]]:
    batch: list[Json] = []
    for span in spans:
        batch.append(span)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _spans(run: Run, offset: int, plan: Plan | None) -> Iterator[Json]:
    """The spans around sessions, then those of the requests."""
    rows = run.rows
    chosen = (
        (rows["phase"] == layout.MEASURE) & (rows["t_end"] > 0) & ((rows["t_submit"] > 0) | (rows["t_dispatch"] > 0))
    )
    sessions, begun = _sessions(run, rows, np.flatnonzero(chosen), offset)
    yield from sessions.values()
    target = run.document.target
    run_id = run.document.run_id or ""
    of_class = {one.name: asked_of(one.endpoint_type or "", one.model) for one in target.classes}
    of_run = asked_of(target.endpoint_type or "", target.model)
    waits, prompts = _waits(run, chosen), None if plan is None else Prompts(run, plan)
    for block in blocks(run):
        columns = {name: column.to_list() for name, column in block.columns.items() if name in COLUMNS}
        first = block.part.start
        for at in np.flatnonzero(chosen[block.part]).tolist():
            row = {name: found[at] for name, found in columns.items()}
            fixed = of_class.get(row["class"], of_run)
            own = {} if prompts is None else prompts.attributes(int(rows["request"][first + at]))
            yield _request(
                row, {**fixed, **own}, sessions, int(begun[first + at]), offset, run_id, waits.get(first + at)
            )


def asked_of(spoken: str, model: str | None) -> Json:
    """What requests of the protocol *spoken* ask of a *model*."""
    provider = next((name for start, name in PROVIDERS.items() if spoken.startswith(start)), spoken or "unknown")
    operation = OPERATIONS.get(spoken, "chat")
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider, "gen_ai.request.model": model}


COLUMNS = {
    "request_id", "session_id", "turn", "class", "url", "t_sched_ns", "t_any_ns", "t_first_ns", "t_last_ns", "t_end_ns",
    "status", "http_status", "error", "input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "finish_reason",
}  # fmt: skip


def _sessions(run: Run, rows: Rows, chosen: Numbers, offset: int) -> tuple[dict[int, Json], Numbers]:
    """A span around each session of several requests, and when each row began."""
    begun: Numbers = np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])
    order = chosen[np.argsort(rows["session"][chosen], kind="stable")]
    numbers, first = np.unique(rows["session"][order], return_index=True)
    found: dict[int, Json] = {}
    run_id = run.document.run_id or ""
    for number, mine in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        if len(mine) > 1:
            start, end = int(begun[mine].min()) + offset, int(rows["t_end"][mine].max()) + offset
            span = _span(run_id, number, f"session {number}", f"invoke_agent session {number}", INTERNAL, start, end)
            named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": conversation(run_id, number)}
            found[number] = {**span, "attributes": attributes(named), "status": {"code": UNSET}}
    return found, begun


def _waits(run: Run, chosen: Mask) -> dict[int, Json]:
    """`links` and `attributes` of the rows that are calls of a graph. A graph without edges says nothing of its waits."""
    calls = sent_calls(run, chosen)
    edges = None if calls is None else sent_edges(run, calls)
    if calls is None or edges is None or not len(edges.place):
        return {}
    due = np.zeros(len(calls.rows), np.int64)
    np.maximum.at(due, edges.place, edges.events(calls.rows))
    wait_ns = np.where(due > 0, calls.rows["t_sched"] - due, 0)
    run_id = run.document.run_id or ""
    ids = [span_id(run_id, name) for name in RowNames(run.document).request_ids(calls.rows)]
    traces = [trace_id(run_id, session) for session in calls.rows["session"].tolist()]
    found: dict[int, Json] = {}
    for place, at in enumerate(calls.at.tolist()):
        call = calls.call[place]
        named = {
            f"{OWN}agent": int(call["chain"]),
            f"{OWN}agent.parent": None if call["parent"] < 0 else int(call["parent"]),
            f"{OWN}agent.background": bool(call["background"]),
            f"{OWN}wait_ns": int(wait_ns[place]),
            f"{OWN}wait_kind": WAITS[WaitKind(call["kind"])],
        }
        found[at] = {"links": [], "attributes": named}
    for place, source, wait, from_start in zip(
        edges.place.tolist(), edges.source.tolist(), edges.wait_ns.tolist(), edges.from_start.tolist(), strict=True
    ):
        named = {f"{OWN}wait_ns": wait, f"{OWN}wait_from": "start" if from_start else "end"}
        link = {"traceId": traces[source], "spanId": ids[source], "attributes": attributes(named)}
        found[int(calls.at[place])]["links"].append(link)
    return found


class Prompts:
    """What the *plan* of a run says of the prompts of its requests."""

    def __init__(self, run: Run, plan: Plan) -> None:
        facts = run.document.plan.description.workload.sessions
        ideal = None if facts is None else facts.ideal
        self._plan, self._block_tokens = plan, 0 if ideal is None else int(known(ideal.block_tokens) or 0)
        if plan.calls is None or plan.blocks is None or plan.nodes is not None:
            self._block_tokens = 0
        self._first = None if not self._block_tokens else first_blocks(plan)
        self._every = 0 if plan.blocks is None else int(plan.blocks.max(initial=0)) + 1

    def attributes(self, request: int) -> Json:
        """Of one request: planned lengths, and its blocks, or the messages of a prompt that is complete in the plan."""
        plan = self._plan
        again, planned = divmod(request, plan.requests)
        found: Json = {
            f"{OWN}input_tokens": int(plan.input_tokens[planned]),
            f"{OWN}output_tokens": int(plan.output_tokens[planned]),
        }
        if self._first is not None and plan.blocks is not None:
            own = plan.blocks[self._first[planned] : self._first[planned + 1]].astype(np.int64) + again * self._every
            return {**found, f"{OWN}block_tokens": self._block_tokens, f"{OWN}blocks": own.tolist()}
        if plan.turns is not None and plan.turns["flags"][planned] & STITCHED:
            return found
        try:
            body = msgspec.json.decode(plan.body(planned))
        except msgspec.DecodeError:
            return found  # of a protocol whose messages are not JSON
        asked: Json = body if isinstance(body, dict) else {}
        said, tools = asked.get("messages"), asked.get("tools")
        if not isinstance(said, list):
            return found
        found["gen_ai.input.messages"] = text_of([in_parts(one) for one in said])
        if isinstance(tools, list):
            found["gen_ai.tool.definitions"] = text_of([{"type": "function", **one["function"]} for one in tools])
        return found


def text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def in_parts(message: Json) -> Json:
    """A message of OpenAI's chat as the convention has it; as it is where it has more than text and calls of tools."""
    role, content = message.get("role"), message.get("content")
    calls: list[Json] = message.get("tool_calls") or []
    if message.keys() <= {"role", "content"} and isinstance(content, str) and role != "tool":
        return {"role": role, "parts": [{"type": "text", "content": content}]}
    if message.keys() == {"role", "content", "tool_call_id"} and role == "tool" and isinstance(content, str):
        return {
            "role": role,
            "parts": [{"type": "tool_call_response", "id": message["tool_call_id"], "response": content}],
        }
    plain = calls and all(one.keys() == {"id", "type", "function"} and one["type"] == "function" for one in calls)
    if calls and plain and message.keys() == {"role", "content", "tool_calls"} and content is None:
        return {"role": role, "parts": [{"type": "tool_call", "id": one["id"], **one["function"]} for one in calls]}
    return message


def conversation(run_id: str, session: int) -> str:
    return f"{run_id or 'run'}-session-{session}"


def _span(run_id: str, session: int, name: str, title: str, kind: int, start: int, end: int) -> Json:
    """*name* is unique in the run; ids are its hashes, so that a second export has the same."""
    return {
        "traceId": trace_id(run_id, session),
        "spanId": span_id(run_id, name),
        "name": title,
        "kind": kind,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
    }


def trace_id(run_id: str, session: int) -> str:
    return hashlib.sha256(f"{run_id}/{session}".encode()).hexdigest()[:32]


def span_id(run_id: str, name: str) -> str:
    return hashlib.sha256(f"{run_id}/{name}".encode()).hexdigest()[:16]


def _request(
    row: Json, fixed: Json, sessions: Mapping[int, Json], begun: int, offset: int, run_id: str, waits: Json | None
) -> Json:
    """*waits*: those of a call of a graph."""
    session, start = int(row["session_id"]), begun + offset
    title = f"{fixed['gen_ai.operation.name']} {fixed['gen_ai.request.model'] or ''}".strip()
    span = _span(run_id, session, str(row["request_id"]), title, CLIENT, start, int(row["t_end_ns"]) + offset)
    if session in sessions:
        span["parentSpanId"] = sessions[session]["spanId"]
    ok = row["status"] == layout.STATUS_NAMES[layout.OK]
    address = urlsplit(str(row["url"]))
    output = row["output_tokens"]
    named = {
        **fixed,
        "gen_ai.conversation.id": conversation(run_id, session),
        "gen_ai.usage.input_tokens": row["input_tokens"],
        "gen_ai.usage.output_tokens": output,
        "gen_ai.usage.cache_read.input_tokens": row["cached_tokens"],
        "gen_ai.response.finish_reasons": None if row["finish_reason"] is None else [row["finish_reason"]],
        "server.address": address.hostname,
        "server.port": address.port if address.hostname else None,
        "http.response.status_code": row["http_status"],
        "error.type": None if ok else row["error"] or row["status"],
        "fastllmload.request_id": row["request_id"],
        "fastllmload.turn": row["turn"],
        "fastllmload.class": row["class"] if isinstance(row["class"], str) else None,
        "fastllmload.usage.reasoning_tokens": row["reasoning_tokens"],
        "fastllmload.scheduled_delay_ns": None if row["t_sched_ns"] is None else begun - row["t_sched_ns"],
        **({} if waits is None else waits["attributes"]),
    }
    events = {
        "first_token_of_any_kind": "t_any_ns",
        "first_answer_token": "t_first_ns",
        "last_answer_token": "t_last_ns",
    }
    return {
        **span,
        **({} if waits is None else {"links": waits["links"]}),
        "attributes": attributes(named),
        "events": [
            {"timeUnixNano": str(row[time] + offset), "name": f"fastllmload.{name}"}
            for name, time in events.items()
            if row[time] is not None
        ],
        "status": {"code": UNSET} if ok else {"code": ERROR, "message": str(row["error"] or row["status"])},
    }


def attributes(found: Mapping[str, Any]) -> list[Json]:
    """OTLP's array of keys and values; None is left out."""
    return [{"key": name, "value": typed(value)} for name, value in found.items() if value is not None]


def typed(value: Any) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(each) for each in value]}}
    return {"stringValue": str(value)}


# -- sending -----------------------------------------------------------------------------------------------------------


def endpoint_of(url: str) -> str:
    """*url* with OTLP's path where it has none. InputError for what is not a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            "value-invalid", f"--to {url!r} is not the URL of a collector; write for example http://HOST:4318"
        )
    return url if parts.path.strip("/") else url.rstrip("/") + PATH


def send(run: Run, url: str, plan: Plan | None = None) -> int:
    """Post all spans to a collector (OTLP over HTTP, JSON); the number of messages. TargetError where it takes none, or not
    all.
    """
    endpoint, sent = endpoint_of(url), 0
    for message in messages(run, plan):
        post(endpoint, message)
        sent += 1
    return sent


def post(url: str, message: bytes) -> None:
    request = urllib.request.Request(url, message, {"Content-Type": "application/json", **extra_headers()})
    shown = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            answer = response.read(1 << 20)
    except urllib.error.HTTPError as problem:
        raise TargetError(
            "collector-refused",
            f"{shown} answered with HTTP {problem.code}; give with --to where the collector takes OTLP",
        ) from None
    except OSError as problem:
        reason = getattr(problem, "reason", problem)
        raise TargetError("collector-refused", f"{shown} cannot be reached: {reason}; is a collector there?") from None
    rejected = rejected_of(answer)
    if rejected:
        raise TargetError("collector-refused", f"{shown} did not take {rejected[0]} spans: {rejected[1]}")


def rejected_of(answer: bytes) -> tuple[int, str] | None:
    """How many spans a collector left out, and why."""
    try:
        found = msgspec.json.decode(answer or b"{}").get("partialSuccess") or {}
        rejected = int(found.get("rejectedSpans") or 0)
    except (msgspec.DecodeError, AttributeError, TypeError, ValueError):
        return None  # an answer in another form says nothing
    return (rejected, str(found.get("errorMessage") or "no reason given")) if rejected else None


def extra_headers() -> dict[str, str]:
    pairs = (each.partition("=") for each in os.environ.get(HEADERS, "").split(",") if "=" in each)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
