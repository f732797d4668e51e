"""vLLM's generate: token ids in and out, without text. The server needs --enable-scale-out."""

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
    ours: dict[str, Any] = {"max_tokens": NUMBER}
    if workload.ignore_eos:
        ours |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        ours["temperature"] = workload.temperature
    sampling = settings_object("sampling_params", "max_tokens", ours, extra, "vLLM")
    fields: dict[str, Any] = {"model": model, **prompt, "sampling_params": sampling, "stream": workload.streaming}
    if workload.streaming:
        fields["stream_options"] = {"include_usage": True}
    return {name: value for name, value in (fields | extra).items() if value is not None}


# Ids without text, or (output_mode text) both.
KEYS: dict[str, Any] = {
    "request_id": F.ANY, "error": F.ERROR, "prompt_token_ids": F.PROMPT_IDS,
    "choices": (F.CHOICES, {
        "index": F.INDEX, "text": F.CONTENT, "token_ids": F.ANSWER_IDS, "finish_reason": F.FINISH}),
    "usage": (F.TABLE, {
        "prompt_tokens": F.PROMPT_TOKENS, "completion_tokens": F.COMPLETION_TOKENS,
        "prompt_tokens_details": (F.TABLE, {"cached_tokens": F.CACHED_TOKENS})}),
}  # fmt: skip

USED = (
    '"usage":{"prompt_tokens":$prompt,"total_tokens":$total,"completion_tokens":$completion,'
    '"prompt_tokens_details":{"cached_tokens":$cached}}'
)
OPENING = '{"request_id":"generate-tokens-$id","output_mode":"tokens",'
CHOICE = OPENING + '"choices":[{"index":0,"stop_reason":null,"logprobs":null,"token_ids":[$ids],"finish_reason":'
SIMULATED = SimulatedApi(
    path="/inference/v1/generate",
    keys=RequestKeys(
        prompt="token_ids", tokens=("sampling_params.max_tokens",), stream="stream",
        usage="stream_options.include_usage", min_tokens="sampling_params.min_tokens",
        ignore_eos="sampling_params.ignore_eos",
    ),
    content=CHOICE + 'null}],"usage":null}',
    last=CHOICE + '"$finish"}],"usage":null}',
    words=("stop", "length", "abort"),
    usage=OPENING + '"choices":[],' + USED + "}",
    done="[DONE]",
    document=OPENING + '"choices":[{"index":0,"token_ids":[$whole_ids],"finish_reason":"$finish"}],' + USED + "}",
    error='{"error":{"message":"$message","type":"$type","param":null,"code":$code}}',
    broken='{"request_id":"generate-tokens-0","choices":[{"index":0,"token_ids":[1',
    deep='{"choices":',
)  # fmt: skip

VLLM_GENERATE = Endpoint(
    name="vllm-generate",
    aliases=("vllm-tokens",),
    title="vLLM's generate",
    signs=(rb'"request_id"\s*:.*"choices"\s*:\s*\[\s*\{[^{}]*"token_ids"\s*:',),
    dialect=Dialect(KEYS, KEYS, sentinel=b"[DONE]"),
    framing="sse",
    joint=TEXT,
    resource="inference/v1/generate",
    models="v1/models",
    root=below,
    prompts={"ids": {"token_ids": PROMPT}},
    body=body,
    sampling=ALL_SAMPLING,
    sampling_within="sampling_params",
    without={"text": "it takes token ids only; use --prompt-form ids, or --endpoint-type openai-completions"},
    simulated=(SIMULATED,),
)
