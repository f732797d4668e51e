"""Another tool's command line while it is translated: what is written so far, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = {"harmless": "ignored", "cannot": "not done", "changes": "changes the load"}
Arguments = list[tuple[str, str | None]]  # of ours: option, and its value unless it is a switch


@dataclass(frozen=True)
class Lack:
    """Something of the other command that has no counterpart; *kind* is one of KINDS."""

    option: str
    kind: str
    why: str


@dataclass
class ForeignCommand:
    """One tool's command line, as far as it is translated."""

    table: Mapping[str, Any]
    written: Arguments = field(default_factory=list)
    variables: dict[str, list[str]] = field(default_factory=dict)  # several values: several runs
    body: dict[str, Any] = field(default_factory=dict)  # of --extra-body
    lacks: list[Lack] = field(default_factory=list)

    def lack(self, option: str, entry: Mapping[str, Any]) -> bool:
        """Whether *entry* is about something without a counterpart, which is noted."""
        kind = next((kind for kind in KINDS if kind in entry), None)
        if kind is not None:
            self.lacks.append(Lack(option, kind, entry[kind]))
        return kind is not None
