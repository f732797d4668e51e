"""Wire protocols: one file each. An endpoint gives paths and request bytes; what its events mean is compiled (delta)."""

from __future__ import annotations

from typing import Protocol

from fastllmload.endpoint.openai_chat import OpenAIChat
from fastllmload.endpoint.openai_completions import OpenAICompletions
from fastllmload.endpoint.pieces import BodyPieces
from fastllmload.plan.settings import Workload


class Endpoint(Protocol):
    """What a plan, the preflight and the workers need of a wire protocol."""

    @property
    def name(self) -> str: ...

    @property
    def dialect(self) -> int:
        """Dialect of delta.pxd."""

    def path(self, base_path: str) -> str:
        """Path of a request, from the path of the base URL."""

    def models_path(self, base_path: str) -> str: ...

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces: ...

    def encode_body(self, model: str, workload: Workload, prompt: str, tokens: int) -> bytes:
        """One body, for a request outside a plan."""


ENDPOINTS: dict[str, Endpoint] = {endpoint.name: endpoint for endpoint in (OpenAIChat(), OpenAICompletions())}
