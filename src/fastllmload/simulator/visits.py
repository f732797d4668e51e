"""What the simulated engine notes of a request's session, and the token that it answers, as some routers do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

BODY = "body:"


class Visits:
    """*logged*: headers, and fields of the body as `body:FIELD`, that the truth log shows. *token*: header of a token.

    A request without a token begins a session and gets its first one; each answer has a new one. A request with any other
    than the latest of its session is refused.
    """

    def __init__(self, logged: Sequence[str], token: str | None) -> None:
        self.fields = [name.removeprefix(BODY) for name in logged if name.startswith(BODY)]
        self.token = None if token is None else token.lower().encode("latin-1")
        named = [name.lower().encode("latin-1") for name in logged if not name.startswith(BODY)]
        self.headers = {*named, *(() if self.token is None else (self.token,))}
        self.latest: list[int] = []  # of each session, the number of its tokens

    def __call__(self, head: bytes, body: bytes) -> tuple[bytes, bytes | None]:
        """(note, token) of a request: lines of `name: value` and the token of its answer, None where it is refused."""
        sent = {}
        for line in head.split(b"\n")[1:]:
            name, _, value = line.partition(b":")
            if (lower := name.strip().lower()) in self.headers:
                sent[lower] = value.strip()
        lines = [name + b": " + value for name, value in sent.items()]
        lines += [f"{BODY}{name}: {found}".encode() for name in self.fields if (found := field(body, name)) is not None]
        token: bytes | None = b""
        if self.token is not None:
            token = self._next(sent.get(self.token))
            lines.append(b"answered: " + (token or b""))
        return b"\n".join(lines), token

    def _next(self, sent: bytes | None) -> bytes | None:
        if sent is None:
            self.latest.append(0)
            session = len(self.latest) - 1
        else:
            first, _, number = sent.removeprefix(b"t").partition(b"-")
            if not (first.isdigit() and int(first) < len(self.latest) and number == b"%d" % self.latest[int(first)]):
                return None
            session = int(first)
        self.latest[session] += 1
        return b"t%d-%d" % (session, self.latest[session])


def field(body: bytes, path: str) -> Any:
    """The value at *path* (`metadata.session_id`) of a JSON body; None without it."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found
