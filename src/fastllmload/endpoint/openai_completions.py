"""OpenAI completions: the prompt as text or as token ids."""

from __future__ import annotations

from fastllmload.endpoint.path import root, under
from fastllmload.endpoint.pieces import BodyPieces, body_tail, json_fields
from fastllmload.plan.settings import Workload

RESOURCE = "completions"


class OpenAICompletions:
    """`POST /v1/completions`."""

    name = "openai-completions"
    dialect = 1  # DIALECT_COMPLETIONS of delta.pxd

    def path(self, base_path: str) -> str:
        return under(base_path, RESOURCE)

    def models_path(self, base_path: str) -> str:
        return under(root(base_path, RESOURCE), "models")

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        before = b"{" + json_fields({"model": model}) + b',"prompt":'
        return BodyPieces(before, (b',"max_tokens":',), body_tail(workload, "prompt"))

    def encode_body(self, model: str, workload: Workload, prompt: str, tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)
