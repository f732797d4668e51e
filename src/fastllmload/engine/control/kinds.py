"""Which routes each kind of server has for the verbs of `--between`: the table in servers.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec

from fastllmload.errors import InputError
from fastllmload.settings import CONTROL_VERBS

EMPTYING = ("reset-cache", "flush")
END = "-end"  # of a verb that is called again after the measurement
WORDS = {  # what a verb does, for messages
    "reset-cache": "resets the prefix cache",
    "flush": "empties the caches",
    "profile": "profiles",
    "sleep": "puts an engine to sleep",
    "wake": "wakes an engine",
}


@dataclass(frozen=True)
class Route:
    """One request. *others*: instead of it, on servers that do not have it. *optional*: none of them need be there. *body*:
    JSON, or none.
    """

    method: str
    target: str
    others: tuple[Route, ...] = ()
    optional: bool = False
    body: str = ""

    @property
    def text(self) -> str:
        return f"{self.method} {self.target}"


def route_of(text: str) -> Route:
    text, mark, _ = text.partition(", if there")
    parts = (each.split(" ", 2) for each in text.split(" | "))
    first, *others = (Route(method, target, body=" ".join(body)) for method, target, *body in parts)
    return replace(first, others=tuple(others), optional=bool(mark))


class ServerKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of server, as in servers.toml."""

    title: str
    engines: tuple[str, ...]
    info: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    sleeping: str | None = None  # page that says whether it sleeps
    verbs: dict[str, tuple[str, ...]] = {}
    absent: dict[str, str] = {}

    def routes(self, verb: str) -> tuple[Route, ...]:
        """The requests of *verb*. InputError where this kind of server has none."""
        if verb not in self.verbs:
            can = [each for each in CONTROL_VERBS if each in self.verbs]
            raise InputError(
                "control-unsupported",
                f"--between {verb}: {self.title} has no HTTP route that {WORDS[verb]}; "
                + (
                    f"it has those of {', '.join(can)}"
                    if can
                    else "restart it instead, or give 'METHOD URL' of your own"
                ),
            )
        return tuple(route_of(text) for text in self.verbs[verb])


@cache
def kinds() -> dict[str, ServerKind]:
    """All kinds, by the name that --server takes."""
    text = (Path(__file__).parent / "servers.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, ServerKind])
