"""SGLang's own generate: a text or token ids in, and all of the text since the beginning in each event."""

from __future__ import annotations

from typing import Any

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import ALL_SAMPLING, NUMBER, PROMPT, settings_object
from fastllmload.endpoint.endpoint import Endpoint, below
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi
from fastllmload.endpoint.turns import TEXT
from fastllmload.settings import Workload


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    ours: dict[str, Any] = {"max_new_tokens": NUMBER}
    if workload.ignore_eos:
        ours |= {"min_new_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        ours["temperature"] = workload.temperature
    sampling = settings_object("sampling_params", "max_new_tokens", ours, extra, "SGLang")
    return {**prompt, "sampling_params": sampling, "stream": workload.streaming, **extra}


# Each event has all of the text, or (--incremental-streaming-output) what is new of it.
KEYS: dict[str, Any] = {
    "text": F.CONTENT_SO_FAR, "output_ids": F.TOKEN_IDS, "error": F.ERROR,
    "meta_info": (F.OBJECT, {
        "finish_reason": (F.TABLE, {"type": F.FINISH}), "prompt_tokens": F.PROMPT_TOKENS,
        "completion_tokens": F.COMPLETION_TOKENS, "cached_tokens": F.CACHED_TOKENS,
        "reasoning_tokens": F.REASONING_TOKENS}),
}  # fmt: skip

SO_FAR = '{"text":"$whole_text","output_ids":[$whole_ids],"meta_info":{"id":"$id","prompt_tokens":$prompt,'
SO_FAR += '"weight_version":"default","completion_tokens":$completion,"cached_tokens":$cached,"finish_reason":'
SIMULATED = SimulatedApi(
    path="/generate",
    keys=RequestKeys(
        prompt=("text", "input_ids"), tokens=("sampling_params.max_new_tokens",), stream="stream",
        min_tokens="sampling_params.min_new_tokens", ignore_eos="sampling_params.ignore_eos",
    ),
    content=SO_FAR + "null}}",
    last=SO_FAR + "$finish}}",
    words=(
        '{"type":"stop","matched":2}', '{"type":"length","length":$completion}',
        '{"type":"abort","message":"simulated failure","status_code":500}',
    ),
    done="[DONE]",
    document=SO_FAR + "$finish}}",
    error='{"error":{"message":"$message","type":"$type","code":$code}}',
    deep='{"meta_info":',
)  # fmt: skip

SGLANG_GENERATE = Endpoint(
    name="sglang-generate",
    aliases=("sglang-native",),
    title="SGLang's generate",
    signs=(rb'"meta_info"\s*:\s*\{',),
    dialect=Dialect(KEYS, KEYS, sentinel=b"[DONE]"),
    framing="sse",
    joint=TEXT,
    resource="generate",
    models="v1/models",
    root=below,
    prompts={"text": {"text": PROMPT}, "ids": {"input_ids": PROMPT}},
    body=body,
    sampling=ALL_SAMPLING,
    sampling_within="sampling_params",
    simulated=(SIMULATED,),
)
