"""How requests name their session on the wire: templates of headers and body fields, and what routers of clusters read.

A session is a conversation, with all its agents; where requests stand alone each is one. Ids are new in every run, phase
and pass over the plan. A template is text with fields in braces; `{{` and `}}` are braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fastllmload.settings import SessionIdentity

FIELDS = ("session", "parent", "root", "turn", "class", "user", "final", "request")
PARTS = ("text", *FIELDS, "token")  # numbers of send/identity.pxd
PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
Parts = list[tuple[int, bytes]]
TOKEN = (PARTS.index("token"), b"")
IN_BODY = "body:"
OWN_HEADERS = ("content-length", "x-fastllmload-request", "transfer-encoding", "connection")


@dataclass(frozen=True)
class Affinity:
    """What a router reads: headers, body fields, a token to be sent back, and a request that ends a session."""

    reader: str
    headers: tuple[tuple[str, str], ...] = ()
    body: tuple[tuple[str, str], ...] = ()
    token: str | None = None
    end: str | None = None


AFFINITIES = {
    "vllm": Affinity("vLLM's router, consistent_hash", (("X-Session-ID", "{session}"),)),
    "vllm-sticky": Affinity(
        "vLLM's router, sticky_least_loaded",
        (("X-Session-ID", "{session}"),),
        end="POST /finish_session?session_id={session}",
    ),
    "smg": Affinity("SGLang's gateway, manual or consistent_hashing", (("X-SMG-Routing-Key", "{session}"),)),
    "dynamo": Affinity(
        "Dynamo's router with --router-session-affinity-ttl-secs",
        (
            ("X-Dynamo-Session-ID", "{session}"),
            ("X-Dynamo-Parent-Session-ID", "{parent}"),
            ("X-Dynamo-Session-Final", "{final}"),
        ),
    ),
    "llm-d": Affinity("llm-d's session affinity scorer", token="x-session-token"),
    "aibrix": Affinity(
        "AIBrix, session-affinity", (("routing-strategy", "session-affinity"),), token="x-session-id"
    ),
    "litellm": Affinity("LiteLLM's session_affinity check", (("x-litellm-session-id", "{session}"),)),
    "openai": Affinity("OpenAI's prompt cache", body=(("prompt_cache_key", "{session}"),)),
    "generic": Affinity(
        "routers that hash a header of sessions",
        (("X-Session-ID", "{session}"), ("X-Session-Affinity", "{session}")),
    ),
    "none": Affinity("nothing"),
}  # fmt: skip


def pieces(template: str) -> list[tuple[str, str]]:
    """(part, text) of a template. ValueError with a reason for one that has other fields, or a single brace."""
    found = []
    for match in PIECE.finditer(template):
        text, name = match[0], match[1]
        if name is not None:
            if name not in FIELDS:
                known = " ".join(f"{{{each}}}" for each in FIELDS)
                raise ValueError(f"{text} is not a field of sessions; there are {known}")
            found.append((name, ""))
        elif text in ("{", "}"):
            raise ValueError(f"{template!r} has a single brace; write {text * 2} for the character")
        else:
            found.append(("text", text[:1] if text in ("{{", "}}") else text))
    return found


def resolved(identity: SessionIdentity) -> SessionIdentity:
    """With what the named affinity sets; a header or field that is given, too, replaces the affinity's of its name."""
    chosen = AFFINITIES[identity.affinity or "none"]
    names = {name.lower() for name, _ in identity.headers}
    fields = {name for name, _ in identity.body}
    return replace(
        identity,
        headers=(*(each for each in chosen.headers if each[0].lower() not in names), *identity.headers),
        body=(*(each for each in chosen.body if each[0] not in fields), *identity.body),
        token=identity.token or chosen.token,
        end=identity.end or chosen.end,
    )


def named_sessions(identity: SessionIdentity) -> SessionIdentity | None:
    """`resolved`; None where requests say nothing of their session."""
    found = resolved(identity)
    return found if found.headers or found.body or found.token or found.end else None


def lines(identity: SessionIdentity) -> list[str]:
    """What requests say, a line each, for plans."""
    found = resolved(identity)
    by = f" ({AFFINITIES[identity.affinity].reader})" if identity.affinity is not None else ""
    said = [f"header {name}: {template}" for name, template in found.headers]
    said += [f"body field {name}: {template}" for name, template in found.body]
    if found.token is not None:
        token = token_of(found.token)
        said.append(f"{place(token.sent)}: the token that answers have in {place(token.answered)}")
    if found.end is not None:
        said.append(f"at the end of a session: {found.end}")
    return [line + by * (number == 0) for number, line in enumerate(said)]


def compiled(identity: SessionIdentity, classes: Sequence[str]) -> dict[str, Any]:
    """Arguments of `Identity`, from what `resolved` gives. *classes*: names by number; without any, it is `default`."""
    names = [name or "default" for name in classes or ("",)]
    headers = [(name.encode("latin-1"), parts(template, "latin-1")) for name, template in identity.headers]
    fields = body_units(identity.body)
    token = None if identity.token is None else token_of(identity.token)
    if token is not None and token.sent_path:
        fields.append(token_unit(token.sent_path))
    elif token is not None:
        headers.append((token.sent.encode("latin-1"), [TOKEN]))
    return {
        "headers": headers,
        "fields": fields,
        "classes": [(name.encode("latin-1", "replace"), escaped(name)) for name in names],
        "own_children": identity.children == "own",
        "token": token is not None,
        "from_body": token is not None and bool(token.answered_path),
        "in_body": token is not None and bool(token.sent_path),
        "end": None if identity.end is None else parts(identity.end.partition(" ")[2], "latin-1"),
    }


@dataclass(frozen=True)
class Token:
    """Where answers have the token of a session, and where requests send it back: a header, or `body:PATH` with dots."""

    answered: str
    sent: str

    @property
    def answered_path(self) -> tuple[str, ...]:
        """Names of members down to the token in bodies of answers; empty: a header has it."""
        return body_path(self.answered)

    @property
    def sent_path(self) -> tuple[str, ...]:
        return body_path(self.sent)


def token_of(text: str) -> Token:
    """NAME=OTHER, or the same place for both."""
    answered, _, sent = text.partition("=")
    return Token(answered, sent or answered)


def body_path(name: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(IN_BODY).split(".")) if name.startswith(IN_BODY) else ()


def place(name: str) -> str:
    return f"body field {name.removeprefix(IN_BODY)}" if name.startswith(IN_BODY) else f"header {name}"


def token_unit(path: Sequence[str]) -> Parts:
    """The field of a body that has the token, which is a value of JSON, with the comma after it."""
    opening = b"{".join(b'"%b":' % escaped(name) for name in path)
    return [(0, opening), TOKEN, (0, b"}" * (len(path) - 1) + b",")]


def parts(template: str, encoding: str) -> Parts:
    return [(PARTS.index(part), text.encode(encoding)) for part, text in pieces(template)]


def body_units(body: Sequence[tuple[str, str]]) -> list[Parts]:
    """Text of JSON for each outermost field, with the comma after it: objects of a path hold all that are in them."""
    tree: dict[str, Any] = {}
    for path, template in body:
        *outer, last = path.split(".")
        inner = tree
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = template
    return [[*_json(name, value), (0, b",")] for name, value in tree.items()]


def _json(name: str, value: str | dict[str, Any]) -> Parts:
    key = (0, b'"%b":' % escaped(name))
    if isinstance(value, str):
        text = [(number, escaped(part.decode())) for number, part in parts(value, "utf-8")]
        return [key, (0, b'"'), *text, (0, b'"')]
    inner = [part for number, each in enumerate(value.items()) for part in [(0, b",")] * (number > 0) + _json(*each)]
    return [key, (0, b"{"), *inner, (0, b"}")]


def escaped(text: str) -> bytes:
    """*text* as the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()
