"""SGLang's gRPC: token ids in, token ids out; one call for each request."""

from __future__ import annotations

from typing import Any

from fastllmload._ext.bytes.schema import Kind, Schema
from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import ALL_SAMPLING, NUMBER, PROMPT, settings_object
from fastllmload.endpoint.call import HEADERS, WITHOUT_TURNS, GrpcCall, call_path, engine_pages
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi
from fastllmload.endpoint.turns import TEXT
from fastllmload.settings import Workload

REQUEST = Schema({
    "request_id": (1, Kind.TEXT),
    "tokenized": (2, {"original_text": (1, Kind.TEXT), "input_ids": (2, Kind.INTEGER)}),
    "sampling_params": (4, {
        "temperature": (1, Kind.FLOAT), "top_p": (2, Kind.FLOAT), "top_k": (3, Kind.INTEGER), "min_p": (4, Kind.FLOAT),
        "frequency_penalty": (5, Kind.FLOAT), "presence_penalty": (6, Kind.FLOAT), "repetition_penalty": (7, Kind.FLOAT),
        "max_new_tokens": (8, Kind.INTEGER), "stop": (9, Kind.TEXT), "stop_token_ids": (10, Kind.INTEGER),
        "skip_special_tokens": (11, Kind.BOOL), "regex": (13, Kind.TEXT), "json_schema": (14, Kind.TEXT),
        "n": (17, Kind.INTEGER), "min_new_tokens": (18, Kind.INTEGER),
        "ignore_eos": (19, Kind.BOOL), "stream_interval": (21, Kind.INTEGER)}),
    "lora_id": (15, Kind.TEXT),
    "data_parallel_rank": (16, Kind.INTEGER),
    "stream": (17, Kind.BOOL),
    "require_reasoning": (18, Kind.BOOL),
})  # fmt: skip
# completion_tokens grows from message to message. `complete` repeats the ids of the last chunk.
RESPONSE = Schema({
    "request_id": (1, Kind.TEXT),
    "chunk": (2, {
        "token_ids": (1, Kind.INTEGER), "prompt_tokens": (2, Kind.INTEGER), "completion_tokens": (3, Kind.INTEGER),
        "cached_tokens": (4, Kind.INTEGER), "reasoning_tokens": (9, Kind.INTEGER)}),
    "complete": (3, {
        "output_ids": (1, Kind.INTEGER), "finish_reason": (2, Kind.TEXT), "prompt_tokens": (3, Kind.INTEGER),
        "completion_tokens": (4, Kind.INTEGER), "cached_tokens": (5, Kind.INTEGER), "reasoning_tokens": (12, Kind.INTEGER)}),
})  # fmt: skip
USED = {
    "prompt_tokens": F.PROMPT_TOKENS, "completion_tokens": F.COMPLETION_TOKENS, "cached_tokens": F.CACHED_TOKENS,
    "reasoning_tokens": F.REASONING_TOKENS,
}  # fmt: skip
EVENT = {
    "chunk": (F.OBJECT, {"token_ids": F.ANSWER_IDS, **USED}),
    "complete": (F.OBJECT, {"output_ids": F.WHOLE_IDS, "finish_reason": F.FINISH, **USED}),
}
WITHOUT_TEXT = "SGLang's gRPC takes token ids only; use --prompt-form ids, or --endpoint-type sglang-generate"


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """A message leaves zeros out, so what is 1 unless it is said is said."""
    ours: dict[str, Any] = {"top_p": 1, "repetition_penalty": 1, "n": 1, "max_new_tokens": NUMBER}
    if workload.ignore_eos:
        ours |= {"min_new_tokens": NUMBER, "ignore_eos": True}
    ours["temperature"] = 1 if workload.temperature is None else workload.temperature
    sampling = settings_object("sampling_params", "max_new_tokens", ours, extra, "SGLang's gRPC")
    return {**prompt, "sampling_params": sampling, "stream": workload.streaming, **extra}


SERVICE = "sglang.grpc.scheduler.SglangScheduler"
MODEL_INFO = Schema({
    "model_path": (1, Kind.TEXT), "is_generation": (3, Kind.BOOL), "served_model_name": (6, Kind.TEXT),
    "max_context_length": (7, Kind.INTEGER),
})  # fmt: skip
COUNTS = '"prompt_tokens":$prompt,"completion_tokens":$completion,"cached_tokens":$cached}}'
SIMULATED = SimulatedApi(
    path=f"/{SERVICE}/Generate",
    keys=RequestKeys(
        prompt="tokenized.input_ids", tokens=("sampling_params.max_new_tokens",), stream="stream",
        min_tokens="sampling_params.min_new_tokens", ignore_eos="sampling_params.ignore_eos", n="sampling_params.n",
        request_id="request_id",
    ),
    framing="grpc",
    read=REQUEST.decode,
    reply=RESPONSE,
    content='{"request_id":"$request_id","chunk":{"token_ids":[$ids],' + COUNTS,
    finish='{"request_id":"$request_id","complete":{"output_ids":[$ids],"finish_reason":"$finish",' + COUNTS,
    document='{"request_id":"$request_id","complete":{"output_ids":[$whole_ids],"finish_reason":"$finish",' + COUNTS,
    words=("stop", "length", "abort"),
    error="",
    pages=engine_pages(SERVICE, MODEL_INFO),
)  # fmt: skip

SGLANG_GRPC = Endpoint(
    name="sglang-grpc",
    aliases=("sglang-scheduler",),
    title="SGLang's gRPC",
    signs=(),
    dialect=Dialect(EVENT, EVENT, ends_with_body=True, message=RESPONSE),
    framing="grpc",
    joint=TEXT,
    resource=f"{SERVICE}/Generate",
    models=None,
    root=call_path,
    prompts={"ids": {"tokenized": {"input_ids": PROMPT}}},
    body=body,
    sampling=ALL_SAMPLING,
    sampling_within="sampling_params",
    headers=HEADERS,
    without={"text": WITHOUT_TEXT, "turns": WITHOUT_TURNS},
    simulated=(SIMULATED,),
    call=GrpcCall(
        REQUEST,
        id_field=1,
        health_method=f"{SERVICE}/HealthCheck",
        model_method=f"{SERVICE}/GetModelInfo",
        context_field=7,
    ),
)
