"""Whole conversations of data sets: ShareGPT entries turn by turn, and JSON lines that share a `session`.

A JSON line of a conversation has `session` (a text or number that its turns share) and as wanted `delay` (seconds from
the reply before to this turn) and `reply` (the answer that a planned history carries), besides the fields of a single
request.
Lines without a session are conversations of one turn.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.errors import InputError
from fastllmload.workload.dataset import (
    DatasetRequest,
    json_lines,
    read_bytes,
    refuse_none,
    sharegpt_entries,
    written_custom,
)

LONGEST_DELAY_S = 1e6


@dataclass(frozen=True)
class Message:
    """One turn: what the user sends, *delay_s* after the reply before (None: not said), and the answer it was given."""

    one: DatasetRequest
    delay_s: float | None = None
    reply: str | None = None


@dataclass(frozen=True)
class Dialogues:
    """*entries* in the order of the file. *left_out*: entries without a first question and an answer."""

    sha256: str
    entries: Sequence[tuple[Message, ...]]
    left_out: int
    shuffled: bool

    def of_class(self, name: str) -> Dialogues:
        """The conversations whose first turn is of class *name* alone. InputError where there are none."""
        mine = [turns for turns in self.entries if turns[0].one.name == name]
        refuse_none(mine, name, self.classes())
        return replace(self, entries=mine, left_out=self.left_out + len(self.entries) - len(mine))

    def classes(self) -> list[str]:
        """Names of the classes of its turns, by first appearance; one nameless class when none is named."""
        return list(dict.fromkeys(said.one.name or "" for turns in self.entries for said in turns))

    def ordered(self, seed: int | str) -> Iterator[tuple[Message, ...]]:
        """Endless: the file's order or, *shuffled*, drawn without replacement; again when all were used."""
        stream = random.Random(seed)
        while True:
            order = list(range(len(self.entries)))
            if self.shuffled:
                stream.shuffle(order)
            for number in order:
                yield self.entries[number]


def read_dialogues(name: str, path: Path) -> Dialogues:
    """The conversations in *path*, a `sharegpt` or `custom` file. InputError names file and place."""
    raw = read_bytes(path)
    sha256 = hashlib.sha256(raw).hexdigest()
    if name == "sharegpt":
        read = [_sharegpt(f"{path} entry {number}", entry) for number, entry in enumerate(sharegpt_entries(path, raw))]
        whole = [turns for turns in read if turns]
        found = Dialogues(sha256, whole, len(read) - len(whole), True)
    else:
        found = Dialogues(sha256, _custom(path, raw), 0, False)
    if not found.entries:
        raise InputError(f"--dataset-path {path} holds no conversation")
    return found


def _sharegpt(where: str, entry: Any) -> tuple[Message, ...]:
    """From the first question on, question and answer in turn, up to what is out of turn."""
    turns = list(entry.conversations)
    while turns and turns[0].speaker not in ("human", "user"):
        turns.pop(0)
    found = []
    for at in range(0, len(turns) - 1, 2):
        asks, answers = turns[at], turns[at + 1]
        if (
            asks.speaker not in ("human", "user")
            or answers.speaker not in ("gpt", "assistant")
            or not (asks.value.strip() and answers.value.strip())
        ):
            break
        found.append(Message(DatasetRequest(f"{where} turn {at // 2 + 1}", asks.value), None, answers.value))
    return tuple(found)


def _custom(path: Path, raw: bytes) -> list[tuple[Message, ...]]:
    """Conversations by their first line."""
    found: dict[str, list[Message]] = {}
    for number, (entry, where) in enumerate(json_lines(path, raw)):
        session = entry.pop("session", None)
        if session is not None and (isinstance(session, bool) or not isinstance(session, str | int)):
            raise InputError(f"{where}: session is {session!r}, neither a text nor a number")
        delay, reply = entry.pop("delay", None), entry.pop("reply", None)
        if delay is not None and (isinstance(delay, bool) or not isinstance(delay, int | float)):
            raise InputError(f"{where}: delay is {delay!r}, not a number of seconds")
        if delay is not None and not 0 <= delay <= LONGEST_DELAY_S:
            raise InputError(f"{where}: delay is {delay!r}; write seconds from 0 to {LONGEST_DELAY_S:g}")
        if reply is not None and not isinstance(reply, str):
            raise InputError(f"{where}: reply is {reply!r}, not a text")
        key = f"line {number}" if session is None else msgspec.json.encode(session).decode()
        said = Message(written_custom(entry, where), None if delay is None else float(delay), reply)
        if isinstance(said.one.content, list) and said.one.content and isinstance(said.one.content[0], int):
            raise InputError(f"{where}: token ids cannot be turns of a conversation; write prompt or messages")
        found.setdefault(key, []).append(said)
    return [tuple(turns) for turns in found.values()]
