"""Write the turns of conversations, which are consecutive in a plan.

With real and stored history a turn has only its own messages (`ext/fastllmload/_ext/plan/talk.pyx`); else a body has all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import ConversationsDescription
from fastllmload.endpoint.turns import TurnTemplate
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.plan.plan import CALL, EDGE, EDGE_CONTEXT, FOLLOWS, LAST_TURN, REAL_REPLY, STITCHED, STORED, TURN
from fastllmload.settings import Workload
from fastllmload.workload.graph import Message, WaitKind
from fastllmload.workload.lengths import Lengths, RandomStream
from fastllmload.workload.sharing.messages import TurnSaid, with_reply
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.user_behavior import Pause

Numbers = npt.NDArray[np.int64]
MOST_TURNS = 65_535


@dataclass(frozen=True)
class TurnPart:
    """One turn. *body*, whose first *skip* and last *tail* bytes are not part of the conversation.

    *reply_at*: position of the previous reply in *body*, 0: before it. *takes_reply*: whether it carries that reply.
    *own*: tokens of its own messages. *planned*: its reply in a planned history, JSON-escaped, of *planned_tokens*. *said*:
    its messages, and *reply* that reply, where the hit rate of the plan is stated.
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
    planned_tokens: int = 0
    said: Sequence[Message] = ()
    reply: str = ""


@dataclass(frozen=True)
class Begun:
    """A conversation of which *before* turns are history at time zero; the next one is due after *due_ns*."""

    parts: Sequence[TurnPart]
    before: int = 0
    due_ns: int = 0

    @property
    def seen(self) -> Begun:
        """What a server has seen of it: its last turn before time zero, with all that came before."""
        return Begun(self.parts[: self.before], self.before - 1)


@dataclass
class Tally:
    conversations: int = 0
    requests: int = 0
    most_turns: int = 0
    think_ns: int = 0

    def described(self, workload: Workload) -> ConversationsDescription:
        later = self.requests - self.conversations
        return ConversationsDescription(
            turns=workload.turns,
            think_time=workload.think_time,
            history=workload.history,
            conversations=self.conversations,
            requests=self.requests,
            turns_mean=self.requests / self.conversations if self.conversations else None,
            turns_max=self.most_turns,
            think_time_mean_s=self.think_ns / later / 1e9 if later else None,
        )


def write_conversations(
    path: Path, dialogues: Iterable[Sequence[TurnPart] | Begun], joint: TurnTemplate, history: str
) -> tuple[Bodies, Tally]:
    """Write the turns of *dialogues* to *path*; returns the bodies, with their TURN items, and the counts. Of one that has
    begun only the turns that are left are written, the first of them with all that came before.

    InputError for a turn with an answer of its own, where the server has stored another.
    """
    tally, turns = Tally(), []
    with BodyFile(path) as file:
        for session, one in enumerate(dialogues):
            begun = one if isinstance(one, Begun) else Begun(one)
            many = len(begun.parts)
            if many > MOST_TURNS:
                raise InputError(
                    "plan-too-large", f"a conversation of {many} turns is too long; {MOST_TURNS} are the most"
                )
            turns += list(_written(file, session, begun, joint, history))
            tally.conversations += 1
            tally.most_turns = max(tally.most_turns, many)
        tally.requests = file.requests
    table = np.array(turns, TURN) if turns else np.empty(0, TURN)
    tally.think_ns = int(table["think_ns"][table["turn"] > 0].sum())
    return replace(file.bodies(), turns=table), tally


def _written(
    file: BodyFile, session: int, begun: Begun, joint: TurnTemplate, kind: str
) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    history, history_tokens, reply, before = b"", 0, b"", begun.before
    for turn, part in enumerate(begun.parts):
        body, flags = part.body, LAST_TURN if turn == len(begun.parts) - 1 else 0
        if turn > before and kind == "stored" and not part.takes_reply:
            raise InputError(
                "option-not-applicable",
                f"--history stored: turn {turn + 1} of a conversation begins with an answer of its own, but the server has "
                "its own; use --history real",
            )
        if turn > before and kind != "planned":
            flags |= STITCHED | (REAL_REPLY if part.takes_reply else 0) | (STORED if kind == "stored" else 0)
        elif turn:
            body = joined(history, reply, part, joint)
        history, reply = body[: len(body) - part.tail], part.planned
        if turn >= before:
            file.add(body, history_tokens + part.own, part.output, part.kind)
            think_ns = part.think_ns if turn > before else begun.due_ns
            yield think_ns, part.skip, part.reply_at, part.tail, session, turn - before, flags, 0
        history_tokens += part.own + (part.planned_tokens or part.output)


def joined(history: bytes, reply: bytes, part: TurnPart, joint: TurnTemplate) -> bytes:
    """The complete body of a later turn; the same bytes that a worker stitches from that reply."""
    before, after, between = (text.encode() for text in joint.described())
    if not part.takes_reply:
        return history + between + part.body[part.skip :]
    if part.reply_at:
        inside = part.body[part.skip : part.reply_at] + reply + part.body[part.reply_at :]
        return history + between + inside
    return history + before + reply + after + part.body[part.skip :]


def escaped(text: str) -> bytes:
    """The inside of *text*'s JSON string."""
    return msgspec.json.encode(text)[1:-1]


def turn_counts(lengths: Lengths, stream: RandomStream, quota: Quota, by_starts: bool) -> Iterator[int]:
    """Turns of each conversation: for *quota*.requests conversations if *by_starts*, else without end."""
    drawn = 0
    while not by_starts or drawn < quota.requests:
        yield min(MOST_TURNS, lengths.draw(stream))
        drawn += 1


def turn_lines(one: Begun) -> list[TurnSaid]:
    """What the turns that are left of a conversation say: the first with all before it."""
    found, history = [], list[Message]()
    for turn, part in enumerate(one.parts):
        reply = one.parts[turn - 1].reply if turn and part.takes_reply else ""
        if turn > one.before:
            found.append(TurnSaid(list(part.said), reply, part.output))
            continue
        history += with_reply(part.said, reply)
        if turn == one.before:
            found.append(TurnSaid(history, "", part.output))
    return found


class ThinkTimes:
    """Think times, one per later turn, from their own stream; none in a warm-up."""

    def __init__(self, pause: Pause, seed: str, warmup: bool) -> None:
        self._pause, self._stream, self._warmup = pause, random.Random(seed), warmup

    def next_ns(self) -> int:
        return 0 if self._warmup else round(self._pause.draw(self._stream) * 1e9)


class Filler:
    """Text of planned replies: one word per token, JSON-escaped, from its own stream."""

    def __init__(self, words: list[bytes], seed: str) -> None:
        self._words, self._stream = words, Mersenne(seed)

    def text(self, tokens: int) -> bytes:
        drawn = np.empty(tokens, np.uint32)
        self._stream.below(len(self._words), drawn, 0, tokens)
        return b"".join([self._words[number] for number in drawn])


def line_calls(turns: npt.NDArray[np.void], before: Sequence[int] = ()) -> npt.NDArray[np.void]:
    """CALL items of conversations: one agent each, which waits for its user. *before*: turns that are history at time zero,
    of the first ones.
    """
    found = np.zeros(len(turns), CALL)
    found["session"], found["parent"] = turns["session"], -1
    past = np.zeros(int(turns["session"].max(initial=0)) + 1, np.int64)
    past[: len(before)] = before
    found["turn"] = turns["turn"] + past[turns["session"]]
    found["kind"] = np.where(found["turn"] > 0, WaitKind.USER, WaitKind.UNKNOWN)
    found["service_s"] = np.nan
    return found


def line_edges(turns: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The edges of conversations in which each turn follows the one before it."""
    source = np.flatnonzero(turns["flags"] & LAST_TURN == 0)
    edges = np.zeros(len(source), EDGE)
    edges["source"], edges["target"], edges["flags"] = source, source + 1, EDGE_CONTEXT
    return edges


def scheduled(schedule: Numbers | None, turns: npt.NDArray[np.void]) -> Numbers | None:
    """One instant per request: those of *schedule* for the first of each session, FOLLOWS for the others; None in a closed
    loop.
    """
    if schedule is None:
        return None
    found = np.full(len(turns), FOLLOWS, np.int64)
    found[turns["turn"] == 0] = schedule
    return found
