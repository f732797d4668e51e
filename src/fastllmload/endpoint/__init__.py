"""Wire protocols, one value of `Endpoint` each: paths and request bodies; their events are parsed by compiled code.

A new protocol is such a value in the file of its API, and its entry below.
"""

from __future__ import annotations

from fastllmload.endpoint.body import BodyPieces
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.ollama import OLLAMA_CHAT, OLLAMA_GENERATE
from fastllmload.endpoint.openai import OPENAI_CHAT, OPENAI_COMPLETIONS
from fastllmload.errors import InputError

__all__ = ["ALIASES", "ENDPOINTS", "BodyPieces", "Endpoint", "resolve_endpoint"]

ENDPOINTS: dict[str, Endpoint] = {
    endpoint.name: endpoint for endpoint in (OPENAI_CHAT, OPENAI_COMPLETIONS, OLLAMA_CHAT, OLLAMA_GENERATE)
}
ALIASES: dict[str, str] = {alias: endpoint.name for endpoint in ENDPOINTS.values() for alias in endpoint.aliases}


def resolve_endpoint(name: str) -> Endpoint:
    """The endpoint with *name* or alias *name*. InputError for another name."""
    endpoint = ENDPOINTS.get(ALIASES.get(name, name))
    if endpoint is None:
        raise InputError(
            "choice-unknown",
            f"--endpoint-type {name!r} is not a supported wire protocol; choose one of "
            f"{', '.join(ENDPOINTS)} (aliases: {', '.join(sorted(ALIASES))})",
        )
    return endpoint
