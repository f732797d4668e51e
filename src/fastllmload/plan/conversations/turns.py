"""Conversations: turns that stand one behind the other in a plan, and how each later one is put together.

A turn is written as if it were the first, with its own messages alone; where the history is real, the worker stitches
it behind what was said so far (`ext/fastllmload/_ext/talk.pyx`). With planned history every body is whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.mersenne import Mersenne
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.plan.conversations.turn_template import TurnTemplate
from fastllmload.plan.plan import FOLLOWS, LAST_TURN, REAL_REPLY, STITCHED, TURN
from fastllmload.workload.lengths import Lengths, Stream
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.user_behavior import Pause

Numbers = npt.NDArray[np.int64]
MOST_TURNS = 65_535


class Endpoint(Protocol):
    """What conversations need of a wire protocol."""

    @property
    def joint(self) -> TurnTemplate: ...


@dataclass(frozen=True)
class TurnPart:
    """One turn alone. *body*, of which *skip* bytes at the start and *tail* at the end are no part of the conversation.

    *reply_at*: where in *body* the reply before it goes, 0: in front. *takes_reply*: it carries that reply at all.
    *own*: tokens of its own messages. *planned*: the text that stands for its reply where the history is planned,
    JSON-escaped.
    """

    body: bytes
    skip: int
    tail: int
    own: int
    output: int
    planned: bytes = b""
    reply_at: int = 0
    takes_reply: bool = True
    think_ns: int = 0
    kind: int = 0


@dataclass
class Tally:
    """What a plan says of its conversations."""

    conversations: int = 0
    requests: int = 0
    most_turns: int = 0
    think_ns: int = 0

    def described(self, asked: dict[str, Any]) -> dict[str, Any]:
        later = self.requests - self.conversations
        return {
            **asked,
            "conversations": self.conversations,
            "requests": self.requests,
            "turns_mean": self.requests / self.conversations if self.conversations else None,
            "turns_max": self.most_turns,
            "think_time_mean_s": self.think_ns / later / 1e9 if later else None,
        }


def write_conversations(
    path: Path, dialogues: Iterable[list[TurnPart]], joint: TurnTemplate, real: bool
) -> tuple[Bodies, npt.NDArray[np.void], Tally]:
    """The turns of *dialogues* into the file *path*, and their TURN items."""
    tally, turns = Tally(), []
    with BodyFile(path) as file:
        for session, parts in enumerate(dialogues):
            if len(parts) > MOST_TURNS:
                raise InputError(f"a conversation of {len(parts)} turns is too long; {MOST_TURNS} are the most")
            turns += list(_written(file, session, parts, joint, real))
            tally.conversations += 1
            tally.most_turns = max(tally.most_turns, len(parts))
        tally.requests = file.requests
    table = np.array(turns, TURN) if turns else np.empty(0, TURN)
    tally.think_ns = int(table["think_ns"].sum())
    return file.bodies(), table, tally


def _written(
    file: BodyFile, session: int, parts: list[TurnPart], joint: TurnTemplate, real: bool
) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    so_far, heard, said = b"", 0, b""
    for turn, part in enumerate(parts):
        body, flags = part.body, LAST_TURN if turn == len(parts) - 1 else 0
        if turn and real:
            flags |= STITCHED | (REAL_REPLY if part.takes_reply else 0)
        elif turn:
            body = joined(so_far, said, part, joint)
        so_far, said = body[: len(body) - part.tail], part.planned
        file.add(body, heard + part.own, part.output, part.kind)
        heard += part.own + part.output
        yield part.think_ns, part.skip, part.reply_at, part.tail, session, turn, flags, 0


def joined(so_far: bytes, reply: bytes, part: TurnPart, joint: TurnTemplate) -> bytes:
    """The whole body of a later turn; the same bytes that a worker stitches out of that reply."""
    if not part.takes_reply:
        return so_far + joint.between.encode() + part.body[part.skip :]
    if part.reply_at:
        inside = part.body[part.skip : part.reply_at] + reply + part.body[part.reply_at :]
        return so_far + joint.between.encode() + inside
    return so_far + joint.before.encode() + reply + joint.behind.encode() + part.body[part.skip :]


def escaped(text: str) -> bytes:
    """The inside of *text*'s JSON string."""
    return msgspec.json.encode(text)[1:-1]


def turn_counts(lengths: Lengths, stream: Stream, quota: Quota, by_starts: bool) -> Iterator[int]:
    """Turns of each conversation: so many conversations, or without end for a quota of requests."""
    drawn = 0
    while not by_starts or drawn < quota.requests:
        yield min(MOST_TURNS, lengths.draw(stream))
        drawn += 1


class Thinking:
    """Times to think, one per later turn, from their own stream; none in a warm-up."""

    def __init__(self, pause: Pause, seed: str, warmup: bool) -> None:
        self._pause, self._stream, self._none = pause, random.Random(seed), warmup

    def next_ns(self) -> int:
        return 0 if self._none else round(self._pause.draw(self._stream) * 1e9)


class Filler:
    """Text of planned replies: so many words, JSON-escaped, from a stream of its own."""

    def __init__(self, words: list[bytes], seed: str) -> None:
        self._words, self._stream = words, Mersenne(seed)

    def text(self, tokens: int) -> bytes:
        drawn = np.empty(tokens, np.uint32)
        self._stream.below(len(self._words), drawn, 0, tokens)
        return b"".join([self._words[number] for number in drawn])


def instants(schedule: Numbers | None, turns: npt.NDArray[np.void]) -> Numbers | None:
    """One instant per request: those of *schedule* for first turns, FOLLOWS for the others; None in a closed loop."""
    if schedule is None:
        return None
    found = np.full(len(turns), FOLLOWS, np.int64)
    found[turns["turn"] == 0] = schedule
    return found
