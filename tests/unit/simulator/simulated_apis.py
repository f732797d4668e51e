"""APIs that the simulated engine could serve, declared as a protocol's file would declare them. As a script: serves them."""

from __future__ import annotations

import sys
from dataclasses import replace

from fastllmload.endpoint.simulated import Event, RequestKeys, SimulatedApi, SimulatedPage
from fastllmload.simulator.profile import SimulatorOptions


def typed(name: str, rest: str) -> Event:
    """An event whose JSON repeats its name."""
    return Event(name, '{"type":"' + name + '"' + rest + "}")


def block(kind: str) -> Event:
    return typed("content_block_start", ',"index":$index,"content_block":{"type":' + kind + "}")


def delta(kind: str) -> Event:
    return typed("content_block_delta", ',"index":$index,"delta":{"type":' + kind + "}")


STOP = typed("content_block_stop", ',"index":$index')
MESSAGE = '{"id":"msg_$id","type":"message","role":"assistant","model":"$model","content":['
SPENT = '"usage":{"input_tokens":$uncached,"cache_read_input_tokens":$cached,"output_tokens":$completion}'
TOOL_USE = '"tool_use","id":"toolu_$id$call_hex","name":"$tool","input":'
MESSAGES = SimulatedApi(
    path="/v1/messages",
    keys=RequestKeys(prompt="messages", tokens=("max_tokens",), stream="stream"),
    messages=True,
    start=typed("message_start", ',"message":' + MESSAGE + '],"stop_reason":null,' + SPENT + "}"),
    reasoning_start=block('"thinking","thinking":""'),
    reasoning=delta('"thinking_delta","thinking":"$text"'),
    reasoning_stop=(delta('"signature_delta","signature":"$id"'), STOP),
    content_start=block('"text","text":""'),
    content=delta('"text_delta","text":"$text"'),
    content_stop=STOP,
    call_start=(block(TOOL_USE + "{}"), delta('"input_json_delta","partial_json":$text')),
    call=delta('"input_json_delta","partial_json":$text'),
    call_stop=STOP,
    finish=typed("message_delta", ',"delta":{"stop_reason":"$finish","stop_sequence":null},' + SPENT),
    words=("end_turn", "max_tokens", "refusal", "tool_use"),
    done=typed("message_stop", ""),
    document=MESSAGE + '{"type":"text","text":"$whole_text"}],"stop_reason":"$finish",' + SPENT + "}",
    calls=MESSAGE + '$text],"stop_reason":"tool_use",' + SPENT + "}",
    call_entry='{"type":' + TOOL_USE + "$text}",
    object_arguments=True,
    error=typed("error", ',"error":{"type":"$type","message":"$message"}'),
)

ITEM = '"item_id":"msg_$id","output_index":$index,"content_index":0'
TEXT = '{"type":"output_text","text":"$whole_text","annotations":[]}'
ANSWER = '{"id":"resp_$id","object":"response","created_at":$created,"model":"$model"'
SPENT = (
    ',"usage":{"input_tokens":$prompt,"input_tokens_details":{"cached_tokens":$cached},"output_tokens":$completion,'
    '"total_tokens":$total}'
)
OUTPUT = ',"output":[{"type":"message","id":"msg_$id","role":"assistant","content":[' + TEXT + "]}]"
SEQUENCE = ',"sequence_number":$sequence'
RESPONSES = SimulatedApi(
    path="/v1/responses",
    keys=RequestKeys(prompt="input", tokens=("max_output_tokens",), stream="stream", ignore_eos="ignore_eos"),
    messages=True,
    start=(
        typed("response.created", ',"response":' + ANSWER + ',"status":"in_progress"}' + SEQUENCE),
        typed("response.in_progress", ',"response":' + ANSWER + ',"status":"in_progress"}' + SEQUENCE),
    ),
    content_start=(
        typed(
            "response.output_item.added", ',"output_index":$index,"item":{"type":"message","id":"msg_$id"}' + SEQUENCE
        ),
        typed("response.content_part.added", "," + ITEM + ',"part":{"type":"output_text","text":""}' + SEQUENCE),
    ),
    content=typed("response.output_text.delta", "," + ITEM + ',"delta":"$text"' + SEQUENCE),
    content_stop=(
        typed("response.output_text.done", "," + ITEM + ',"text":"$whole_text"' + SEQUENCE),
        typed("response.content_part.done", "," + ITEM + ',"part":' + TEXT + SEQUENCE),
        typed(
            "response.output_item.done", ',"output_index":$index,"item":{"type":"message","id":"msg_$id"}' + SEQUENCE
        ),
    ),
    finish=typed("response.completed", ',"response":' + ANSWER + ',"status":$finish' + OUTPUT + SPENT + "}" + SEQUENCE),
    words=(
        '"completed","incomplete_details":null',
        '"incomplete","incomplete_details":{"reason":"max_output_tokens"}',
        '"failed","incomplete_details":null',
    ),
    document=ANSWER + ',"status":$finish' + OUTPUT + SPENT + "}",
    error=typed("error", ',"code":"$code","message":"$message"'),
)

TOKEN = '{"index":$completion,"token":{"id":$ids,"text":"$text","logprob":-0.5,"special":false},"generated_text":'
DETAILS = '"details":{"finish_reason":"$finish","generated_tokens":$completion,"input_length":$prompt}}'
TGI_STREAM = SimulatedApi(
    path="/generate_stream",
    keys=RequestKeys(prompt="inputs", tokens=("parameters.max_new_tokens",)),
    stream_default=True,
    content=TOKEN + 'null,"details":null}',
    last=TOKEN + '"$whole_text",' + DETAILS,
    words=("eos_token", "length", "abort"),
    document='{"generated_text":"$whole_text",' + DETAILS,
    error='{"error":"$message","error_type":"generation"}',
    pages=(SimulatedPage("/info", '{"model_id":"$model","max_total_tokens":$max_model_len}'),),
)
TGI = replace(TGI_STREAM, path="/generate", stream_default=False, pages=())

SO_FAR = '{"text":"$whole_text","output_ids":[$whole_ids],"meta_info":{"id":"$id","prompt_tokens":$prompt,'
SO_FAR += '"completion_tokens":$completion,"cached_tokens":$cached,"finish_reason":'
SGLANG = SimulatedApi(
    path="/sglang/generate",
    keys=RequestKeys(
        prompt="text",
        tokens=("sampling_params.max_new_tokens",),
        stream="stream",
        ignore_eos="sampling_params.ignore_eos",
    ),
    content=SO_FAR + "null}}",
    last=SO_FAR + "$finish}}",
    words=('{"type":"stop","matched":2}', '{"type":"length","length":$completion}', '{"type":"abort"}'),
    done="[DONE]",
    document=SO_FAR + "$finish}}",
    error='{"error":{"message":"$message","type":"$type","code":$code}}',
)

TRITON = SimulatedApi(
    path="/v2/models/$model/generate_stream",
    keys=RequestKeys(prompt="text_input", tokens=("sampling_param_max_tokens",), stream="streaming"),
    content='{"model_name":"$model","model_version":"1","text_output":"$text"}',
    document='{"model_name":"$model","model_version":"1","text_output":"$whole_text"}',
    words=("", "", ""),
    error='{"error":"$message"}',
    missing="Request for unknown model: '$model' is not found",
    pages=(SimulatedPage("/v2/health/ready", ""),),
)

EMBEDDINGS = SimulatedApi(
    path="/v1/embeddings",
    keys=RequestKeys(prompt="input"),
    output_tokens=1,
    content="",
    words=("", "", ""),
    document='{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-0.5]}],"model":"$model",'
    '"usage":{"prompt_tokens":$prompt,"total_tokens":$prompt}}',
    error='{"error":{"message":"$message","type":"$type","code":$code}}',
)

APIS = (MESSAGES, RESPONSES, TGI_STREAM, TGI, SGLANG, TRITON, EMBEDDINGS)

if __name__ == "__main__":
    from fastllmload.simulator.serve import serve

    sys.exit(
        serve(SimulatorOptions(ttft_ms=0.1, itl_ms=0.1, truth=sys.argv[1]), lambda url: print(url, flush=True), APIS)
    )
