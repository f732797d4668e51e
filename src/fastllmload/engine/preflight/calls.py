"""Calls of gRPC before the run: is the server serving, and which model has it?"""

from __future__ import annotations

import contextlib

from fastllmload._ext.bytes.schema import with_prefix
from fastllmload.endpoint.call import MODEL_NAME, PREFIX, fields, scalars
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.engine.preflight.client import ServerConnection, one_line
from fastllmload.errors import TargetError

OK, UNKNOWN, PERMISSION_DENIED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 0, 2, 7, 12, 13, 14, 16
HEALTH = "grpc.health.v1.Health/Check"  # as the services' own: field 1 is 1 where it serves
HEALTHY, WORDS = 1, 2


def called(server: ServerConnection, method: str, endpoint: Endpoint) -> tuple[int | None, dict[int, int | bytes]]:
    """Status of a call of *method* with an empty message, None without one, and what its answer says."""
    status, message = answered(server, method, endpoint)
    with contextlib.suppress(ValueError):
        return status, scalars(message)
    return status, {}


def answered(server: ServerConnection, method: str, endpoint: Endpoint) -> tuple[int | None, bytes]:
    """The same with the message, which is empty where the call failed."""
    status, _, content = server.exchange("POST", endpoint.page(server.base.path, method), with_prefix(b""))
    said = server.header("grpc-status")
    return int(said) if status == 200 and said.isdecimal() else None, content[PREFIX:] if said == str(OK) else b""


def refuse_unless_serving(server: ServerConnection) -> None:
    """TargetError for a server whose health check says that it is not serving; it may have none."""
    call = server.endpoint.call
    assert call is not None
    for method in (HEALTH, call.health_method):
        status, answer = called(server, method, server.endpoint)
        if status != OK:
            continue
        if answer.get(HEALTHY) == 1:
            return
        words = answer.get(WORDS)
        why = f" ({one_line(server.redact(words.decode(errors='replace')))})" if isinstance(words, bytes) else ""
        raise TargetError(
            "target-not-serving",
            f"{server.base.public_url} says in {method} that it is not serving{why}; is it still loading its model? "
            "see its own log",
        )


def stated_model(server: ServerConnection, method: str, context_field: int) -> tuple[str, int | None]:
    """Name of the one model, empty where it does not say one, and its context in tokens."""
    _, answer = called(server, method, server.endpoint)
    limit, name = answer.get(context_field), answer.get(MODEL_NAME)
    served = name.decode(errors="replace") if isinstance(name, bytes) else ""
    return served, limit if isinstance(limit, int) and limit > 0 else None


def models_listed(server: ServerConnection, method: str) -> list[str] | None:
    """Names of the models that are ready; None where *method* does not list any."""
    _, message = answered(server, method, server.endpoint)
    with contextlib.suppress(ValueError, TypeError):
        listed = [scalars(one) for one in fields(message).get(1, [])]
        named = [(one.get(1), one.get(3, b"READY")) for one in listed]
        return [
            name.decode(errors="replace") for name, state in named if isinstance(name, bytes) and state == b"READY"
        ] or None
    return None
