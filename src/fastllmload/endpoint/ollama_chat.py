"""Ollama's chat: one user message; answers as NDJSON."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.endpoint.ollama_fields import NO_IGNORE_EOS, api_path, check_prompt_form, sampling_fields, sibling_path
from fastllmload.endpoint.pieces import PROMPT, BodyPieces, cut
from fastllmload.plan.conversations.turn_template import OLLAMA_MESSAGES
from fastllmload.settings import Workload


class OllamaChat:
    """`POST /api/chat`."""

    name = "ollama-chat"
    dialect = 2  # DIALECT_OLLAMA_CHAT of delta.pxd
    joint = OLLAMA_MESSAGES

    def path(self, base_path: str) -> str:
        return api_path(base_path, "chat")

    def models_path(self, base_path: str) -> str:
        return sibling_path(base_path, "api/chat", "tags")

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError for token-id prompts and for a invalid --extra-body."""
        check_prompt_form(self.name, workload)
        messages = [{"role": "user", "content": PROMPT}]
        return cut({"model": model, "messages": messages, **sampling_fields(workload)})

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        return cut({"model": model, "messages": PROMPT, **sampling_fields(workload)})

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        return (NO_IGNORE_EOS,) if workload.ignore_eos else ()
