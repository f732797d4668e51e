"""Conversations of synthetic prompts: a drawn number of turns, with prompts and answers of drawn lengths.

Streams of origin O (seed and phase): O/turns, O/think, O/tools, O/replies. Prompts are those of the workload.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from fastllmload import settings as asked
from fastllmload.documents.plan import WorkloadDescription
from fastllmload.endpoint import BodyPieces, Endpoint
from fastllmload.endpoint.turns import TurnTemplate, made_up_id, planned_turn
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.conversations.turns import Filler, ThinkTimes, TurnPart, turn_counts, write_conversations
from fastllmload.plan.prompts.source import Origin
from fastllmload.plan.prompts.synthetic import SyntheticPrompts
from fastllmload.workload.content.words import text_table
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.user_behavior import read_pause

TOOL = "lookup"


class SyntheticConversations:
    instants = None

    def __init__(self, workload: asked.Workload, origin: Origin, *, warmup: bool) -> None:
        self.workload, self._origin = workload, origin
        self._drawn = SyntheticPrompts(workload, origin, f"{origin}/prefix")
        assert workload.turns is not None
        self._turns = parse_lengths(workload.turns, "--turns")
        self._think_times = ThinkTimes(read_pause(workload.think_time), f"{origin}/think", warmup)
        self._tools = random.Random(f"{origin}/tools")

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        if self.workload.tool_turns and endpoint.joint.tools is None:
            raise InputError("protocol-unsupported", f"{endpoint.name} has no tool calls; leave --tool-turns out")
        counts = turn_counts(self._turns, random.Random(f"{self._origin}/turns"), quota, by_starts)
        known = list(counts) if by_starts else None
        alone = path.with_name(f"{path.name}.alone")
        try:
            wanted = quota if known is None else Quota(sum(known))
            bodies = self._drawn.write(alone, wanted, endpoint, model, by_starts=False)
            dialogues = self._dialogues(alone, bodies, iter(known) if known is not None else counts, endpoint, model)
            written, tally = write_conversations(path, dialogues, endpoint.joint, self.workload.history)
        finally:
            alone.unlink(missing_ok=True)
        found = msgspec.structs.replace(tally.described(self.workload), tool_turns=self.workload.tool_turns or None)
        return replace(written, conversations=found)

    def _dialogues(
        self, alone: Path, bodies: Bodies, counts: Iterator[int], endpoint: Endpoint, model: str
    ) -> Iterator[list[TurnPart]]:
        """The requests in *alone* distributed to conversations; the last one may have fewer turns."""
        parts = self._parts(alone, bodies, endpoint, model)
        remaining = len(bodies.input_tokens)
        while remaining:
            many = min(remaining, next(counts))
            yield [parts.turn(number) for number in range(many)]
            remaining -= many

    def _parts(self, alone: Path, bodies: Bodies, endpoint: Endpoint, model: str) -> Parts:
        workload, filler = self.workload, None
        if workload.history == "planned":
            table = text_table(load_tokenizer(workload.tokenizer))
            filler = Filler([table.word(number) for number in range(table.span)], f"{self._origin}/replies")
        cut = endpoint.messages_pieces if endpoint.takes("messages") else endpoint.body_pieces
        return Parts(self, alone.read_bytes(), bodies, cut(model, workload), endpoint.joint, filler)

    def think_ns(self) -> int:
        return self._think_times.next_ns()

    def draw_tool_turn(self) -> bool:
        return self.workload.tool_turns > 0 and self._tools.random() < self.workload.tool_turns

    def describe(self) -> WorkloadDescription:
        return msgspec.structs.replace(self._drawn.describe(), shared_token_share=None, prefix_hit_rate=None)


class Parts:
    """The turns of conversations, made in order from bodies of single requests."""

    def __init__(
        self,
        of: SyntheticConversations,
        raw: bytes,
        bodies: Bodies,
        pieces: BodyPieces,
        joint: TurnTemplate,
        filler: Filler | None,
    ) -> None:
        self._of, self._raw, self._bodies = of, raw, bodies
        self._pieces, self._joint, self._filler = pieces, joint, filler
        self._opens, self._closes = joint.user.encode().split(b"$text")
        self._next = 0

    def turn(self, number: int) -> TurnPart:
        """The next one, turn *number* of its conversation. Only the first begins with a shared prefix."""
        at, self._next = self._next, self._next + 1
        body = self._raw[int(self._bodies.offsets[at]) : int(self._bodies.offsets[at + 1])]
        own, output = int(self._bodies.input_tokens[at]), int(self._bodies.output_tokens[at])
        skip, tail = self._pieces.skip, self._pieces.closing(output)
        planned = self._filler.text(output) if self._filler is not None else b""
        if not number:
            return TurnPart(body, skip, tail, own, output, planned)
        prefix = self._of.workload.prefix_len
        think_ns = self._of.think_ns()
        if self._of.draw_tool_turn():
            text = without_prefix(self._text(body, skip, tail), prefix)
            body, reply_at = tool_turn(body, skip, tail, text, number, self._joint)
            return TurnPart(body, skip, tail, own - prefix, output, planned, reply_at, True, think_ns)
        if prefix:
            text = without_prefix(self._text(body, skip, tail), prefix)
            body = body[:skip] + self._opens + text + self._closes + body[len(body) - tail :]
        return TurnPart(body, skip, tail, own - prefix, output, planned, 0, True, think_ns)

    def _text(self, body: bytes, skip: int, tail: int) -> bytes:
        return body[skip + len(self._opens) : len(body) - tail - len(self._closes)]


def without_prefix(text: bytes, words: int) -> bytes:
    """*text* without its first *words*: each but the first begins with a space."""
    at = 0
    for _ in range(words):
        at = text.index(b" ", at + 1)
    return text[at:].lstrip(b" ") if words else text


def tool_turn(body: bytes, skip: int, tail: int, text: bytes, number: int, joint: TurnTemplate) -> tuple[bytes, int]:
    """Body of a turn with *text* as a tool's result, and the position of the previous reply (toolturn.pyx) in it."""
    assert joint.tools is not None
    ident = made_up_id(number).encode()
    before, between, after = (part.replace(b"$id", ident) for part in planned_turn(joint.tools, TOOL))
    return body[:skip] + before + between + text + after + body[len(body) - tail :], skip + len(before)
