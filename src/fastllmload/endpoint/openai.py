"""OpenAI's API: chat completions (one user message) and completions (the prompt as text or as token ids)."""

from __future__ import annotations

from typing import Any

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
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


FUNCTION = (F.OBJECT, {"name": F.NAME, "arguments": F.ARGUMENTS})
MESSAGE = {
    "role": F.ROLE, "content": F.CONTENT, "refusal": F.REFUSAL, "reasoning_content": F.REASONING_CONTENT,
    "reasoning": F.REASONING, "tool_calls": (F.CALLS, {"function": FUNCTION}), "function_call": FUNCTION,
}  # fmt: skip
USAGE = {
    "prompt_tokens": F.PROMPT_TOKENS, "completion_tokens": F.COMPLETION_TOKENS, "total_tokens": F.TOTAL_TOKENS,
    "prompt_tokens_details": (F.TABLE, {"cached_tokens": F.CACHED_TOKENS}),
    "completion_tokens_details": (F.TABLE, {"reasoning_tokens": F.REASONING_TOKENS}),
}  # fmt: skip


def keys(text: dict[str, Any]) -> dict[str, Any]:
    """Of an event or body whose choices have the *text*."""
    choice = {
        "index": F.INDEX, "finish_reason": F.FINISH, "token_ids": F.TOKEN_IDS,
        "logprobs": (F.TABLE, {"content": F.LOGPROBS, "tokens": F.LOGPROBS}),
    }  # fmt: skip
    return {
        "id": F.ANY, "object": F.ERROR_WORD, "choices": (F.CHOICES, {**text, **choice}), "usage": (F.TABLE, USAGE),
        "error": F.ERROR,
    }  # fmt: skip


CHAT = Dialect(
    keys({"delta": (F.OBJECT, MESSAGE)}), keys({"message": (F.OBJECT, MESSAGE)}),
    sentinel=b"[DONE]", repeats=True, fragments=True,
)  # fmt: skip
TEXTS = keys({"text": F.CONTENT})
COMPLETIONS = Dialect(TEXTS, TEXTS, sentinel=b"[DONE]", repeats=True)

OPENAI_CHAT = Endpoint(
    name="openai-chat",
    aliases=("chat", "openai-chat-completions", "chat_completions", "vllm-chat"),
    dialect=CHAT,
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
    dialect=COMPLETIONS,
    joint=TEXT,
    resource="completions",
    models="models",
    root=api_path,
    fields=sampling_fields,
)
