"""Conversations of a data set: its own questions, with its answers' lengths or those that are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.mersenne import Mersenne
from fastllmload.errors import InputError
from fastllmload.plan import settings as asked
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.content import Endpoint
from fastllmload.plan.conversations import Part, Tally, Thinking, escaped, write_conversations
from fastllmload.plan.joint import skip_of, tail_of
from fastllmload.plan.plan import TURN
from fastllmload.plan.written import Encoder
from fastllmload.workload.dialogues import Said, read_dialogues
from fastllmload.workload.lengths import Lengths, parse_lengths
from fastllmload.workload.manners import read_pause
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizer import load_tokenizer
from fastllmload.workload.written import Written


class Told:
    """Content of conversations, like `Synthesized`: from the file that *workload* names."""

    trace = None

    def __init__(self, workload: asked.Workload, origin: int | str, *, warmup: bool) -> None:
        if workload.dataset_path is None:
            raise InputError(f"--workload {workload.name} is read from a file; add --dataset-path FILE")
        self.workload, self._origin = workload, origin
        self.by_starts = False  # whether a quota counts conversations, not requests
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._dialogues = read_dialogues(workload.name, Path(workload.dataset_path))
        self._osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        self._most = None if workload.turns in (None, "all") else parse_lengths(workload.turns, "--turns")
        self._lengths = Mersenne(f"{origin}/lengths")
        self._counts = Mersenne(f"{origin}/turns")
        self._pause = read_pause(workload.think_time)
        self._thinking = Thinking(self._pause, f"{origin}/think", warmup)
        self._warmup = warmup
        self.turns: npt.NDArray[np.void] = np.empty(0, TURN)
        self._tally = Tally()

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, npt.NDArray[np.uint16]]:
        told = self._told(endpoint, model)
        chosen = islice(told, quota.requests) if self.by_starts else until(told, quota)
        real = self.workload.history == "real"
        written, self.turns, self._tally = write_conversations(path, chosen, endpoint.joint, real)
        return written, written.kinds

    def _told(self, endpoint: Endpoint, model: str) -> Iterator[list[Part]]:
        encoder = Encoder(endpoint, model, self.workload)
        for said in self._dialogues.ordered(self._origin):
            most = len(said) if self._most is None else length(self._most, self._counts)
            chosen = said[:most]
            yield [self._part(encoder, endpoint, each, number, len(chosen)) for number, each in enumerate(chosen)]

    def _part(self, encoder: Encoder, endpoint: Endpoint, said: Said, number: int, many: int) -> Part:
        one = as_turn(said.one, endpoint)
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
        return Part(body, skip, tail, own, output, planned, reply_at, takes, think)

    def _output(self, said: Said) -> int:
        if self._osl is not None:
            return self._osl.draw(self._lengths)
        if said.one.output_tokens is not None:
            return said.one.output_tokens
        if said.reply is None or self._tokenizer is None:
            raise InputError(f"{said.one.where} does not say how long the answer is; add --osl")
        return max(1, self._tokenizer.count(said.reply))

    def _planned(self, said: Said) -> bytes:
        if said.reply is None:
            raise InputError(f"{said.one.where} has no reply for a planned history; use --history real")
        return escaped(said.reply)

    def _think_ns(self, said: Said) -> int:
        """What the data set says, else what is asked for."""
        if said.delay_s is None:
            return self._thinking.next_ns()
        return 0 if self._warmup else round(said.delay_s * 1e9)

    def describe(self) -> dict[str, Any]:
        workload = self.workload
        osl = "data set" if workload.osl is None else workload.osl
        dialogues = self._dialogues
        facts = {
            "sha256": dialogues.sha256,
            "requests": sum(len(entry) for entry in dialogues.entries),
            "conversations": len(dialogues.entries),
            "left_out": dialogues.left_out,
            "order": "drawn without replacement by the seed" if dialogues.shuffled else "as in the file",
            "rounds": self._tally.conversations / len(dialogues.entries),
            "classes": [],
        }
        return {
            "name": workload.name, "isl": "data set", "osl": osl, "tokenizer": workload.tokenizer, "prompt": "data set",
            "prefix_len": 0, "num_prefixes": 1, "counting": workload.counting, "prompt_form": workload.prompt_form,
            "deviations": [], "dataset": facts,
        }  # fmt: skip

    def conversations(self) -> dict[str, Any]:
        """What plan.json says of them."""
        workload = self.workload
        return self._tally.described(
            {"turns": workload.turns, "think_time": workload.think_time, "history": workload.history}
        )


def until(told: Iterator[list[Part]], quota: Quota) -> Iterator[list[Part]]:
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


def as_turn(one: Written, endpoint: Endpoint) -> Written:
    """A prompt as a user's message, where the protocol has messages. InputError for messages where it has none."""
    if isinstance(one.content, str) and endpoint.joint.messages:
        message = [{"role": "user", "content": one.content}]
        return Written(one.where, message, one.output_tokens, one.name, one.extra)
    return one


def placed(body: bytes, skip: int, one: Written) -> tuple[bytes, int, bool]:
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
