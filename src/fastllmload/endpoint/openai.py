"""OpenAI's API: chat completions (one user message) and completions (the prompt as text or as token ids)."""

from __future__ import annotations

from typing import Any

from fastllmload.endpoint.body import MESSAGES, NUMBER, TEXT, extra_fields
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.settings import Workload


def api_path(base_path: str, resource: str) -> str:
    """A base URL without a path means /v1, as in the OpenAI SDK; one that ends in the resource is used unchanged."""
    path = base_path.rstrip("/")
    if path.endswith("/" + resource):
        return path
    return f"{path or '/v1'}/{resource}"


def sampling_fields(workload: Workload) -> dict[str, Any]:
    """Fields in the order of the body; `NUMBER` is the request's output tokens.

    Fields of --extra-body replace ours; null removes one of ours. Its value "{output_tokens}", at any depth, becomes
    each request's output length: {"max_completion_tokens": "{output_tokens}"} replaces max_tokens. InputError when it
    is not a JSON object, or contradicts what the plan and the report say was sent.
    """
    extra = extra_fields(workload.extra_body)
    fields: dict[str, Any] = {} if extra.get("max_completion_tokens") is NUMBER else {"max_tokens": NUMBER}
    if workload.ignore_eos:
        fields |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    fields["stream"] = workload.streaming
    if workload.streaming:
        fields["stream_options"] = {"include_usage": True, **workload.usage_asked("continuous_usage_stats")}
        fields |= workload.ids_asked("return_token_ids")
    removed = [name for name, value in extra.items() if value is None and name in fields]
    return {name: value for name, value in (fields | extra).items() if name not in removed}


OPENAI_CHAT = Endpoint(
    name="openai-chat",
    aliases=("chat", "openai-chat-completions", "chat_completions", "vllm-chat"),
    dialect=0,  # DIALECT_CHAT
    joint=MESSAGES,
    resource="chat/completions",
    models="models",
    root=api_path,
    fields=sampling_fields,
    text_only="chat messages are text; use --endpoint-type openai-completions",
    images=True,
)
OPENAI_COMPLETIONS = Endpoint(
    name="openai-completions",
    aliases=("completions", "openai", "vllm", "lmdeploy", "scalellm", "sglang", "llama.cpp", "text_completions"),
    dialect=1,  # DIALECT_COMPLETIONS
    joint=TEXT,
    resource="completions",
    models="models",
    root=api_path,
    fields=sampling_fields,
)
