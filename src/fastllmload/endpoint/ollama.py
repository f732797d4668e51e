"""Ollama's API: chat and generate, with lines of JSON as answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastllmload.endpoint.body import LENGTHS, NUMBER, OLLAMA_MESSAGES, TEXT, extra_fields
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.settings import Workload

NO_IGNORE_EOS = "Ollama has no ignore_eos: a model may stop before the output length that was asked for (num_predict)"
TEXT_ONLY = "Ollama takes text only; use --prompt-form words or text"


def api_path(base_path: str, resource: str) -> str:
    """Path of *resource* (`api/chat`, `api/tags`). A base URL may end in /api or in the resource."""
    path = base_path.rstrip("/")
    if path.endswith(f"/{resource}"):
        return path
    return f"{path.removesuffix('/api')}/{resource}"


def sampling_fields(workload: Workload) -> dict[str, Any]:
    """`stream` and `options`. Fields of --extra-body replace ours, null removes one of ours. InputError for a wrong one."""
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


OLLAMA_CHAT = Endpoint(
    name="ollama-chat",
    aliases=("ollama",),
    dialect=2,  # DIALECT_OLLAMA_CHAT
    joint=OLLAMA_MESSAGES,
    resource="api/chat",
    models="api/tags",
    version="api/version",
    root=api_path,
    fields=sampling_fields,
    text_only=TEXT_ONLY,
    without_ignore_eos=NO_IGNORE_EOS,
)
OLLAMA_GENERATE = replace(
    OLLAMA_CHAT,
    name="ollama-generate",
    aliases=("ollama-completions",),
    dialect=3,  # DIALECT_OLLAMA_GENERATE
    joint=TEXT,
    resource="api/generate",
)
