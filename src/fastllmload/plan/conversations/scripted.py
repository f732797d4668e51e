"""Conversations of a data set, and of the workload `conversation`: ShareGPT's, or generated questions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from fastllmload import settings as asked
from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import DatasetFacts, IdealHitRates, SharedText, WorkloadDescription
from fastllmload.endpoint import Endpoint
from fastllmload.endpoint.protocols.openai import OPENAI_CHAT
from fastllmload.endpoint.turns import TurnTemplate, stand_in
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.conversations.opening import Opening
from fastllmload.plan.conversations.session_facts import inexact_turns
from fastllmload.plan.conversations.synthetic import TOOL
from fastllmload.plan.conversations.turns import (
    MOST_TURNS,
    Begun,
    Tally,
    ThinkTimes,
    TurnPart,
    escaped,
    line_calls,
    turn_lines,
    write_conversations,
)
from fastllmload.plan.plan import CALLS
from fastllmload.plan.prompts.dataset import subset_facts
from fastllmload.plan.prompts.encoder import RequestEncoder
from fastllmload.plan.prompts.source import Origin, described
from fastllmload.workload.conversation import (
    STAND_IN,
    SYSTEM_SHARE,
    SYSTEM_TOKENS,
    Conversation,
    Questions,
    SystemPrompt,
)
from fastllmload.workload.dialogues import Dialogues, ScriptedTurn
from fastllmload.workload.lengths import Lengths, parse_lengths
from fastllmload.workload.request import DatasetRequest, field_error
from fastllmload.workload.sharing.messages import line_hits
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.underway import turns_over
from fastllmload.workload.user_behavior import read_pause

CONVERSATION = "conversation"
MOST_DRAWN, DRAWN_PER_SLOT = 256, 16  # generated conversations among which those of slots are chosen


class ScriptedConversations:
    """Conversations of a file (*dialogues*), or generated ones without it."""

    instants = None

    def __init__(
        self,
        workload: asked.Workload,
        origin: Origin,
        *,
        warmup: bool,
        dialogues: Dialogues | None = None,
        opening: Opening | None = None,
    ) -> None:
        origin = origin if opening is None else opening.origin  # the warm-up of conversations under way has their text
        self.workload, self._origin, self._opening = workload, origin, opening
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        self._standard = workload.name == CONVERSATION
        self._dialogues = dialogues
        self._classes = [] if self._dialogues is None else self._dialogues.classes()
        self._system = SystemPrompt(self._tokenizer, f"{origin}/prefix") if self._standard else None
        self._most = None if workload.turns in (None, "all") else parse_lengths(workload.turns, "--turns")
        self._lengths = Mersenne(f"{origin}/lengths")
        self._counts = Mersenne(f"{origin}/turns")
        self._pause = read_pause(workload.think_time)
        self._think_times = ThinkTimes(self._pause, f"{origin}/think", warmup)
        self._warmup = warmup
        self._tally = Tally()
        self._turns, self._chosen, self._over = np.empty(0, np.int64), list[int](), list[int]()
        if opening is not None:
            self._choose(opening)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        encoder = RequestEncoder(endpoint, model, self.workload)
        scripts = self._scripts()
        if self._opening is None:
            dialogues = (self._parts(encoder, endpoint, script) for script in scripts)
            needed = islice(dialogues, quota.requests) if by_starts else until(dialogues, quota)
            written, self._tally = write_conversations(path, needed, endpoint.joint, self.workload.history)
            return replace(written, conversations=self._tally.described(self.workload))
        begun = self._begun(self._opening, encoder, endpoint, scripts)
        seen = [one.seen for one in begun if one.before]
        if self._warmup and seen:
            return replace(self._write_seen(path, seen, quota, endpoint), conversations=None)
        dialogues = (self._parts(encoder, endpoint, script) for script in scripts)
        rest = islice(dialogues, max(0, quota.requests - len(begun))) if by_starts else until(dialogues, quota)
        sent = [*begun, *map(Begun, rest)]
        if self._warmup:
            written, self._tally = write_conversations(path, sent, endpoint.joint, self.workload.history)
            return replace(written, conversations=self._tally.described(self.workload))
        return self._write_begun(path, sent, seen, endpoint)

    def _parts(
        self, encoder: RequestEncoder, endpoint: Endpoint, script: Sequence[ScriptedTurn], before: int = 0
    ) -> list[TurnPart]:
        """*before*: how many of the turns are history."""
        turns = [self._with_system_prompt(script[0], endpoint), *script[1:]]
        carried = len(turns) - 1 if self.workload.history == "planned" else before
        return [self.part(encoder, endpoint, each, number, number < carried) for number, each in enumerate(turns)]

    def _scripts(self) -> Iterator[tuple[ScriptedTurn, ...]]:
        """Without end: conversations of the requested number of turns, or all that they have. Where slots begin in the
        middle of conversations, those come first, and later the others in their order.
        """
        if self._dialogues is None:
            assert self._most is not None
            answered = self.workload.history == "planned" or self._opening is not None
            source = Conversation(self._tokenizer, self._origin, f"{self._origin}/prefix", chat=False, osl=self._osl)
            questions = Questions(source, self._tokenizer, self._origin, answered)
            for number in self._chosen:
                yield questions.take(int(self._turns[number]))
            while True:
                yield questions.take(length(self._most, self._counts))
        entries, left = self._dialogues.entries, Counter(self._chosen)
        for number in self._chosen:
            yield entries[number][: self._turns[number]]
        number_of = {id(entry): number for number, entry in enumerate(entries)} if left else {}
        for script in self._dialogues.ordered(self._origin):
            number = number_of.get(id(script), -1)
            if left[number]:
                left[number] -= 1
                continue
            yield script if self._most is None else script[: length(self._most, self._counts)]

    # -- conversations that are under way -----------------------------------------------------------------------------

    def _choose(self, opening: Opening) -> None:
        """Set which conversations slots begin with, how many turns each has, and how many are over."""
        many = max(MOST_DRAWN, DRAWN_PER_SLOT * opening.slots) if self._dialogues is None else None
        own = [MOST_TURNS] * many if many is not None else [len(one) for one in self._dialogues.entries]  # type: ignore[union-attr]
        drawn = own if self._most is None else [min(one, length(self._most, self._counts)) for one in own]
        self._turns = np.array(drawn, np.int64)
        chosen, over = turns_over(self._turns, opening.start, opening.slots, opening.stream)
        self._chosen, self._over = chosen.tolist(), over.tolist()

    def _begun(
        self, opening: Opening, encoder: RequestEncoder, endpoint: Endpoint, scripts: Iterator[tuple[ScriptedTurn, ...]]
    ) -> list[Begun]:
        """What slots begin with, the first to be due first: each at a uniform instant of the time to think before it."""
        stream = random.Random(f"{opening.stream}/due")
        found = []
        for before, script in zip(self._over, islice(scripts, opening.slots), strict=True):
            unanswered = next((turn for turn in script[:before] if turn.reply is None), None)
            if unanswered is not None:
                raise InputError(
                    "option-not-applicable",
                    f"--session-start: {unanswered.request.where} has no reply, and the history of a conversation that is "
                    "under way has one; add reply to it, or leave --session-start out",
                )
            parts = self._parts(encoder, endpoint, script, before)
            found.append(Begun(parts, before, round(parts[before].think_ns * stream.random())))
        return sorted(found, key=lambda one: one.due_ns)

    def _write_begun(self, path: Path, sent: Sequence[Begun], seen: Sequence[Begun], endpoint: Endpoint) -> Bodies:
        assert self._opening is not None
        written, self._tally = write_conversations(path, sent, endpoint.joint, self.workload.history)
        assert written.turns is not None
        calls = line_calls(written.turns, [one.before for one in sent])
        planned, primed = self.workload.history == "planned", seen if self._opening.primed else ()
        hits = None
        if self._tokenizer is not None and endpoint.takes("messages"):
            hits = line_hits([turn_lines(one) for one in [*primed, *sent]], len(primed), self._tokenizer, planned)
        calls["ideal_tokens"] = -1 if hits is None else hits.whole_tokens
        found = msgspec.structs.replace(
            self._tally.described(self.workload),
            start=self.workload.session_start,
            under_way=len(seen),
            turns_before=sum(one.before for one in sent),
            ideal=None
            if hits is None
            else IdealHitRates(token_share=hits.token_rate(), whole_block_share=hits.whole_rate(), scope=hits.scope),
            inexact=inexact_turns(self.workload, hits is not None),
        )
        return replace(written, conversations=found, graph={CALLS: calls})

    def _write_seen(self, path: Path, seen: Sequence[Begun], quota: Quota, endpoint: Endpoint) -> Bodies:
        """The warm-up: the last turn before time zero of every conversation, again and again until *quota* is met."""
        number = tokens = prompts = 0
        while number < len(seen) or not quota.met(number, tokens, prompts):
            last = seen[-1 - number % len(seen)].parts[-1]
            number, tokens, prompts = number + 1, tokens + last.output, prompts + last.own
        repeated = (seen[place % len(seen)] for place in range(-number, 0))
        written, self._tally = write_conversations(path, repeated, endpoint.joint, self.workload.history)
        return written

    def _with_system_prompt(self, turn: ScriptedTurn, endpoint: Endpoint) -> ScriptedTurn:
        """The first turn, after the system prompt if it has one."""
        text = turn.request.content
        if self._system is None or not self._system.is_next():
            return turn
        assert isinstance(text, str)
        content = self._system.prepend_to(text, chat=endpoint.takes("messages"))
        tokens = (turn.request.input_tokens or 0) + SYSTEM_TOKENS
        return replace(turn, request=replace(turn.request, content=content, input_tokens=tokens))

    def part(
        self, encoder: RequestEncoder, endpoint: Endpoint, turn: ScriptedTurn, number: int, carried: bool
    ) -> TurnPart:
        """Turn *number* of a conversation. *carried*: a later one has its recorded reply."""
        request = as_turn(turn.request, endpoint)
        request = with_open_reply(with_planned_calls(request, endpoint, number)) if number else request
        one = encoder.in_form(request)
        if number and one.extra != request.extra:
            raise field_error(
                f"{one.where}: {endpoint.name} takes a message of role system in a conversation's first turn only"
            )
        output = self._output(turn)
        body, pieces = encoder.encode(one, output), encoder.pieces(one)
        own = request.tokens(self._tokenizer)
        think = 0 if not number else self._think_ns(turn)
        planned, reply_tokens, reply = b"", 0, ""
        if carried:
            planned, reply_tokens, reply = self._planned(turn), self._reply_tokens(turn, output), turn.reply or ""
        skip, tail = pieces.skip, pieces.closing(output)
        reply_at, takes = 0, True
        if number and isinstance(one.content, list):
            body, reply_at, takes = place_reply(body, skip, one, endpoint.joint)
        kind = self._classes.index(one.name or "") if self._classes else 0
        said = tuple(one.content) if self._opening is not None and isinstance(one.content, list) else ()
        return TurnPart(
            body, skip, tail, own, output, planned, reply_at, takes, think, kind, reply_tokens,
            cast("tuple[dict[str, Any], ...]", said), reply,
        )  # fmt: skip

    def _reply_tokens(self, turn: ScriptedTurn, output: int) -> int:
        return output if self._tokenizer is None or turn.reply is None else self._tokenizer.count(turn.reply)

    def _output(self, turn: ScriptedTurn) -> int:
        own = self._dialogues is not None and self._dialogues.own_lengths and turn.request.output_tokens is not None
        if self._osl is not None and self._dialogues is not None and not own:
            return self._osl.draw(self._lengths)
        if turn.request.output_tokens is not None:
            return turn.request.output_tokens
        if turn.reply is None or self._tokenizer is None:
            raise InputError("output-length-missing", f"{turn.request.where} has no output length; add --osl")
        return max(1, self._tokenizer.count(turn.reply))

    def _planned(self, turn: ScriptedTurn) -> bytes:
        if turn.reply is None:
            raise InputError(
                "output-length-missing", f"{turn.request.where} has no reply for a planned history; use --history real"
            )
        return escaped(turn.reply)

    def _think_ns(self, turn: ScriptedTurn) -> int:
        """The delay in the data set, else a drawn think time."""
        if turn.delay_s is None:
            return self._think_times.next_ns()
        return 0 if self._warmup else round(turn.delay_s * 1e9)

    def describe(self) -> WorkloadDescription:
        workload, dialogues = self.workload, self._dialogues
        lengths = "data set" if dialogues is not None else workload.name
        osl = lengths if workload.osl is None else workload.osl
        found = described(workload, self._tokenizer, lengths, osl, "data set" if dialogues is not None else "composed")
        if self._standard:
            system = SharedText(tokens=SYSTEM_TOKENS, share=SYSTEM_SHARE)
            found = msgspec.structs.replace(found, system_prompt=system, stand_in=dialogues is None)
        if dialogues is None:
            return msgspec.structs.replace(found, deviations=(STAND_IN, *found.deviations))
        facts = DatasetFacts(
            sha256=dialogues.sha256,
            requests=sum(len(entry) for entry in dialogues.entries),
            conversations=len(dialogues.entries),
            left_out=dialogues.left_out,
            order="drawn without replacement by the seed" if dialogues.shuffled else "as in the file",
            rounds=self._tally.conversations / len(dialogues.entries),
            classes=tuple(self._classes),
        )
        return msgspec.structs.replace(found, dataset=subset_facts(facts, workload))


def until(conversations: Iterator[list[TurnPart]], quota: Quota) -> Iterator[list[TurnPart]]:
    """Complete conversations until *quota* is met."""
    requests = outputs = inputs = 0
    while not quota.met(requests, outputs, inputs):
        parts = next(conversations)
        requests += len(parts)
        outputs += sum(part.output for part in parts)
        inputs += sum(part.own for part in parts)
        yield parts


def length(lengths: Lengths, stream: Mersenne) -> int:
    return max(1, lengths.draw(stream))


def as_turn(one: DatasetRequest, endpoint: Endpoint) -> DatasetRequest:
    """*one* with its prompt as a user's message if the protocol has messages."""
    if isinstance(one.content, str) and endpoint.takes("messages"):
        message = [{"role": "user", "content": one.content}]
        return replace(one, content=message)
    return one


def with_planned_calls(one: DatasetRequest, endpoint: Endpoint, number: int) -> DatasetRequest:
    """Turn *number* with planned calls, if it begins with messages of role `tool`, for replies that do not call.

    These answer the calls of the previous reply in order. InputError for a first turn, which no call precedes.
    """
    content = one.content
    if isinstance(content, str) or not content or not isinstance(content[0], dict) or content[0].get("role") != "tool":
        return one
    # A data set has chat's form; where that is changed into the protocol's, so are the calls.
    tools = endpoint.joint.tools if endpoint.messages is None else OPENAI_CHAT.joint.tools
    if endpoint.joint.tools is None or tools is None:
        raise field_error(f"{one.where}: the protocol has no messages of role tool")
    if not number:
        raise field_error(f"{one.where}: a conversation cannot begin with a message of role tool: no call precedes it")
    answers = list(takewhile(lambda message: isinstance(message, dict) and message.get("role") == "tool", content))
    calls, named = [], []
    for place, message in enumerate(answers):
        name = str(message.get("tool_name") or message.get("name") or TOOL)
        call, names = stand_in(tools, name, str(message.get("tool_call_id") or f"t{number:04x}{place:04x}"))
        calls.append(call)
        named.append({**message, **names})
    opening = {"role": "assistant", "content": None, "tool_calls": calls}
    return replace(one, content=[opening, *named, *content[len(answers) :]])


def with_open_reply(one: DatasetRequest) -> DatasetRequest:
    """A later turn in which an assistant's message without content, at its begin, has a place for the reply."""
    first: Any = one.content[0]
    if not isinstance(first, dict) or first.get("role") != "assistant" or first.get("content"):
        return one
    rest = {name: value for name, value in first.items() if name not in ("role", "content")}
    opening = [{"role": "assistant", "content": "", **rest}] if rest or len(one.content) == 1 else []
    return replace(one, content=[*opening, *cast("list[dict[str, Any]]", one.content[1:])])


def place_reply(body: bytes, skip: int, one: DatasetRequest, joint: TurnTemplate) -> tuple[bytes, int, bool]:
    """Body, position of the reply in it, and whether it takes a reply, of a later turn.

    A turn that begins with an assistant's message has its own answer, unless that is a tool call without content.
    """
    assert isinstance(one.content, list)
    first, tools, own = one.content[0], joint.tools, body[skip:]
    assert isinstance(first, dict)
    if tools is not None:
        opening = tools.json.partition("$said")[0]
        before, after = (text.encode() for text in (opening + tools.said).split("$text"))
        silent = (opening + (tools.silent or tools.call.json.partition("$")[0])).encode()
        if own.startswith(before + after):
            return body, skip + len(before), True
        if own.startswith(silent):
            rest = own[len((opening + tools.silent).encode()) :]
            return body[:skip] + before + after + rest, skip + len(before), True
    return body, 0, first.get("role") != "assistant"
