"""OpenAI's Responses: items in, named events out. A history is sent again as items, or stored by the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastllmload._ext.events.dialect import Dialect, FinishReason
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import NUMBER, PROMPT, SAMPLING, check_lengths, with_extra
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.messages import answered_call, calls_of, check_fields, parts_of
from fastllmload.endpoint.protocols.openai import api_path
from fastllmload.endpoint.simulated import Event, RequestKeys, SimulatedApi
from fastllmload.endpoint.turns import Part, ToolTurn, TurnTemplate
from fastllmload.errors import InputError
from fastllmload.settings import Workload

NAME = "openai-responses"
OVER_WEBSOCKET = "openai-responses-ws"


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    check_lengths(extra, "max_output_tokens", NAME, required=False)
    fields: dict[str, Any] = {"max_output_tokens": NUMBER}
    if workload.ignore_eos:
        fields["ignore_eos"] = True
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    stored = workload.history == "stored"
    for name in ("store", "previous_response_id"):
        if stored and name in extra:
            raise InputError(
                "extra-body-reserved", f"--extra-body sets {name!r}, which --history stored sets; leave it out"
            )
    fields |= {"store": stored, "stream": workload.streaming}
    return {"model": model, **prompt, **with_extra(fields, extra)}


def image(where: dict[str, Any]) -> dict[str, Any]:
    """A part of a message; chat has an object with url and detail, here both are fields of the part."""
    return {"type": "input_image", "image_url": where["url"], "detail": where.get("detail", "auto")}


def image_message(text: str, urls: list[str]) -> dict[str, Any]:
    images = [image({"url": url}) for url in urls]
    return {"role": "user", "content": [{"type": "input_text", "text": text}, *images]}


def items(messages: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Messages of chat as items; items are left as they are."""
    return [item for message in messages for item in ([message] if "type" in message else _items(message))], {}


def _items(message: dict[str, Any]) -> list[dict[str, Any]]:
    check_fields(message, NAME)
    role = message["role"]
    parts = parts_of(message.get("content"), "output_text" if role == "assistant" else "input_text", image, NAME)
    if role == "tool":
        return [{"type": "function_call_output", "call_id": answered_call(message), "output": parts}]
    calls = [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in calls_of(message)
    ]
    return ([{"role": role, "content": parts}] if parts or not calls else []) + calls


# `type` says what `delta` is; vLLM writes it last. What comes again at the end (*.done, and `output` of the last event) is
# not read. A status counts where no reason is given.
RESPONSE = {
    "id": F.RESPONSE_ID, "status": F.FINISH, "incomplete_details": (F.TABLE, {"reason": F.FINISH_DETAIL}),
    "usage": (F.TABLE, {
        "input_tokens": F.PROMPT_TOKENS, "output_tokens": F.COMPLETION_TOKENS, "total_tokens": F.COUNTER,
        "input_tokens_details": (F.TABLE, {"cached_tokens": F.CACHED_TOKENS}),
        "output_tokens_details": (F.TABLE, {"reasoning_tokens": F.REASONING_TOKENS}),
    }),
}  # fmt: skip
PIECE = {"item_id": F.CALL_KEY, "delta": F.ARGUMENTS}
CALLED = {"id": F.CALL_KEY, "call_id": F.CALL_ID, "name": F.NAME}
END = (F.LAST, {"response": (F.OBJECT, RESPONSE)})
OUTPUT = {
    "message": {"content": (F.PARTS, {"type": (F.TYPE, {
        "output_text": {"text": F.CONTENT}, "refusal": {"refusal": F.REFUSAL}})})},
    "reasoning": {"content": (F.PARTS, {"text": F.REASONING})},
    "function_call": {"call_id": F.CALL_ID, "name": F.NAME, "arguments": F.ARGUMENTS},
}  # fmt: skip
DIALECT = Dialect(
    {"error": F.ERROR, "sequence_number": F.COUNTER, "obfuscation": F.COUNTER, "stream_id": F.LANE, "type": (F.TYPE, {
        "response.output_text.delta": {"delta": F.CONTENT},
        "response.reasoning_text.delta": {"delta": F.REASONING},
        "response.reasoning_summary_text.delta": {"delta": F.REASONING},
        "response.refusal.delta": {"delta": F.REFUSAL},
        "response.output_item.added": {"item": (F.TABLE, {"type": (F.TYPE, {
            "function_call": CALLED, "custom_tool_call": CALLED})})},
        "response.function_call_arguments.delta": PIECE, "response.custom_tool_call_input.delta": PIECE,
        "response.completed": END, "response.incomplete": END, "response.failed": F.ERROR, "error": F.ERROR})},
    {"object": F.ANY, "error": F.ERROR, "output": (F.PARTS, {"type": (F.TYPE, OUTPUT)}), **RESPONSE},
    sentinel=b"[DONE]", fragments=True,
    words={"completed": FinishReason.FINISH_STOP, "max_output_tokens": FinishReason.FINISH_LENGTH,
           "steered": FinishReason.FINISH_STOP},
)  # fmt: skip

# Calls and their answers are items next to the messages.
REPLY = '{"role":"assistant","content":"$text"}'
TURNS = TurnTemplate(
    between=",",
    user='{"role":"user","content":"$text"}',
    reply=REPLY,
    tools=ToolTurn(
        "$said$calls,$answers",
        said=REPLY + ",",
        silent="",
        call=Part(
            '{"type":"function_call","call_id":"$id","name":"$name","arguments":"$arguments"}',
            id="call_id",
            mark=("type", "function_call"),
        ),
        answer=Part(
            '{"type":"function_call_output","call_id":"$id","output":"$answer"}',
            id="call_id",
            mark=("type", "function_call_output"),
        ),
        stored=',"previous_response_id":"$text"}',
    ),
)

# The simulated engine numbers its events, and says each text again when its part, its item and the response end.
SEQUENCE = ',"sequence_number":$sequence'
ANSWER = '"id":"resp_$id","object":"response","created_at":$created,"model":"$model","parallel_tool_calls":true,'
ANSWER += '"tool_choice":"auto","tools":[],"metadata":{},"error":null,"status":'
USAGE = (
    ',"usage":{"input_tokens":$prompt,"input_tokens_details":{"cached_tokens":$cached},"output_tokens":$completion,'
    '"output_tokens_details":{"reasoning_tokens":$reasoning},"total_tokens":$total}}'
)
TEXT = '{"type":"output_text","text":"$whole_text","annotations":[]}'
SAID = '{"type":"message","id":"msg_$id","role":"assistant","status":"completed","content":[' + TEXT + "]}"
THOUGHT = (
    '{"type":"reasoning","id":"rs_$id","summary":[],"status":"completed","content":[{"type":"reasoning_text","text":"'
)
CALL = '{"type":"function_call","id":"fc_$id$call_hex","call_id":"call_$id$call_hex","name":"$tool","arguments":'
CALL_ENTRY = CALL + '$text,"status":"completed"}'
OUTPUT_ITEMS = "$<thought:" + THOUGHT + '$thought"}]}$>$<thought !silent:,$>$<!silent:' + SAID + "$>"
REASONS = (
    '"completed","incomplete_details":null,"output":[' + OUTPUT_ITEMS,
    '"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[' + OUTPUT_ITEMS,
    '"failed","incomplete_details":null,"output":[' + OUTPUT_ITEMS,
    '"completed","incomplete_details":null,"output":[$calls',
)


NOT_STORED = '"message":"$message","type":"invalid_request_error","param":"previous_response_id","code":"$type"'


def typed(name: str, rest: str) -> Event:
    """An event whose JSON repeats its name."""
    return Event(name, '{"type":"' + name + '"' + rest + SEQUENCE + "}")


def begun(name: str) -> Event:
    return typed(name, ',"response":{' + ANSWER + '"in_progress","incomplete_details":null,"output":[],"usage":null}')


def item(name: str, text: str) -> Event:
    return typed(f"response.output_item.{name}", ',"output_index":$index,"item":' + text)


def part(ident: str, name: str, rest: str) -> Event:
    return typed(f"response.{name}", ',"item_id":"' + ident + '_$id","output_index":$index,"content_index":0,' + rest)


def arguments(name: str, rest: str) -> Event:
    return typed(
        f"response.function_call_arguments.{name}", ',"item_id":"fc_$id$call_hex","output_index":$index,' + rest
    )


SIMULATED = SimulatedApi(
    path="/v1/responses",
    keys=RequestKeys(
        prompt="input",
        before="instructions",
        tokens=("max_output_tokens",),
        stream="stream",
        ignore_eos="ignore_eos",
        previous="previous_response_id",
        store="store",
    ),
    messages=True,
    answered_calls=TURNS.tools,
    start=(begun("response.created"), begun("response.in_progress")),
    reasoning_start=(
        item("added", '{"type":"reasoning","id":"rs_$id","summary":[],"status":"in_progress"}'),
        part("rs", "content_part.added", '"part":{"type":"reasoning_text","text":""}'),
    ),
    reasoning=part("rs", "reasoning_text.delta", '"delta":"$text"'),
    reasoning_stop=(
        part("rs", "reasoning_text.done", '"text":"$whole_text"'),
        part("rs", "content_part.done", '"part":{"type":"reasoning_text","text":"$whole_text"}'),
        item("done", THOUGHT + '$whole_text"}]}'),
    ),
    content_start=(
        item("added", '{"type":"message","id":"msg_$id","role":"assistant","status":"in_progress","content":[]}'),
        part("msg", "content_part.added", '"part":{"type":"output_text","text":"","annotations":[]}'),
    ),
    content=part("msg", "output_text.delta", '"delta":"$text","logprobs":[]'),
    content_stop=(
        part("msg", "output_text.done", '"text":"$whole_text","logprobs":[]'),
        part("msg", "content_part.done", '"part":' + TEXT),
        item("done", SAID),
    ),
    call_start=(item("added", CALL + '"","status":"in_progress"}'), arguments("delta", '"delta":$text')),
    call=arguments("delta", '"delta":$text'),
    call_stop=(
        arguments("done", '"name":"$tool","arguments":$whole_call'),
        item("done", CALL + '$whole_call,"status":"completed"}'),
    ),
    finish=typed("response.completed", ',"response":{' + ANSWER + "$finish]" + USAGE),
    words=REASONS,
    document="{" + ANSWER + "$finish]" + USAGE,
    calls="{" + ANSWER + '"completed","incomplete_details":null,"output":[$text]' + USAGE,
    call_entry=CALL_ENTRY,
    error='{"error":{"message":"$message","type":"$type","param":null,"code":$code}}',
    not_stored='{"error":{' + NOT_STORED + "}}",
    error_event=typed("error", ',"code":"$code","message":"$message","param":null'),
    broken='{"type":"response.output_text.delta","delta":" bro',
    deep='{"response":',
)

RESPONSES = Endpoint(
    name=NAME,
    aliases=("responses", "openai_responses", "vllm-responses"),
    title="OpenAI Responses",
    signs=(rb'"type"\s*:\s*"response\.', rb'"object"\s*:\s*"response"'),
    dialect=DIALECT,
    framing="sse",
    joint=TURNS,
    resource="responses",
    models="models",
    root=api_path,
    prompts={"text": {"input": [{"role": "user", "content": PROMPT}]}, "messages": {"input": PROMPT}},
    body=body,
    sampling={name: name for name in SAMPLING if name != "min_p"},
    messages=items,
    image_message=image_message,
    without={"ids": "its input is text; use --endpoint-type openai-completions"},
    simulated=(SIMULATED,),
)


def created(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """A message of a client: its type, and the fields of a body but for `stream`. `metadata` has the name of the request."""
    if not workload.streaming:
        raise InputError("protocol-unsupported", f"--no-stream: answers of {OVER_WEBSOCKET} are events; leave it out")
    for name in ("metadata", "type", "stream_id"):
        if name in extra:
            raise InputError(
                "extra-body-reserved", f"--extra-body sets {name!r}, which {OVER_WEBSOCKET} sets; leave it out"
            )
    fields = body(model, prompt, workload, extra)
    return {"type": "response.create"} | {name: value for name, value in fields.items() if name != "stream"}


FAILED = '{"type":"error","status":$code,"error":{"code":"$code","message":"$message","param":null,"type":"$type"}'

# Each request has the whole history, as over HTTP, so that any connection takes any turn.
RESPONSES_WS = replace(
    RESPONSES,
    name=OVER_WEBSOCKET,
    aliases=("responses-ws", "openai_responses_ws"),
    title="OpenAI Responses over WebSocket",
    signs=(),
    framing="websocket",
    body=created,
    simulated=(
        replace(
            SIMULATED,
            keys=replace(SIMULATED.keys, stream=""),
            stream_default=True,
            framing="websocket",
            recognised_by="generate",
            error=FAILED + "}",
            not_stored='{"type":"error","status":$code,"error":{' + NOT_STORED + "}}",
            error_event=FAILED + SEQUENCE + "}",
        ),
    ),
)
