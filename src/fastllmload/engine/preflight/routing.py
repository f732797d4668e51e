"""What a target says of the routing of its requests, and what would spread the turns of a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fastllmload.endpoint.identity import named_sessions, place, resolved, token_of
from fastllmload.engine.preflight.client import NoAnswer, ServerConnection, one_line
from fastllmload.errors import TargetError, coded
from fastllmload.settings import RunSettings

NAMED = 8  # headers that a remark lists
WORKERS = "/workers"  # of SGLang's gateway: the engines that it sends to
ASKING_S = 2.0
LONGEST_TOKEN = 4096  # as a worker takes one from a body (receive/protocol.pyx), with its quotes
REQUEST_ID = "x-request-id"
# What vLLM's router (consistent_hash) hashes before a request's id: its docs/load_balancing.
BEFORE_REQUEST_ID = frozenset(("x-session-id", "x-user-id", "x-tenant-id"))
ROUTING_KEYS = frozenset(("x-smg-routing-key", "x-smg-target-worker"))


def absent_names(probe: ServerConnection, events: Sequence[bytes]) -> Iterator[str]:
    """A remark for each header or field, of --backend-header and --session-token, that the latest answer of *probe*'s server
    lacks. *events*: data of its events, or its body. A token that may need headers of the session, which no probe has, may
    be absent.
    """
    names = list(dict.fromkeys(name.lower() for name in probe.fields))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    shown = one_line(probe.redact(", ".join(names[:NAMED]))) + more if names else "none"
    settings = probe.settings
    said = f"the probe's answer from {probe.base.public_url} has no"
    backend, identity = settings.target.backend_header, resolved(settings.session)
    token = None if identity.headers else identity.token
    if backend is not None and not probe.fields.get(backend):
        yield coded(
            "backend-header-absent",
            f"{said} header {backend}: which server answers will not be known; its headers are {shown}",
        )
    found = None if token is None else token_of(token)
    if found is None:
        return
    if path := found.answered_path:
        there, more = any(has_token(event, path) for event in events), ""
    else:
        there, more = bool(probe.fields.get(found.answered)), f"; its headers are {shown}"
    if not there:
        yield coded(
            "session-token-absent",
            f"{said} {place(found.answered)}, whose value is to be sent back in the session: nothing will name sessions to "
            f"the router{more}",
        )


def has_token(event: bytes, path: Sequence[str]) -> bool:
    """Whether a worker finds a token there: at *path*, from the outermost object on, a text or a number."""
    try:
        value: Any = msgspec.json.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value != "" and len(msgspec.json.encode(value)) <= LONGEST_TOKEN
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def sent_headers(settings: RunSettings) -> set[str]:
    """Names of the headers that differ by request or are the same in all, in lower case."""
    return {name.lower() for name, _ in (*resolved(settings.session).headers, *settings.target.headers)}


def of_identity(settings: RunSettings) -> Iterator[str]:
    """A remark where the id of each request is sent, and ranks above the session's at vLLM's router."""
    identity, sent = resolved(settings.session), sent_headers(settings)
    if identity.body and REQUEST_ID in sent and not sent & BEFORE_REQUEST_ID:
        fields = ", ".join(name for name, _ in identity.body)
        yield coded(
            "session-outranked",
            f"the session is named in the body ({fields}) and X-Request-Id is sent, which vLLM's router (consistent_hash) "
            "takes first: turns of a session go to different engines; add --affinity vllm",
        )


def of_key(probe: ServerConnection) -> Iterator[str]:
    """A remark where SGLang's gateway may send everything to one engine: all requests have one key and no routing key. It is
    asked for its workers only in a run that is about routing.
    """
    settings = probe.settings
    about_routing = settings.target.backend_header is not None or named_sessions(settings.session) is not None
    if probe.key is None or not about_routing or sent_headers(settings) & ROUTING_KEYS or not lists_workers(probe):
        return
    yield coded(
        "key-routes",
        f"{probe.base.public_url} lists its workers as SGLang's gateway (SMG) does, whose policy consistent_hashing sends "
        "all requests with the same Authorization to one of them unless X-SMG-Routing-Key is sent; add --affinity smg if it "
        "has that policy",
    )


def lists_workers(probe: ServerConnection) -> bool:
    """Whether the server has the page of engines that SGLang's gateway has, with more than one."""
    try:
        status, _, body = probe.exchange("GET", WORKERS, None, ASKING_S)
        found = msgspec.json.decode(body, type=dict[str, msgspec.Raw]) if status == 200 else {}
        return len(msgspec.json.decode(found["workers"], type=list[dict[str, object]])) > 1
    except (NoAnswer, TargetError, msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return False
