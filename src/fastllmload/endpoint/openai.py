"""OpenAI chat completions (one user message) and completions (the prompt as text or as token ids)."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.endpoint.fields import sampling_fields
from fastllmload.endpoint.pieces import PROMPT, BodyPieces, base_of, cut, resource_path
from fastllmload.errors import InputError
from fastllmload.plan.conversations.turn_template import MESSAGES, TEXT
from fastllmload.settings import PROMPT_FORMS, Workload

COMPLETIONS = "completions"


class OpenAICompletions:
    """`POST /v1/completions`."""

    name = "openai-completions"
    dialect = 1  # DIALECT_COMPLETIONS of delta.pxd
    joint = TEXT

    def path(self, base_path: str) -> str:
        return resource_path(base_path, COMPLETIONS)

    def models_path(self, base_path: str) -> str:
        return resource_path(base_of(base_path, COMPLETIONS), "models")

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError for an unknown form of prompt, and for a invalid --extra-body."""
        if workload.prompt_form not in PROMPT_FORMS:
            raise InputError(
                "choice-unknown", f"--prompt-form {workload.prompt_form!r} is unknown; choose {', '.join(PROMPT_FORMS)}"
            )
        return cut({"model": model, "prompt": PROMPT, **sampling_fields(workload)})

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError: completions take a prompt, not messages."""
        raise InputError(
            "protocol-unsupported", f"{self.name} takes no messages; use a chat endpoint, or a data set of prompts"
        )

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        return ()


CHAT = "chat/completions"


class OpenAIChat:
    """`POST /v1/chat/completions`."""

    name = "openai-chat"
    dialect = 0  # DIALECT_CHAT of delta.pxd
    joint = MESSAGES

    def path(self, base_path: str) -> str:
        return resource_path(base_path, CHAT)

    def models_path(self, base_path: str) -> str:
        return resource_path(base_of(base_path, CHAT), "models")

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """InputError for token-id prompts, which chat messages cannot carry, and for a invalid --extra-body."""
        if workload.prompt_form == "ids":
            raise InputError(
                "protocol-unsupported",
                f"--prompt-form {workload.prompt_form} is not supported by {self.name}: chat messages are text; "
                "use --endpoint-type openai-completions",
            )
        messages = [{"role": "user", "content": PROMPT}]
        return cut({"model": model, "messages": messages, **sampling_fields(workload)})

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        return cut({"model": model, "messages": PROMPT, **sampling_fields(workload)})

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        return ()
