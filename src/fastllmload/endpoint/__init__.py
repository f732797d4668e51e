"""Wire protocols: one file each. An endpoint gives paths and request bytes; its events are parsed by compiled code.

A new protocol is one file with a class that satisfies `Endpoint`, one entry below, and a Dialect in delta.pxd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastllmload.endpoint.ollama import OllamaChat, OllamaGenerate
from fastllmload.endpoint.openai import OpenAIChat, OpenAICompletions
from fastllmload.endpoint.pieces import BodyPieces
from fastllmload.errors import InputError
from fastllmload.plan.conversations.turn_template import TurnTemplate
from fastllmload.settings import Workload

__all__ = ["ALIASES", "ENDPOINTS", "BodyPieces", "Endpoint", "resolve_endpoint"]


class Endpoint(Protocol):
    """A wire protocol, as plan, preflight and workers use it."""

    @property
    def name(self) -> str: ...

    @property
    def dialect(self) -> int:
        """Dialect of delta.pxd."""

    @property
    def joint(self) -> TurnTemplate:
        """How the turns of a conversation are joined."""

    def path(self, base_path: str) -> str:
        """Path of a request, from the path of the base URL."""

    def models_path(self, base_path: str) -> str: ...

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """The bodies of a plan. InputError for a workload that the protocol cannot carry."""

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """As `body_pieces`, with an array of messages in place of the prompt. InputError if the protocol has no messages."""

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        """One body, for a request outside a plan; the same bytes that the pieces give."""

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        """Sentences for the report: options of the workload that the protocol cannot express."""


ENDPOINTS: dict[str, Endpoint] = {
    endpoint.name: endpoint for endpoint in (OpenAIChat(), OpenAICompletions(), OllamaChat(), OllamaGenerate())
}

# vLLM's values of --backend, and other tools' names of the same protocols.
ALIASES: dict[str, str] = {
    **dict.fromkeys(("chat", "openai-chat-completions", "chat_completions", "vllm-chat"), "openai-chat"),
    **dict.fromkeys(
        ("completions", "openai", "vllm", "lmdeploy", "scalellm", "sglang", "llama.cpp", "text_completions"),
        "openai-completions",
    ),
    "ollama": "ollama-chat",
    "ollama-completions": "ollama-generate",
}


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
