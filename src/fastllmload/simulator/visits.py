"""What the simulated engine notes of a request's session, and what it answers as routers do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

BODY = "body:"


class Visits:
    """*logged*: headers, and fields of the body as `body:FIELD`, that the truth log shows. *token*: header of a token.

    A request without a token begins a session and gets its first one; each answer has a new one. A request with any other
    than the latest of its session is refused.

    *backends*: header, and names, of one of which each answer says that it comes: chosen by a hash of the first header or
    field of *routed_by* that a request has, in turn for those without.
    """

    def __init__(
        self,
        logged: Sequence[str],
        token: str | None,
        backends: tuple[str, Sequence[str]] | None = None,
        routed_by: Sequence[str] = (),
    ) -> None:
        self.fields = [name.removeprefix(BODY) for name in logged if name.startswith(BODY)]
        self.token = None if token is None else token.lower().encode("latin-1")
        self.routed_by = [name if name.startswith(BODY) else name.lower() for name in routed_by]
        self.logged = {name.lower().encode("latin-1") for name in logged if not name.startswith(BODY)}
        if self.token is not None:
            self.logged.add(self.token)
        routes = (name.encode("latin-1") for name in self.routed_by if not name.startswith(BODY))
        self.headers = {*self.logged, *routes}
        self.latest: list[int] = []  # of each session, the number of its tokens
        self.backend_header = b"" if backends is None else backends[0].lower().encode("latin-1")
        self.backends = [] if backends is None else [name.encode("latin-1") for name in backends[1]]
        self.next = 0  # in turn

    def __call__(self, head: bytes, body: bytes) -> tuple[bytes, bytes | None]:
        """(note, lines) of a request: lines of `name: value`, and those of its answer's head, None where it is refused."""
        sent = {}
        for line in head.split(b"\n")[1:]:
            name, _, value = line.partition(b":")
            if (lower := name.strip().lower()) in self.headers:
                sent[lower] = value.strip()
        lines = [name + b": " + value for name, value in sent.items() if name in self.logged]
        lines += [f"{BODY}{name}: {found}".encode() for name in self.fields if (found := field(body, name)) is not None]
        said: bytes | None = b""
        if self.token is not None:
            token = self._next(sent.get(self.token))
            lines.append(b"answered: " + (token or b""))
            said = None if token is None else self.token + b": " + token + b"\r\n"
        if self.backends:
            name = self._backend(sent, body)
            lines.append(b"backend: " + name)
            said = None if said is None else said + self.backend_header + b": " + name + b"\r\n"
        return b"\n".join(lines), said

    def _backend(self, sent: dict[bytes, bytes], body: bytes) -> bytes:
        for name in self.routed_by:
            if name.startswith(BODY):
                key = None if (found := field(body, name.removeprefix(BODY))) is None else str(found).encode()
            else:
                key = sent.get(name.encode("latin-1"))
            if key is not None:
                return self.backends[int.from_bytes(hashlib.sha256(key).digest()[:8]) % len(self.backends)]
        self.next += 1
        return self.backends[self.next % len(self.backends)]

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
