"""Spans of OpenTelemetry's conventions for generative AI, in three forms of files.

A trace is a session, and so are traces of one conversation. The nearest `invoke_agent` span around a call is its agent.
Edges follow from, in this order: a tool that ran between two calls of one agent; the spans around a child's calls, which
say which agent spawned it, and by which tool call; the times. In an export of ours (`export.otlp`) each call has a link to
every call that it waited for, and its waits: these are taken as they are, and so are planned lengths and ids of blocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy.typing as npt

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph, Message, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.sharing.blocks import block_ids
from fastllmload.workload.traces.recorded import RecordedAgent, RecordedSpans, link, overlap_notes
from fastllmload.workload.traces.spans import Json, OtelSpan, read_spans
from fastllmload.workload.traces.trace_file import TraceFile

CALLS = ("chat", "text_completion", "generate_content")
TOOL, AGENT = "execute_tool", "invoke_agent"
OWN = "fastllmload."
KINDS = {kind.name.lower(): kind for kind in WaitKind}


def read(file: TraceFile) -> CallGraph:
    sessions: dict[str, list[OtelSpan]] = {}
    first_of: dict[str, str] = {}  # the trace that a conversation began with
    spans = read_spans(file)
    for span in spans:
        conversation = span.text("gen_ai.conversation.id")
        if conversation is not None:
            first_of.setdefault(span.trace, first_of.setdefault(f"conversation {conversation}", span.trace))
    for span in spans:
        sessions.setdefault(first_of.get(span.trace, span.trace), []).append(span)
    rules: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    calls: list[TracedCall] = []
    sizes: dict[int, str] = {}
    for name, found in sessions.items():
        session = _OtelSession(name, found)
        session.link(rules)
        left_out += session.left_out
        sizes = session.block_tokens | sizes
        calls += [call for agent in session.agents.values() for call in agent.calls]
    by_rule = ", ".join(f"{rules[rule]} by {rule}" for rule in ("tool", "agent", "time"))
    if rules["stated"]:
        by_rule += f", {rules['stated']} as stated"
    if rules["lost"]:
        left_out["links to calls that are left out"] = rules["lost"]
    notes = [f"what waits for what: {by_rule}", *overlap_notes(rules, 0)]
    if left_out["failed calls"]:
        notes.append("a wait after a failed call contains the time of that call")
    if len(sizes) > 1:
        (size, _), (other, where) = list(sizes.items())[:2]
        raise field_error(f"{where}: {OWN}block_tokens is {other}, and {size} before; give all blocks one size")
    return build_graph(
        "otel", file.sha256, calls, block_tokens=next(iter(sizes), 0), left_out=left_out, notes=notes
    )  # fmt: skip


class _OtelSession:
    """The agents of one session, with their calls."""

    def __init__(self, name: str, spans: list[OtelSpan]) -> None:
        self._name = name
        self._spans = {(span.trace, span.id): span for span in spans}
        self.agents: dict[str, RecordedAgent] = {}
        self.left_out: Counter[str] = Counter()
        self._tools: defaultdict[str, RecordedSpans] = defaultdict(RecordedSpans)
        self._issuer: dict[str, TracedCall] = {}  # the call whose answer has the tool call
        self._sent: list[tuple[TracedCall, OtelSpan]] = []
        self.block_tokens: dict[int, str] = {}  # by where it is stated first
        for span in spans:
            if span.operation == TOOL:
                self._tools[self._agent_of(span)].append((span.start_ns, span.end_ns))
            elif span.operation in CALLS or (not span.operation and span.text("gen_ai.request.model")):
                self._add(span)
        for span in spans:
            if span.operation == AGENT and (agent := self.agents.get(f"{span.trace}/{span.id}")) is not None:
                self._set_parent(agent, span)

    def _around(self, span: OtelSpan) -> Iterator[OtelSpan]:
        """The spans around *span*, from the innermost."""
        seen = {span.id}
        while (outer := self._spans.get((span.trace, span.parent))) is not None and outer.id not in seen:
            seen.add(outer.id)
            yield outer
            span = outer

    def _agent_of(self, span: OtelSpan) -> str:
        inner = next((one for one in self._around(span) if one.operation == AGENT), None)
        return span.trace if inner is None else f"{inner.trace}/{inner.id}"

    def _add(self, span: OtelSpan) -> None:
        if span.failed:
            self.left_out["failed calls"] += 1
            return
        messages = _messages(span)
        prompt = span.count(f"{OWN}input_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens") or 0
        answer = span.count(f"{OWN}output_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens") or 0
        if messages is None and min(prompt, answer) < 1:
            self.left_out["calls without tokens or messages"] += 1
            return
        name = self._agent_of(span)
        call = TracedCall(f"{span.trace}/{span.id}", span.where, name, prompt, answer, session=self._name)
        call.start_ns, call.end_ns, call.messages = span.start_ns, span.end_ns, messages
        call.model = span.text("gen_ai.request.model", "gen_ai.response.model")
        call.blocks = self._blocks(span)
        call.tools = _tools(span.structure("gen_ai.tool.definitions"))
        call.cached = span.count("gen_ai.usage.cache_read.input_tokens")
        for one in _tool_calls(span.structure("gen_ai.output.messages")):
            self._issuer[one] = call
        self._sent.append((call, span))
        self.agents.setdefault(name, RecordedAgent(name)).calls.append(call)

    def _blocks(self, span: OtelSpan) -> npt.NDArray[Any] | None:
        """The ids of blocks that an export of ours states."""
        found, size = span.structure(f"{OWN}blocks"), span.count(f"{OWN}block_tokens")
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
            raise field_error(f"{span.where}: {OWN}blocks is not an array of whole numbers")
        self.block_tokens.setdefault(size or 0, span.where)
        return block_ids(found, span.where)

    def _set_parent(self, agent: RecordedAgent, span: OtelSpan) -> None:
        """The nearest agent around *span* that had begun to call before; none when there is none."""
        names = [f"{one.trace}/{one.id}" for one in self._around(span) if one.operation == AGENT]
        outer = (self.agents.get(name) for name in [*names, span.trace])
        agent.parent = next((one for one in outer if one is not None and one.first_ns() <= agent.first_ns()), None)
        tool = next((one for one in self._around(span) if one.operation == TOOL), None)
        issuer = self._issuer.get((tool.text("gen_ai.tool.call.id") or "") if tool is not None else "")
        if issuer is not None and agent.parent is not None and issuer in agent.parent.calls:
            agent.spawner = issuer

    def link(self, rules: Counter[str]) -> None:
        """Set what calls wait for, and count the edges by the rule that they follow from."""
        if self._sent and all(span.text(f"{OWN}wait_ns") is not None for _, span in self._sent):
            self._take(rules)
            return
        by = link(list(self.agents.values()), by_time=True)
        rules["overlap"] += by["overlap"]
        rules["agent"] += by["spawn"] + by["join"]
        rules["time"] += by["time"] + by["overlap"]
        for agent in self.agents.values():
            before = {call.id: call for call in agent.calls}
            for call in agent.calls:
                if agent.parent is None:
                    call.parent = ""
                own = [before[one.call] for one in call.after if one.call in before and not one.from_start]
                ran = [self._tools[agent.name].within(one.start_ns or 0, call.start_ns or 0) for one in own]
                rules["tool"] += sum(ran)
                rules["time"] += len(own) - sum(ran)
                if own or call.after:
                    self._classify(call, any(ran))

    def _take(self, rules: Counter[str]) -> None:
        """Set what calls wait for as they state it."""
        by_id = {call.id: call for call, _ in self._sent}
        for call, span in self._sent:
            kind, parent = span.text(f"{OWN}wait_kind") or "unknown", span.count(f"{OWN}agent.parent")
            if kind not in KINDS:
                raise field_error(f"{span.where}: {OWN}wait_kind is {kind!r}; write {', '.join(KINDS)}")
            call.chain = f"{self._name}/{span.count(f'{OWN}agent') or 0}"
            call.parent = "" if parent is None else f"{self._name}/{parent}"
            call.background = span.attributes.get(f"{OWN}agent.background") is True
            call.wait_kind, call.wait_ns = KINDS[kind], span.count(f"{OWN}wait_ns") or 0
            call.tool_ns = call.wait_ns if call.wait_kind == WaitKind.TOOL else 0
            call.after = [self._edge(span, *one) for one in span.links if one[0] in by_id]
            rules["stated"] += len(call.after)
            rules["lost"] += len(span.links) - len(call.after)
        for call, _ in sorted(self._sent, key=lambda one: one[0].start_ns or 0):
            # Of calls that count from an instant, the later one may have been sent some microseconds earlier.
            begun = max((by_id[one.call].start_ns or 0 for one in call.after), default=0)
            call.start_ns = max(call.start_ns or 0, begun)
            call.end_ns = max(call.end_ns or 0, call.start_ns)

    def _edge(self, span: OtelSpan, call: str, attributes: Json) -> After:
        of = replace(span, attributes=attributes)
        since = of.text(f"{OWN}wait_from") or "end"
        if since not in ("end", "start"):
            raise field_error(f"{span.where}: {OWN}wait_from of a link is {since!r}; write end or start")
        return After(call, of.count(f"{OWN}wait_ns") or 0, since == "start")

    def _classify(self, call: TracedCall, ran: bool) -> None:
        assert call.start_ns is not None
        call.tool_ns = self._tools[call.chain].inside(call.start_ns - call.wait_ns, call.start_ns)
        if call.wait_kind:
            return
        if ran:
            call.wait_kind = WaitKind.TOOL
        elif call.messages and call.messages[-1].get("role") == "user":
            call.wait_kind = WaitKind.USER


# -- messages ----------------------------------------------------------------------------------------------------------


def _messages(span: OtelSpan) -> list[Message] | None:
    """The messages of the prompt in OpenAI's form; None where they are not recorded."""
    found = span.structure("gen_ai.input.messages")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise field_error(f"{span.where}: gen_ai.input.messages is not an array of messages")
    system = span.attributes.get("gen_ai.system_instructions")
    if isinstance(system, str) and system.startswith("["):
        system = span.structure("gen_ai.system_instructions")
    parts = [{"role": "system", "parts": system if isinstance(system, list) else [system]}] if system else []
    return [message for one in [*parts, *found] for message in _message(one)] or None


def _message(one: Message) -> list[Message]:
    """A message of parts as messages of OpenAI: a tool's answer is a message of its own."""
    parts = one.get("parts")
    if not isinstance(parts, list):
        return [one]
    role = one.get("role", "user")
    parts = [part if isinstance(part, dict) else {"type": "text", "content": part} for part in parts]
    found: list[Message] = []
    texts = [str(part.get("content", "")) for part in parts if part.get("type", "text") == "text"]
    calls = [part for part in parts if part.get("type") == "tool_call"]
    if texts or calls:
        found.append({"role": role, "content": "\n".join(texts) if texts else None})
    if calls:
        found[0]["tool_calls"] = [
            {"id": part.get("id"), "type": "function",
             "function": {"name": part.get("name"), "arguments": _text(part.get("arguments"))}}
            for part in calls
        ]  # fmt: skip
    for part in parts:
        if part.get("type") == "tool_call_response":
            answer = next((part[name] for name in ("response", "result", "content") if name in part), "")
            found.append({"role": "tool", "tool_call_id": part.get("id"), "content": _text(answer)})
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _tool_calls(messages: Any) -> list[str]:
    """Ids of the tool calls in an answer, in either form."""
    entries = [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
    parts = [part for one in entries for part in one.get("parts") or () if isinstance(part, dict)]
    calls = [part for one in entries for part in one.get("tool_calls") or () if isinstance(part, dict)]
    return [str(one["id"]) for one in (*(p for p in parts if p.get("type") == "tool_call"), *calls) if one.get("id")]


def _tools(found: Any) -> list[Any] | None:
    """Definitions of tools in OpenAI's form."""
    if not isinstance(found, list):
        return None
    return [
        one if "function" in one else {"type": "function", "function": {key: one[key] for key in one if key != "type"}}
        for one in found
        if isinstance(one, dict)
    ]
