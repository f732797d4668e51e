"""Conversations of a data set: its own questions, with its answers' lengths or those that are drawn. And those of the
workload `conversation`: ShareGPT's or, without the file, the stand-in's questions, half of them behind the system prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload import settings as asked
from fastllmload._ext.mersenne import Mersenne
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.conversations.synthetic import TOOL
from fastllmload.plan.conversations.turn_template import TurnTemplate, skip_of, stand_in, tail_of
from fastllmload.plan.conversations.turns import Tally, Thinking, TurnPart, escaped, write_conversations
from fastllmload.plan.plan import TURN
from fastllmload.plan.prompts.content import Endpoint, described, file_of
from fastllmload.plan.prompts.dataset_bodies import DatasetEncoder, subset_facts
from fastllmload.workload.content.questions import Questions
from fastllmload.workload.conversation import STAND_IN, SYSTEM_SHARE, SYSTEM_TOKENS, Conversation, SystemPrompt
from fastllmload.workload.dataset import DatasetRequest
from fastllmload.workload.dialogues import Dialogues, Message, read_dialogues
from fastllmload.workload.lengths import Lengths, parse_lengths
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.user_behavior import read_pause

CONVERSATION = "conversation"


class ScriptedConversations:
    """Content of conversations, like `SyntheticConversations`: from the file that *workload* names."""

    trace = None

    def __init__(self, workload: asked.Workload, origin: int | str, *, warmup: bool) -> None:
        self.workload, self._origin = workload, origin
        self.by_starts = False  # whether a quota counts conversations, not requests
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        self._standard = workload.name == CONVERSATION
        self._dialogues = self._read()
        self._classes = [] if self._dialogues is None else self._dialogues.classes()
        self._system = SystemPrompt(self._tokenizer, f"{origin}/prefix") if self._standard else None
        self._most = None if workload.turns in (None, "all") else parse_lengths(workload.turns, "--turns")
        self._lengths = Mersenne(f"{origin}/lengths")
        self._counts = Mersenne(f"{origin}/turns")
        self._pause = read_pause(workload.think_time)
        self._thinking = Thinking(self._pause, f"{origin}/think", warmup)
        self._warmup = warmup
        self.turns: npt.NDArray[np.void] = np.empty(0, TURN)
        self._tally = Tally()

    def _read(self) -> Dialogues | None:
        """The file's conversations; None for the stand-in. InputError where a file or a number of turns is missing."""
        workload = self.workload
        if workload.dataset_path is not None:
            found = read_dialogues("sharegpt" if self._standard else workload.name, Path(workload.dataset_path))
            return found if workload.dataset_class is None else found.of_class(workload.dataset_class)
        if not self._standard:
            file_of(workload)
        if workload.turns in (None, "all"):
            raise InputError(
                "--turns all takes what a data set has; add --dataset-path FILE, or give a number of turns"
            )
        return None

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, npt.NDArray[np.uint16]]:
        told = self._told(endpoint, model)
        chosen = islice(told, quota.requests) if self.by_starts else until(told, quota)
        real = self.workload.history == "real"
        written, self.turns, self._tally = write_conversations(path, chosen, endpoint.joint, real)
        return written, written.kinds

    def _told(self, endpoint: Endpoint, model: str) -> Iterator[list[TurnPart]]:
        encoder = DatasetEncoder(endpoint, model, self.workload)
        for said in self._spoken():
            first = self._opened(said[0], endpoint)
            chosen = [first, *said[1:]]
            yield [self._part(encoder, endpoint, each, number, len(chosen)) for number, each in enumerate(chosen)]

    def _spoken(self) -> Iterator[tuple[Message, ...]]:
        """Endless: conversations of as many turns as are asked for, or as there are."""
        if self._dialogues is None:
            assert self._most is not None
            made = Conversation(self._tokenizer, self._origin, f"{self._origin}/prefix", chat=False, osl=self._osl)
            questions = Questions(made, self._tokenizer, self._origin, self.workload.history == "planned")
            while True:
                yield questions.take(length(self._most, self._counts))
        for said in self._dialogues.ordered(self._origin):
            yield said if self._most is None else said[: length(self._most, self._counts)]

    def _opened(self, said: Message, endpoint: Endpoint) -> Message:
        """The first turn, behind the system prompt where it has one."""
        text = said.request.content
        if self._system is None or not self._system.is_next():
            return said
        assert isinstance(text, str)
        whole = self._system.prepend_to(text, chat=endpoint.joint.messages)
        tokens = (said.request.input_tokens or 0) + SYSTEM_TOKENS
        return replace(said, request=replace(said.request, content=whole, input_tokens=tokens))

    def _part(self, encoder: DatasetEncoder, endpoint: Endpoint, said: Message, number: int, many: int) -> TurnPart:
        one = answering(as_turn(said.request, endpoint), endpoint.joint, number)
        output = self._output(said)
        body, pieces = encoder.encode(one, output), encoder.pieces(one)
        own = one.tokens(self._tokenizer)
        think = 0 if not number else self._think_ns(said)
        carried = self.workload.history == "planned" and number + 1 < many
        planned = self._planned(said) if carried else b""
        skip, tail = skip_of(pieces), tail_of(pieces, output)
        reply_at, takes = 0, True
        if number and isinstance(one.content, list):
            body, reply_at, takes = placed(body, skip, one)
        kind = self._classes.index(one.name or "") if self._classes else 0
        return TurnPart(body, skip, tail, own, output, planned, reply_at, takes, think, kind)

    def _output(self, said: Message) -> int:
        if self._osl is not None and self._dialogues is not None:
            return self._osl.draw(self._lengths)
        if said.request.output_tokens is not None:
            return said.request.output_tokens
        if said.reply is None or self._tokenizer is None:
            raise InputError(f"{said.request.where} does not say how long the answer is; add --osl")
        return max(1, self._tokenizer.count(said.reply))

    def _planned(self, said: Message) -> bytes:
        if said.reply is None:
            raise InputError(f"{said.request.where} has no reply for a planned history; use --history real")
        return escaped(said.reply)

    def _think_ns(self, said: Message) -> int:
        """What the data set says, else what is asked for."""
        if said.delay_s is None:
            return self._thinking.next_ns()
        return 0 if self._warmup else round(said.delay_s * 1e9)

    def describe(self) -> dict[str, Any]:
        workload, dialogues = self.workload, self._dialogues
        lengths = "data set" if dialogues is not None else workload.name
        osl = lengths if workload.osl is None else workload.osl
        found = described(workload, self._tokenizer, lengths, osl, "data set" if dialogues is not None else "composed")
        if self._standard:
            found["system_prompt"] = {"tokens": SYSTEM_TOKENS, "share": SYSTEM_SHARE}
            found["stand_in"] = dialogues is None
        if dialogues is None:
            return {**found, "deviations": [STAND_IN, *found["deviations"]]}
        facts = {
            "sha256": dialogues.sha256,
            "requests": sum(len(entry) for entry in dialogues.entries),
            "conversations": len(dialogues.entries),
            "left_out": dialogues.left_out,
            "order": "drawn without replacement by the seed" if dialogues.shuffled else "as in the file",
            "rounds": self._tally.conversations / len(dialogues.entries),
            "classes": self._classes,
        }
        return {**found, "dataset": subset_facts(facts, self.workload)}

    def conversations(self) -> dict[str, Any]:
        """What plan.json says of them."""
        workload = self.workload
        return self._tally.described(
            {"turns": workload.turns, "think_time": workload.think_time, "history": workload.history}
        )


def until(told: Iterator[list[TurnPart]], quota: Quota) -> Iterator[list[TurnPart]]:
    """Whole conversations until *quota* is met."""
    requests = outputs = inputs = 0
    while not quota.met(requests, outputs, inputs):
        parts = next(told)
        requests += len(parts)
        outputs += sum(part.output for part in parts)
        inputs += sum(part.own for part in parts)
        yield parts


def length(lengths: Lengths, stream: Mersenne) -> int:
    return max(1, lengths.draw(stream))


def as_turn(one: DatasetRequest, endpoint: Endpoint) -> DatasetRequest:
    """A prompt as a user's message, where the protocol has messages. InputError for messages where it has none."""
    if isinstance(one.content, str) and endpoint.joint.messages:
        message = [{"role": "user", "content": one.content}]
        return replace(one, content=message)
    return one


def answering(one: DatasetRequest, joint: TurnTemplate, number: int) -> DatasetRequest:
    """A turn *number* that begins with messages of role `tool`: they answer the calls of the reply before it, the first
    the first and so on. In front of them goes an assistant's message with a planned call for each, which stands for what
    the reply does not call. InputError for a first turn, before which nobody called anything.
    """
    content = one.content
    if isinstance(content, str) or not content or not isinstance(content[0], dict) or content[0].get("role") != "tool":
        return one
    if not number:
        raise InputError(f"{one.where}: a conversation cannot begin with a message of role tool; nobody called one")
    answers = list(takewhile(lambda message: isinstance(message, dict) and message.get("role") == "tool", content))
    calls, named = [], []
    for place, message in enumerate(answers):
        name = str(message.get("tool_name") or message.get("name") or TOOL)
        call, names = stand_in(joint, name, str(message.get("tool_call_id") or f"t{number:04x}{place:04x}"))
        calls.append(call)
        named.append({**message, **names})
    opening = {"role": "assistant", "content": None, "tool_calls": calls}
    return replace(one, content=[opening, *named, *content[len(answers) :]])


def placed(body: bytes, skip: int, one: DatasetRequest) -> tuple[bytes, int, bool]:
    """A later turn that begins with the assistant's own message brings the answer with it: none is put in front, and
    the reply goes into that message where it says nothing itself (it calls a tool).
    """
    content = one.content
    assert isinstance(content, list)
    first: Any = content[0]
    if first.get("role") != "assistant":
        return body, 0, True
    if first.get("content"):
        return body, 0, False
    before = b'{"role":"assistant","content":"'
    rest = {name: value for name, value in first.items() if name not in ("role", "content")}
    opened = before + b'"' + (b"," + msgspec.json.encode(rest)[1:] if rest else b"}")
    written = msgspec.json.encode(first)
    return body[:skip] + opened + body[skip + len(written) :], skip + len(before), True
