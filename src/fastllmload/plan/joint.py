"""How a conversation is put together in a protocol: what stands around a reply, and where a turn's own part begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Pieces(Protocol):
    """A body's fixed bytes, as endpoint.pieces has them."""

    @property
    def before(self) -> bytes: ...

    @property
    def middle(self) -> Sequence[bytes]: ...

    @property
    def tail(self) -> bytes: ...

    def encode(self, prompt: Any, tokens: int) -> bytes: ...


@dataclass(frozen=True)
class Joint:
    """*before* and *behind* a reply's text, and *between* messages without one, as JSON. *messages*: turns are messages
    of an array; else they are one text that grows.
    """

    before: str
    behind: str
    between: str
    messages: bool

    def described(self) -> list[str]:
        return [self.before, self.behind, self.between]


MESSAGES = Joint(',{"role":"assistant","content":"', '"},', ",", messages=True)
TEXT = Joint("\\n", "\\n", "\\n", messages=False)


def tail_of(pieces: Pieces, tokens: int) -> int:
    """Bytes behind the last message, or behind the text: its closing bracket or quote, and the fields after it."""
    fixed = sum(len(piece) for piece in pieces.middle) + len(pieces.tail)
    return 1 + fixed + len(pieces.middle) * len(str(tokens))


def skip_of(pieces: Pieces) -> int:
    """Bytes before the first message, or before the text: up to its opening bracket or quote."""
    return len(pieces.before) + 1
