"""Another tool's command line while it is translated: what is written so far, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KINDS = {"harmless": "ignored", "differs": "nearly the same", "cannot": "not done", "changes": "changes the load"}
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
    given: set[str] = field(default_factory=set)  # options that may be repeated
    typed: dict[str, str] = field(default_factory=dict)  # by variable: the option and value that set it
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by option of ours: what was typed for it
    files: dict[str, str] = field(default_factory=dict)  # by path: content that our command reads

    def lack(self, option: str, entry: Mapping[str, Any]) -> bool:
        """Whether *entry* is about something without a counterpart, which is noted."""
        kind = next((kind for kind in KINDS if kind in entry), None)
        if kind is not None:
            self.lacks.append(Lack(option, kind, entry[kind]))
        return kind is not None

    @contextmanager
    def typing(self, text: str) -> Iterator[None]:
        """Remember *text* for the variables and options that are set meanwhile, unless a part of it has set them."""
        variables, written, parts = dict(self.variables), len(self.written), dict(self.typed)
        yield
        changed = [name for name, values in self.variables.items() if variables.get(name) is not values]
        self.typed |= {name: text for name in changed if self.typed.get(name) == parts.get(name)}
        self.origins |= {option: (text,) for option, _ in self.written[written:] if option not in self.origins}

    def wrote(self, option: str, names: Collection[str], *conditions: Mapping[str, Any]) -> None:
        """Note which typed options decided *option* of ours: those of the variables *names* and of *conditions*."""
        decided = dict.fromkeys((*sorted(names), *(name for each in conditions for name in each)))
        self.origins[option] = tuple(dict.fromkeys(self.typed[name] for name in decided if name in self.typed))
