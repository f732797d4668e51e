"""OpenAI's API: chat completions (one user message) and completions (the prompt as text or as token ids)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import ALL_SAMPLING, CHAT_PROMPTS, NUMBER, PROMPT, with_extra
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi, SimulatedPage
from fastllmload.endpoint.turns import TEXT, Part, ToolTurn, TurnTemplate
from fastllmload.settings import Workload


def api_path(base_path: str, resource: str) -> str:
    """A base URL without a path means /v1, as in the OpenAI SDK; one that ends in the resource is used unchanged."""
    path = base_path.rstrip("/")
    if path.endswith("/" + resource):
        return path
    return f"{path or '/v1'}/{resource}"


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, **prompt, **sampling_fields(workload, extra)}


def image_message(text: str, urls: list[str]) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": text}, *images]}


def sampling_fields(workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """Fields in the order of the body; `NUMBER` is the request's output tokens.

    Fields of --extra-body replace ours; null removes one of ours. Its value "{output_tokens}", at any depth, becomes
    each request's output length: {"max_completion_tokens": "{output_tokens}"} replaces max_tokens. InputError when it
    is not a JSON object, or contradicts what the plan and the report say was sent.
    """
    fields: dict[str, Any] = {} if extra.get("max_completion_tokens") is NUMBER else {"max_tokens": NUMBER}
    if workload.ignore_eos:
        fields |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    fields["stream"] = workload.streaming
    if workload.streaming:
        fields["stream_options"] = {"include_usage": True, **workload.usage_asked("continuous_usage_stats")}
        fields |= workload.ids_asked("return_token_ids")
    return with_extra(fields, extra)


FUNCTION = (F.OBJECT, {"name": F.NAME, "arguments": F.ARGUMENTS})
MESSAGE = {
    "role": F.ROLE, "content": F.CONTENT, "refusal": F.REFUSAL, "reasoning_content": F.REASONING_CONTENT,
    "reasoning": F.REASONING, "function_call": FUNCTION,
    "tool_calls": (F.CALLS, {"index": F.CALL_INDEX, "id": F.CALL_ID, "function": FUNCTION}),
}  # fmt: skip
USAGE = {
    "prompt_tokens": F.PROMPT_TOKENS, "completion_tokens": F.COMPLETION_TOKENS, "total_tokens": F.COUNTER,
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
        "error": F.ERROR, "obfuscation": F.COUNTER,
    }  # fmt: skip


CHAT = Dialect(
    keys({"delta": (F.OBJECT, MESSAGE)}), keys({"message": (F.OBJECT, MESSAGE)}),
    sentinel=b"[DONE]", fragments=True,
)  # fmt: skip
TEXTS = keys({"text": F.CONTENT})
COMPLETIONS = Dialect(TEXTS, TEXTS, sentinel=b"[DONE]")

TURNS = TurnTemplate(
    between=",",
    user='{"role":"user","content":"$text"}',
    reply='{"role":"assistant","content":"$text"}',
    tools=ToolTurn(
        '{"role":"assistant","content":$said,"tool_calls":[$calls]},$answers',
        said='"$text"',
        silent="null",
        call=Part(
            '{"id":"$id","type":"function","function":{"name":"$name","arguments":"$arguments"}}',
            id="id",
            inside="tool_calls",
        ),
        answer=Part(
            '{"role":"tool","tool_call_id":"$id","content":"$answer"}',
            id="tool_call_id",
            names=("tool_name", "name"),
            mark=("role", "tool"),
        ),
    ),
)
COUNTED_BY = {"on": "stream_options", "token-ids": "return_token_ids"}

# The simulated engine answers as vLLM does.
COUNTS = ',"usage":{"prompt_tokens":$prompt,"total_tokens":$total,"completion_tokens":$completion'
COUNTED = "$<counted:" + COUNTS + "}$>}"
FULL_USAGE = COUNTS + ',"prompt_tokens_details":{"cached_tokens":$cached}}'
LISTED = ',"finish_reason":null$<ids:,"token_ids":[$ids]$>}]$padding' + COUNTED
DOCUMENT_END = ',"logprobs":null,"finish_reason":"$finish"}]$<usage:' + FULL_USAGE + "$>}"


def opening(ident: str, kind: str) -> str:
    """Of an event or document, up to its choices."""
    return '{"id":"' + ident + '-$id","object":"' + kind + '","created":$created,"model":"$model","choices":['


CHAT_CHUNK = opening("chatcmpl", "chat.completion.chunk") + '{"index":0,"delta":{'
CHAT_DOCUMENT = opening("chatcmpl", "chat.completion") + '{"index":0,"message":{"role":"assistant",'
CHAT_LISTED = '"},"logprobs":$<logprobs:{"content":[$logprobs]}$>$<!logprobs:null$>' + LISTED
CHAT_END = '},"logprobs":null,"finish_reason":null}]' + COUNTED
CALL = '"id":"chatcmpl-tool-$id$call_hex","type":"function","function":{"name":"$tool","arguments":$text}}'
SIMULATED_CHAT = SimulatedApi(
    path="/v1/chat/completions",
    keys=RequestKeys(
        prompt="messages", tokens=("max_tokens", "max_completion_tokens"), stream="stream",
        usage="stream_options.include_usage", counted="stream_options.continuous_usage_stats", ids="return_token_ids",
        logprobs="logprobs", min_tokens="min_tokens", ignore_eos="ignore_eos", n="n", priority="priority",
    ),
    messages=True,
    answered_calls=TURNS.tools,
    start=CHAT_CHUNK + '"role":"assistant","content":""' + CHAT_END,
    content=CHAT_CHUNK + '"content":"$text' + CHAT_LISTED,
    reasoning=CHAT_CHUNK + '"reasoning_content":"$text' + CHAT_LISTED,
    call_start=CHAT_CHUNK + '"tool_calls":[{"index":$call,' + CALL + "]" + CHAT_END,
    call=CHAT_CHUNK + '"tool_calls":[{"index":$call,"function":{"arguments":$text}}]' + CHAT_END,
    finish=CHAT_CHUNK + '},"logprobs":null,"finish_reason":"$finish"}]' + COUNTED,
    usage=opening("chatcmpl", "chat.completion.chunk") + "]" + FULL_USAGE + "}",
    done="[DONE]",
    document=CHAT_DOCUMENT + '"content":"$whole_text"}' + DOCUMENT_END,
    calls=CHAT_DOCUMENT + '"content":null,"tool_calls":[$text]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":'
    '{"prompt_tokens":$prompt,"completion_tokens":$completion,"total_tokens":$total}}',
    call_entry="{" + CALL,
    logprob='{"token":"$word","logprob":-0.5,"bytes":null,"top_logprobs":[]}',
    error='{"error":{"message":"$message","type":"$type","param":null,"code":$code}}',
    padding=',"obfuscation":"$fill"',  # the field that OpenAI itself pads its events with
    broken='{"id":"chatcmpl-0","choices":[{"index":0,"delta":{"content":" bro',
    deep='{"choices":',
    pages=(
        SimulatedPage(
            "/v1/models",
            '{"object":"list","data":[$models]}',
            entry='{"id":"$model","object":"model","created":$created,"owned_by":"fastllmload",'
            '"max_model_len":$max_model_len}',
        ),
    ),
)  # fmt: skip
CHUNK = opening("cmpl", "text_completion") + '{"index":0,"text":"'
SIMULATED_COMPLETIONS = replace(
    SIMULATED_CHAT,
    path="/v1/completions",
    keys=replace(SIMULATED_CHAT.keys, prompt="prompt"),
    messages=False,
    answered_calls=None,
    start="",
    content=CHUNK + '$text","logprobs":$<logprobs:{"tokens":[$logprobs]}$>$<!logprobs:null$>' + LISTED,
    reasoning="",
    call_start="",
    call="",
    finish=CHUNK + '","logprobs":null,"finish_reason":"$finish"}]' + COUNTED,
    usage=opening("cmpl", "text_completion") + "]" + FULL_USAGE + "}",
    document=CHUNK + '$whole_text"' + DOCUMENT_END,
    calls="",
    call_entry="",
    logprob='"$word"',
    pages=(),
)

OPENAI_CHAT = Endpoint(
    name="openai-chat",
    aliases=("chat", "openai-chat-completions", "chat_completions", "vllm-chat"),
    title="OpenAI chat completions",
    signs=(rb'"object"\s*:\s*"chat\.completion', rb'"choices"\s*:\s*\[\s*\{[^{}]*"(?:delta|message)"\s*:\s*\{'),
    dialect=CHAT,
    framing="sse",
    joint=TURNS,
    resource="chat/completions",
    models="models",
    root=api_path,
    prompts=CHAT_PROMPTS,
    body=body,
    sampling=ALL_SAMPLING,
    image_message=image_message,
    without={"ids": "chat messages are text; use --endpoint-type openai-completions"},
    counted_by=COUNTED_BY,
    simulated=(SIMULATED_CHAT,),
)
OPENAI_COMPLETIONS = Endpoint(
    name="openai-completions",
    aliases=("completions", "openai", "vllm", "lmdeploy", "scalellm", "sglang", "llama.cpp", "text_completions"),
    title="OpenAI completions",
    signs=(rb'"object"\s*:\s*"text_completion"', rb'"choices"\s*:\s*\[\s*\{[^{}]*"text"\s*:\s*"'),
    dialect=COMPLETIONS,
    framing="sse",
    joint=TEXT,
    resource="completions",
    models="models",
    root=api_path,
    prompts={"text": {"prompt": PROMPT}, "ids": {"prompt": PROMPT}},
    body=body,
    sampling=ALL_SAMPLING,
    counted_by=COUNTED_BY,
    simulated=(SIMULATED_COMPLETIONS,),
)
