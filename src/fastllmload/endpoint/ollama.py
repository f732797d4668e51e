"""Ollama's API: chat and generate, with lines of JSON as answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastllmload._ext.events.dialect import Dialect, Duration, FinishReason
from fastllmload._ext.events.dialect import Field as F
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


MESSAGE = {
    "role": F.ROLE, "content": F.CONTENT, "thinking": F.REASONING,
    "tool_calls": (F.CALLS, {"function": (F.OBJECT, {"name": F.NAME, "arguments": F.ARGUMENTS})}),
}  # fmt: skip


def dialect(text: dict[str, Any]) -> Dialect:
    """Of events with the *text*; a whole answer is one of them. They do not repeat: each says its own time."""
    keys = {
        "model": F.ANY, **text, "error": F.ERROR, "done": F.DONE, "done_reason": F.FINISH,
        "prompt_eval_count": F.PROMPT_TOKENS, "prompt_eval_cached_count": F.CACHED_TOKENS,
        "eval_count": F.COMPLETION_TOKENS, "logprobs": F.LOGPROBS,
        "total_duration": (F.DURATION, Duration.NS_TOTAL), "load_duration": (F.DURATION, Duration.NS_LOAD),
        "prompt_eval_duration": (F.DURATION, Duration.NS_PROMPT_EVAL), "eval_duration": (F.DURATION, Duration.NS_EVAL),
    }  # fmt: skip
    words: dict[str, int] = {"load": FinishReason.FINISH_LOAD, "unload": FinishReason.FINISH_UNLOAD}
    return Dialect(keys, keys, object_arguments=True, words=words)


OLLAMA_CHAT = Endpoint(
    name="ollama-chat",
    aliases=("ollama",),
    dialect=dialect({"message": (F.OBJECT, MESSAGE)}),
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
    dialect=dialect({"response": F.CONTENT, "thinking": F.REASONING}),
    joint=TEXT,
    resource="api/generate",
)
