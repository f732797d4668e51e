"""Ollama's generate: the prompt through the model's template; NDJSON back."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.endpoint.ollama_fields import NO_IGNORE_EOS, beside, refuse_ids, sampling_fields, under_api
from fastllmload.endpoint.pieces import PROMPT, BodyPieces, cut
from fastllmload.errors import InputError
from fastllmload.plan.conversations.turn_template import TEXT
from fastllmload.settings import Workload


class OllamaGenerate:
    """`POST /api/generate`."""

    name = "ollama-generate"
    dialect = 3  # DIALECT_OLLAMA_GENERATE of delta.pxd
    joint = TEXT

    def path(self, base_path: str) -> str:
        return under_api(base_path, "generate")

    def models_path(self, base_path: str) -> str:
        return beside(base_path, "api/generate", "tags")

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError for token-id prompts and for a wrong --extra-body."""
        refuse_ids(self.name, workload)
        return cut({"model": model, "prompt": PROMPT, **sampling_fields(workload)})

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError: generate has a prompt and no messages."""
        raise InputError(f"messages do not go with {self.name}; use a chat endpoint, or a data set of prompts")

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        return (NO_IGNORE_EOS,) if workload.ignore_eos else ()
