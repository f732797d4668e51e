"""Ollama's chat and generate: paths and bodies of requests; NDJSON back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastllmload.endpoint.fields import LENGTHS, extra_fields
from fastllmload.endpoint.pieces import NUMBER, PROMPT, BodyPieces, base_of, cut
from fastllmload.errors import InputError
from fastllmload.plan.conversations.turn_template import OLLAMA_MESSAGES, TEXT
from fastllmload.settings import Workload

NO_IGNORE_EOS = "Ollama has no ignore_eos: a model may stop before the output length that was asked for (num_predict)"


def api_path(base_path: str, resource: str) -> str:
    """Path of *resource* (`chat`, `tags`). A base URL without a path means /api; one that ends in the resource is
    used unchanged.
    """
    path = base_path.rstrip("/")
    if path.endswith(f"/api/{resource}"):
        return path
    return f"{path}/{resource}" if path.endswith("/api") else f"{path}/api/{resource}"


def sibling_path(base_path: str, resource: str, other: str) -> str:
    """Path of the resource *other*; *base_path* may end in *resource*."""
    return api_path(base_of(base_path, resource), other)


def sampling_fields(workload: Workload) -> dict[str, Any]:
    """`stream` and `options`; num_predict is the request's output length.

    Fields of --extra-body replace ours, those of its `options` one by one; null removes one of ours. InputError when
    it is not a JSON object, or sets a field that an option decides.
    """
    extra = extra_fields(workload.extra_body)
    asked = extra.pop("options", None)
    if asked is not None and not isinstance(asked, dict):
        raise InputError("extra-body-invalid", f"--extra-body sets 'options' to {asked!r}; Ollama expects an object")
    _check_lengths(extra, asked or {})
    options: dict[str, Any] = {"num_predict": NUMBER}
    if workload.temperature is not None:
        options["temperature"] = workload.temperature
    removed = [name for name, value in (asked or {}).items() if value is None and name in options]
    options = {name: value for name, value in (options | (asked or {})).items() if name not in removed}
    return {"stream": workload.streaming, "options": options, **extra}


def _check_lengths(extra: dict[str, Any], options: dict[str, Any]) -> None:
    """InputError when the output length is set in --extra-body: num_predict carries it."""
    for name in LENGTHS:
        if name in extra:
            raise InputError(
                "protocol-unsupported",
                f"--extra-body sets {name!r}, which Ollama does not support; --osl becomes num_predict",
            )
    if options.get("num_predict", NUMBER) is not NUMBER:
        raise InputError(
            "extra-body-reserved", "--extra-body sets 'num_predict', which --osl decides for each request; use --osl"
        )


def check_prompt_form(name: str, workload: Workload) -> None:
    """InputError for token-id prompts, which Ollama does not accept."""
    if workload.prompt_form == "ids":
        raise InputError(
            "protocol-unsupported",
            f"--prompt-form {workload.prompt_form} is not supported by {name}: Ollama takes text only; "
            "use --prompt-form words or text",
        )


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
        raise InputError(
            "protocol-unsupported", f"{self.name} takes no messages; use a chat endpoint, or a data set of prompts"
        )

    def encode_body(self, model: str, workload: Workload, prompt: str | Sequence[int], tokens: int) -> bytes:
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        return (NO_IGNORE_EOS,) if workload.ignore_eos else ()
