"""Anthropic's Messages: blocks of text, thought and tool use in and out; the system prompt is a field of its own."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import CHAT_PROMPTS, NUMBER, check_lengths, with_extra
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.messages import ToolCall, answered_call, calls_of, check_fields, parts_of, refuse
from fastllmload.endpoint.protocols.openai import api_path
from fastllmload.endpoint.simulated import Event, RequestKeys, SimulatedApi
from fastllmload.endpoint.turns import Part, ToolTurn, TurnTemplate
from fastllmload.settings import Workload

NAME = "anthropic-messages"
VERSION = "2023-06-01"  # the next one, 2026-10-21, refuses a temperature
DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """`system` is in front of the messages, where the later turns of a conversation keep it."""
    check_lengths(extra, "max_tokens", NAME)
    system = {"system": extra.pop("system")} if "system" in extra else {}
    fields: dict[str, Any] = {"max_tokens": NUMBER}
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    fields["stream"] = workload.streaming
    return {"model": model, **system, **prompt, **with_extra(fields, extra)}


def image(where: dict[str, Any]) -> dict[str, Any]:
    url = where["url"]
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    found = DATA_URL.match(url)
    if found is None:
        refuse(f"an image's data: URL is not of the form data:image/png;base64,..., so {NAME} cannot carry it")
    return {"type": "image", "source": {"type": "base64", "media_type": found[1], "data": url[found.end() :]}}


def image_message(text: str, urls: list[str]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, *(image({"url": url}) for url in urls)]}


def messages(conversation: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Messages of chat in this form: those of role system in front are `system`, answers of tools are blocks of a user."""
    found: list[dict[str, Any]] = []
    system: list[Any] = []
    answers: list[Any] | None = None  # blocks of the latest message, if it has answers alone
    for message in conversation:
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            refuse(f"a message has role {role!r}, which {NAME} does not have")
        check_fields(message, NAME)
        parts = parts_of(message.get("content"), "text", image, NAME)
        if role in ("system", "developer"):
            if found:
                refuse(f"a message of role {role} is not in front of all others, where {NAME} has its system prompt")
            system += blocks(parts)
        elif role == "tool":
            if answers is None:
                answers = []
                found.append({"role": "user", "content": answers})
            answers.append({"type": "tool_result", "tool_use_id": answered_call(message), "content": parts})
            continue
        else:
            calls = [use(call) for call in calls_of(message)]
            found.append({"role": role, "content": [*(blocks(parts) if parts else []), *calls] if calls else parts})
        answers = None
    texts = [block["text"] for block in system if block.keys() == {"type", "text"}]
    fields = {"system": texts[0] if len(texts) == len(system) == 1 else system} if system else {}
    return found, fields


def blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def use(call: ToolCall) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        refuse(f"the arguments of a call of {call.name!r} are not a JSON object, which {NAME} takes alone")
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


# `input_tokens` leaves out what a cache held; a later event may correct any one of the counts.
COUNTS = (F.TABLE, {
    "input_tokens": F.UNCACHED_TOKENS, "cache_read_input_tokens": F.CACHED_TOKENS,
    "cache_creation_input_tokens": F.CACHE_WRITTEN_TOKENS, "output_tokens": F.COMPLETION_TOKENS,
    "output_tokens_details": (F.TABLE, {"thinking_tokens": F.REASONING_TOKENS}),
})  # fmt: skip
TOOL = {"id": F.CALL_ID, "name": F.NAME}
SEALED = {"data": F.SEALED}
DIALECT = Dialect(
    {"error": F.ERROR, "type": (F.TYPE, {
        "content_block_delta": {"index": F.CALL_INDEX, "delta": (F.OBJECT, {"type": (F.TYPE, {
            "text_delta": {"text": F.CONTENT}, "thinking_delta": {"thinking": F.REASONING},
            "signature_delta": {"signature": F.SIGNATURE}, "input_json_delta": {"partial_json": F.ARGUMENTS}})})},
        "content_block_start": {
            "index": F.CALL_INDEX, "content_block": (F.OBJECT, {"type": (F.TYPE, {
                "tool_use": TOOL, "thinking": {"signature": F.SIGNATURE}, "redacted_thinking": SEALED})})},
        "message_start": {"message": (F.OBJECT, {"usage": COUNTS})},
        "message_delta": {"delta": (F.OBJECT, {"stop_reason": F.FINISH}), "usage": COUNTS},
        "message_stop": F.LAST, "error": F.ERROR})},
    {"error": F.ERROR, "type": (F.TYPE, {"error": F.ERROR, "message": {
        "content": (F.PARTS, {"type": (F.TYPE, {
            "text": {"text": F.CONTENT}, "thinking": {"thinking": F.REASONING, "signature": F.SIGNATURE},
            "redacted_thinking": SEALED, "tool_use": {**TOOL, "input": F.ARGUMENTS}})}),
        "stop_reason": F.FINISH, "usage": COUNTS}})},
    sentinel=b"[DONE]", fragments=True,
)  # fmt: skip

# Calls and their answers are blocks of messages, as thoughts are, which servers want back unchanged. Arguments are objects.
TURNS = TurnTemplate(
    between=",",
    user='{"role":"user","content":"$text"}',
    reply='{"role":"assistant","content":"$text"}',
    tools=ToolTurn(
        '{"role":"assistant","content":[$said$calls]},{"role":"user","content":[$answers]}',
        said='{"type":"text","text":"$text"},',
        silent="",
        call=Part(
            '{"type":"tool_use","id":"$id","name":"$name","input":$object}',
            id="id",
            inside="content",
            mark=("type", "tool_use"),
        ),
        answer=Part(
            '{"type":"tool_result","tool_use_id":"$id","content":"$answer"}',
            id="tool_use_id",
            inside="content",
            mark=("type", "tool_result"),
        ),
        alone='{"role":"assistant","content":[$said]}',
        thought='{"type":"thinking","thinking":"$text","signature":"$signature"},',
        sealed='{"type":"redacted_thinking","data":"$text"},',
    ),
)


def typed(name: str, rest: str = "") -> Event:
    """An event whose JSON repeats its name."""
    return Event(name, '{"type":"' + name + '"' + rest + "}")


def block(kind: str) -> Event:
    return typed("content_block_start", ',"index":$index,"content_block":{"type":' + kind + "}")


def delta(kind: str) -> Event:
    return typed("content_block_delta", ',"index":$index,"delta":{"type":' + kind + "}")


# The simulated engine.
STOP = typed("content_block_stop", ',"index":$index')
MESSAGE = '{"id":"msg_$id","type":"message","role":"assistant","model":"$model","stop_sequence":null,"content":['
SPENT = (
    '"usage":{"input_tokens":$uncached,"cache_creation_input_tokens":0,"cache_read_input_tokens":$cached,'
    '"output_tokens":$completion,"output_tokens_details":{"thinking_tokens":$reasoning}}'
)
TOOL_USE = '"tool_use","id":"toolu_$id$call_hex","name":"$tool","input":'
SIMULATED = SimulatedApi(
    path="/v1/messages",
    keys=RequestKeys(prompt="messages", before="system", tokens=("max_tokens",), stream="stream"),
    messages=True,
    answered_calls=TURNS.tools,
    signs_thoughts=True,
    start=(typed("message_start", ',"message":' + MESSAGE + '],"stop_reason":null,' + SPENT + "}"), typed("ping")),
    reasoning_start=block('"thinking","thinking":"","signature":""'),
    reasoning=delta('"thinking_delta","thinking":"$text"'),
    reasoning_stop=(delta('"signature_delta","signature":"$id-$reasoning"'), STOP),
    content_start=block('"text","text":""'),
    content=delta('"text_delta","text":"$text"'),
    content_stop=STOP,
    call_start=(block(TOOL_USE + "{}"), delta('"input_json_delta","partial_json":$text')),
    call=delta('"input_json_delta","partial_json":$text'),
    call_stop=STOP,
    finish=typed("message_delta", ',"delta":{"stop_reason":"$finish","stop_sequence":null},' + SPENT),
    words=("end_turn", "max_tokens", "abort", "tool_use"),
    done=typed("message_stop"),
    document=MESSAGE + '{"type":"text","text":"$whole_text"}],"stop_reason":"$finish",' + SPENT + "}",
    calls=MESSAGE + '$text],"stop_reason":"tool_use",' + SPENT + "}",
    call_entry='{"type":' + TOOL_USE + "$text}",
    object_arguments=True,
    error=typed("error", ',"error":{"type":"$type","message":"$message"}'),
    error_types={
        400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
        413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 504: "timeout_error", 529: "overloaded_error",
    },
    broken='{"type":"content_block_delta","delta":{"type":"text_delta","text":" bro',
    deep='{"message":',
)  # fmt: skip

MESSAGES = Endpoint(
    name=NAME,
    aliases=("messages", "anthropic", "anthropic_messages"),
    title="Anthropic Messages",
    signs=(
        rb'"type"\s*:\s*"(?:message_start|content_block_(?:start|delta))"',
        rb'^(?=.*"type"\s*:\s*"message").*"stop_reason"\s*:',
    ),
    dialect=DIALECT,
    framing="sse",
    joint=TURNS,
    resource="messages",
    models="models",
    root=api_path,
    prompts=CHAT_PROMPTS,
    key_variable="ANTHROPIC_API_KEY",
    body=body,
    sampling={"top_p": "top_p", "top_k": "top_k"},
    messages=messages,
    image_message=image_message,
    headers={"anthropic-version": VERSION, "x-api-key": "{key}"},
    without={
        "ids": "its messages are text; use --endpoint-type openai-completions",
        "ignore_eos": "Anthropic's Messages have no ignore_eos: a model may stop before the output length (max_tokens)",
    },
    simulated=(SIMULATED,),
)
