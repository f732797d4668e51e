"""Ollama's generate: the prompt, in the model's template; answers as NDJSON."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.endpoint.ollama_fields import NO_IGNORE_EOS, api_path, check_prompt_form, sampling_fields, sibling_path
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
        return api_path(base_path, "generate")

    def models_path(self, base_path: str) -> str:
        return sibling_path(base_path, "api/generate", "tags")

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError for token-id prompts and for a invalid --extra-body."""
        check_prompt_form(self.name, workload)
        return cut({"model": model, "prompt": PROMPT, **sampling_fields(workload)})

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError: generate takes a prompt, not messages."""
        raise InputError(f"{self.name} takes no messages; use a chat endpoint, or a data set of prompts")

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        return (NO_IGNORE_EOS,) if workload.ignore_eos else ()
