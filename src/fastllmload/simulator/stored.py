"""Replies that the simulated engine keeps, so that a request can continue them (Responses)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from fastllmload._ext.simbody.form import TOOL, arguments, beginning, block

MOST = 100_000  # replies; the oldest are forgotten


class Stored(NamedTuple):
    before: str | None  # the reply that it continued
    asked: bytes  # items of its own
    reply: int
    tokens: int
    calls: int

    def items(self) -> list[bytes]:
        """What was asked, and the reply: its text, or its calls."""
        many = min(self.calls, self.tokens)
        if not many:
            text = beginning(self.reply, self.tokens)
            return [self.asked, msgspec.json.encode({"role": "assistant", "content": text})]
        found = [self.asked]
        for number in range(many):
            first, past = block(number, self.tokens, many)
            call = {
                "type": "function_call",
                "call_id": f"call_{self.reply:016x}{number:04x}",
                "name": TOOL,
                "arguments": arguments(self.reply, number, past - first),
            }
            found.append(msgspec.json.encode(call))
        return found


class StoredReplies:
    def __init__(self) -> None:
        self._kept: dict[str, Stored] = {}

    def keep(self, before: str | None, asked: bytes, reply: int, tokens: int, calls: int) -> None:
        if len(self._kept) == MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[f"resp_{reply:016x}"] = Stored(before, asked, reply, tokens, calls)

    def history(self, name: str) -> list[bytes]:
        """Items of the conversation up to and with reply *name*. LookupError: it is not kept."""
        found: list[bytes] = []
        earlier: str | None = name
        while earlier is not None:
            if earlier not in self._kept:
                raise LookupError(f"Previous response with id '{name}' not found.")
            kept = self._kept[earlier]
            found = kept.items() + found
            earlier = kept.before
        return found


def items_of(prompt: bytes) -> bytes:
    """*prompt*, a text or a list of items, as items with commas."""
    if prompt.startswith(b"["):
        return prompt[1:-1]
    return b'{"role":"user","content":%b}' % prompt
