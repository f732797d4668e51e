"""How turns are joined in a protocol: the JSON around a reply, and a tool call that a reply may not make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TurnTemplate:
    """JSON *before* and *after* a reply's text, and *between* messages without one. *messages*: turns are messages of an
    array; else they are one growing text. *ids*: tool calls have ids, and their arguments are texts; else they have no
    ids, arguments are objects, and an answer names the tool.
    """

    before: str
    after: str
    between: str
    messages: bool
    ids: bool = True

    def described(self) -> list[str]:
        return [self.before, self.after, self.between]


MESSAGES = TurnTemplate(',{"role":"assistant","content":"', '"},', ",", messages=True)
OLLAMA_MESSAGES = TurnTemplate(MESSAGES.before, MESSAGES.after, MESSAGES.between, messages=True, ids=False)
TEXT = TurnTemplate("\\n", "\\n", "\\n", messages=False)


def ident(number: int) -> str:
    """Id of a planned call: nine letters and digits, because some chat templates accept nothing else."""
    return f"call{number:05d}"


def stand_in(joint: TurnTemplate, name: str, ident: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A planned call of tool *name*, for a reply without calls, and the fields of the message that answers it."""
    if joint.ids:
        return {"id": ident, "type": "function", "function": {"name": name, "arguments": "{}"}}, {"tool_call_id": ident}
    return {"function": {"name": name, "arguments": {}}}, {"tool_name": name}
