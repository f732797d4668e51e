"""Conversations of data sets: ShareGPT entries turn by turn, and JSON lines that share a `session`.

A JSON line of a conversation has the fields of a single request, `session` (a text or number that its turns share), and
optionally `delay` (seconds from the previous reply to this turn) and `reply` (the answer in a planned history). Lines
without a session are conversations of one turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from fastllmload import quantities
from fastllmload.errors import InputError
from fastllmload.workload.dataset import (
    check_not_empty,
    endless,
    entries_of,
    parse_custom,
    read_bytes,
    sharegpt_entries,
)
from fastllmload.workload.request import DatasetRequest, field_error

LONGEST_DELAY_S = 1e6


@dataclass(frozen=True)
class ScriptedTurn:
    """One turn: the user's *request*, *delay_s* after the previous reply (None: not stated), and the recorded *reply*."""

    request: DatasetRequest
    delay_s: float | None = None
    reply: str | None = None


@dataclass(frozen=True)
class Dialogues:
    """*entries* in the order of the file. *left_out*: entries without a first question and an answer."""

    sha256: str
    entries: Sequence[tuple[ScriptedTurn, ...]]
    left_out: int
    shuffled: bool
    own_lengths: bool = False

    def of_class(self, name: str) -> Dialogues:
        """The conversations whose first turn is of class *name*. InputError when there are none."""
        mine = [turns for turns in self.entries if turns[0].request.name == name]
        check_not_empty(mine, name, self.classes())
        return replace(self, entries=mine, left_out=self.left_out + len(self.entries) - len(mine))

    def classes(self) -> list[str]:
        """Names of the classes of its turns, by first appearance; one nameless class when none is named."""
        return list(dict.fromkeys(turn.request.name or "" for turns in self.entries for turn in turns))

    def ordered(self, seed: int | str) -> Iterator[tuple[ScriptedTurn, ...]]:
        return endless(self.entries, seed if self.shuffled else None)


def read_dialogues(name: str, path: Path) -> Dialogues:
    """The conversations in *path*, a `sharegpt`, `custom` or `aiperf` file. InputError names file and place."""
    raw = read_bytes(path)
    sha256 = hashlib.sha256(raw).hexdigest()
    if name == "sharegpt":
        read = [_sharegpt(f"{path} entry {number}", entry) for number, entry in enumerate(sharegpt_entries(path, raw))]
        complete = [turns for turns in read if turns]
        found = Dialogues(sha256, complete, len(read) - len(complete), True)
    else:
        found = Dialogues(sha256, _custom(name, path, raw), 0, False, own_lengths=name == "aiperf")
    if not found.entries:
        raise InputError("dataset-empty", f"--dataset-path {path} contains no conversation")
    return found


def _sharegpt(where: str, entry: Any) -> tuple[ScriptedTurn, ...]:
    """Alternating questions and answers from the first question on, up to the first turn out of order."""
    turns = list(entry.conversations)
    while turns and turns[0].speaker not in ("human", "user"):
        turns.pop(0)
    found = []
    for at in range(0, len(turns) - 1, 2):
        question, answer = turns[at], turns[at + 1]
        if (
            question.speaker not in ("human", "user")
            or answer.speaker not in ("gpt", "assistant")
            or not (question.value.strip() and answer.value.strip())
        ):
            break
        found.append(ScriptedTurn(DatasetRequest(f"{where} turn {at // 2 + 1}", question.value), None, answer.value))
    return tuple(found)


def _custom(name: str, path: Path, raw: bytes) -> list[tuple[ScriptedTurn, ...]]:
    """Conversations in the order of their first lines."""
    found: dict[str, list[ScriptedTurn]] = {}
    for number, (entry, where) in enumerate(entries_of(name, path, raw)):
        session = entry.pop("session", None)
        if session is not None and (isinstance(session, bool) or not isinstance(session, str | int)):
            raise field_error(f"{where}: session is {session!r}, neither a text nor a number")
        delay, reply = entry.pop("delay", None), entry.pop("reply", None)
        delay_s = None if delay is None else _delay(delay, where)
        if reply is not None and not isinstance(reply, str):
            raise field_error(f"{where}: reply is {reply!r}, not a text")
        key = f"line {number}" if session is None else msgspec.json.encode(session).decode()
        turn = ScriptedTurn(parse_custom(entry, where), delay_s, reply)
        content = turn.request.content
        if isinstance(content, list) and content and isinstance(content[0], int):
            raise field_error(f"{where}: token ids cannot be turns of a conversation; write prompt or messages")
        found.setdefault(key, []).append(turn)
    return [tuple(turns) for turns in found.values()]


def _delay(delay: object, where: str) -> float:
    """Seconds, of a number of seconds or a text such as "1m"."""
    timed = isinstance(delay, int | float | str) and not isinstance(delay, bool)
    seconds = quantities.duration(str(delay)) if timed else None
    if seconds is None:
        raise field_error(f"{where}: delay is {delay!r}, not a number of seconds")
    if not 0 <= seconds <= LONGEST_DELAY_S:
        raise field_error(f"{where}: delay is {delay!r}; write seconds from 0 to {LONGEST_DELAY_S:g}")
    return seconds
