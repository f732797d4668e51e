"""What to give to a server that refuses a request: the --endpoint-type it seems to speak, or what leaves a field out."""

from __future__ import annotations

import contextlib
import re

from fastllmload.endpoint import ENDPOINTS
from fastllmload.endpoint.endpoint import Endpoint, named
from fastllmload.engine.preflight import answers
from fastllmload.engine.preflight.calls import UNIMPLEMENTED, called
from fastllmload.engine.preflight.client import ServerConnection
from fastllmload.errors import TargetError

NO_PAGE = "/fastllmload-asks-for-no-such-page"

# Fields that requests have unless an option leaves them out.
OPTIONAL = {
    b"ignore_eos": "--no-ignore-eos",
    b"min_tokens": "--no-ignore-eos",
    b"temperature": "--temperature none",
    b"stream_options": """--extra-body '{"stream_options": null}'""",
}
COMPLETION_TOKENS = """--extra-body '{"max_completion_tokens": "{output_tokens}"}'"""  # in place of max_tokens


def by_status(server: ServerConnection, status: int, content: bytes, model: str) -> str | None:
    """What to give after a *status* that is an error."""
    if status in (404, 405):
        return _by_path(server, status, model)
    return _by_field(server, content, model) or (_without(server, content) if status in (400, 422) else None)


def _by_path(server: ServerConnection, status: int, model: str) -> str | None:
    """If the server has no such path, or not for POST, but has that of other protocols. One may answer 405 everywhere."""
    with contextlib.suppress(TargetError):
        absent = status == 405 or server.exchange("GET", server.path, None)[0] == 404
        if not absent or server.exchange("GET", NO_PAGE, None)[0] != 404:
            return None
        others = [one for one in ENDPOINTS.values() if one.name != server.endpoint.name]
        found = [one for one in others if path_of(server, one, model) != server.path and _serves(server, one, model)]
        if found:
            return f"its paths are those of {found[0].title}: give --endpoint-type {named_all(found)}"
    return None


def _serves(server: ServerConnection, other: Endpoint, model: str) -> bool:
    """Whether a server that knows only some paths knows that of *other*: it takes no GET there, or has its page."""
    if server.exchange("GET", path_of(server, other, model), None)[0] == 405:
        return True
    return other.engine is not None and (
        server.exchange("GET", other.page(server.base.path, other.engine[1]), None)[0] == 200
    )


def _by_field(server: ServerConnection, content: bytes, model: str) -> str | None:
    """If the refusal names a field of the prompts of other protocols: those whose path this is, else all."""
    for field in answers.missing_fields(content):
        able = [one for one in ENDPOINTS.values() if field in one.prompt_fields and one.call is None]
        here = [one for one in able if path_of(server, one, model) == server.path] or able
        if here and server.endpoint not in able:
            return f"{field!r} is a field of {here[0].title}: give --endpoint-type {named_all(here)}"
    return None


def _without(server: ServerConnection, content: bytes) -> str | None:
    """If the refusal names fields of the request that can be left out: the options that do so."""
    words = set(re.findall(rb"\w+", content))
    options = [option for field, option in OPTIONAL.items() if field in words and b'"%s"' % field in server.asked_body]
    if b"max_completion_tokens" in words and b'"max_tokens"' in server.asked_body:
        options.append(COMPLETION_TOKENS)
    if not options:
        return None
    return f"send requests without what it refuses: {' '.join(dict.fromkeys(options))}"


def by_method(server: ServerConnection) -> str:
    """What to give to a server of gRPC that does not have the method."""
    others = [one for one in ENDPOINTS.values() if one.call is not None and one.name != server.endpoint.name]
    with contextlib.suppress(TargetError):
        for one in others:
            if one.call is not None and called(server, one.call.health_method, one)[0] not in (None, UNIMPLEMENTED):
                return f"its methods are those of {one.title}: give --endpoint-type {one.name}"
    return f"does it speak {server.endpoint.name}?"


def path_of(server: ServerConnection, other: Endpoint, model: str) -> str:
    return named(other.path(server.base.path, server.settings.workload.streaming), model)


def named_all(endpoints: list[Endpoint]) -> str:
    return " or ".join(one.name for one in endpoints)
