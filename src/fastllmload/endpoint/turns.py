"""How a protocol joins the turns of a conversation: JSON with slots such as $text, which workers fill (toolturn.pyx)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

SLOT = re.compile(r"\$([a-z]+)")


class Part(NamedTuple):
    """A call of a tool, or the answer to one, in a request.

    *json*: how it is written, with $id, $name, $arguments (as a text in quotes) or $object (as JSON), $answer.
    *unnamed*: the same for a call without an id; empty: an id is made up.

    Planned ones are found in the list *inside* of a message, or among the messages; only they have *mark*, a key and its
    value. *id* and *names* are the keys of its id and of the tool's name (the first that is there).
    """

    json: str
    id: str
    unnamed: str = ""
    names: tuple[str, ...] = ()
    inside: str = ""
    mark: tuple[str, ...] = ()


class ToolTurn(NamedTuple):
    """A turn with calls: its JSON with $said, $calls and $answers. *said* carries a reply's $text; *silent* takes its
    place where there is none.

    Where a later request repeats thoughts, each is a *thought*, with its $text and $signature, or *sealed*, with the $text
    that only the server can read. They are in front of what was said; *alone* is the turn with $said without calls.

    *stored*: the end of a body, with the id of the reply before as $text, where a server keeps what was said.
    """

    json: str
    said: str
    silent: str
    call: Part
    answer: Part
    alone: str = ""
    thought: str = ""
    sealed: str = ""
    stored: str = ""


@dataclass(frozen=True)
class TurnTemplate:
    """JSON of a *user*'s and an assistant's turn (*reply*) with $text, and what is *between* two turns. *tools* None: of a
    reply only the text is carried.
    """

    between: str
    user: str
    reply: str
    tools: ToolTurn | None = None

    @property
    def stores(self) -> bool:
        """Whether a turn can name the reply before it, which the server has."""
        return self.tools is not None and bool(self.tools.stored)

    def described(self) -> tuple[str, str, str]:
        """What is before and after a reply's text, and between turns without one."""
        before, after = self.reply.split("$text")
        return self.between + before, after + self.between, self.between


TEXT = TurnTemplate("\\n", "$text", "$text")  # of prompts that are one text, which grows


def filled(json: str, **slots: str) -> str:
    """*json* with the *slots* that are given."""
    return SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), json)


@lru_cache
def planned_turn(tools: ToolTurn, name: str) -> tuple[bytes, bytes, bytes]:
    """What is before the reply's text, between it and the answer's, and after, where tool *name* is called once, as $id."""
    call, answer = (filled(part.unnamed or part.json, **called(name, "$id")) for part in (tools.call, tools.answer))
    before, rest = filled(tools.json, said=tools.said, calls=call, answers=answer).split("$text")
    between, after = rest.split("$answer")
    return before.encode(), between.encode(), after.encode()


def called(name: str, ident: str) -> dict[str, str]:
    """Slots of a call without arguments."""
    inside = {"name": msgspec.json.encode(name)[1:-1].decode(), "id": msgspec.json.encode(ident)[1:-1].decode()}
    return {**inside, "arguments": "{}", "object": "{}"}


def made_up_id(number: int) -> str:
    """Id of a planned call: nine letters and digits, because some chat templates accept nothing else."""
    return f"call{number:05d}"


def stand_in(tools: ToolTurn, name: str, ident: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A planned call of tool *name*, for a reply without calls, and the fields of the message that answers it."""
    call, answer = (filled(part.unnamed or part.json, **called(name, ident)) for part in (tools.call, tools.answer))
    message: dict[str, str] = msgspec.json.decode(answer)
    return msgspec.json.decode(call), {
        key: message[key] for key in message if key in (tools.answer.id, *tools.answer.names)
    }
