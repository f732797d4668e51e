"""vLLM's gRPC: token ids or a text in, token ids out; one call for each request."""

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
    "text": (3, Kind.TEXT),
    "sampling_params": (4, {
        "temperature": (1, Kind.FLOAT), "top_p": (2, Kind.FLOAT), "top_k": (3, Kind.INTEGER), "min_p": (4, Kind.FLOAT),
        "frequency_penalty": (5, Kind.FLOAT), "presence_penalty": (6, Kind.FLOAT), "repetition_penalty": (7, Kind.FLOAT),
        "max_tokens": (8, Kind.INTEGER), "min_tokens": (9, Kind.INTEGER), "stop": (10, Kind.TEXT),
        "stop_token_ids": (11, Kind.INTEGER), "skip_special_tokens": (12, Kind.BOOL), "ignore_eos": (14, Kind.BOOL),
        "n": (15, Kind.INTEGER), "json_schema": (16, Kind.TEXT), "regex": (17, Kind.TEXT), "seed": (24, Kind.INTEGER)}),
    "stream": (5, Kind.BOOL),
    "data_parallel_rank": (9, Kind.INTEGER),
})  # fmt: skip
# A stream's last message, `complete`, repeats the ids of the last chunk and their number; without a stream it has all.
RESPONSE = Schema({
    "chunk": (1, {
        "token_ids": (1, Kind.INTEGER), "prompt_tokens": (2, Kind.INTEGER), "completion_tokens": (3, Kind.INTEGER),
        "cached_tokens": (4, Kind.INTEGER), "index": (7, Kind.INTEGER)}),
    "complete": (2, {
        "output_ids": (1, Kind.INTEGER), "finish_reason": (2, Kind.TEXT), "prompt_tokens": (3, Kind.INTEGER),
        "completion_tokens": (4, Kind.INTEGER), "cached_tokens": (5, Kind.INTEGER)}),
})  # fmt: skip
EVENT = {
    "chunk": (F.OBJECT, {"token_ids": F.ANSWER_IDS, "prompt_tokens": F.PROMPT_TOKENS, "cached_tokens": F.CACHED_TOKENS}),
    "complete": (F.OBJECT, {
        "output_ids": F.WHOLE_IDS, "finish_reason": F.FINISH, "prompt_tokens": F.PROMPT_TOKENS,
        "cached_tokens": F.CACHED_TOKENS}),
}  # fmt: skip


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    ours: dict[str, Any] = {"max_tokens": NUMBER}
    if workload.ignore_eos:
        ours |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        ours["temperature"] = workload.temperature
    sampling = settings_object("sampling_params", "max_tokens", ours, extra, "vLLM's gRPC")
    return {**prompt, "sampling_params": sampling, "stream": workload.streaming, **extra}


SERVICE = "vllm.grpc.engine.VllmEngine"
MODEL_INFO = Schema({
    "model_path": (1, Kind.TEXT), "is_generation": (2, Kind.BOOL), "max_context_length": (3, Kind.INTEGER),
    "served_model_name": (6, Kind.TEXT),
})  # fmt: skip
SIMULATED = SimulatedApi(
    path=f"/{SERVICE}/Generate",
    keys=RequestKeys(
        prompt=("text", "tokenized.input_ids"), tokens=("sampling_params.max_tokens",), stream="stream",
        min_tokens="sampling_params.min_tokens", ignore_eos="sampling_params.ignore_eos", n="sampling_params.n",
        request_id="request_id",
    ),
    framing="grpc",
    read=REQUEST.decode,
    reply=RESPONSE,
    content='{"chunk":{"token_ids":[$ids],"prompt_tokens":$prompt,"completion_tokens":$tokens,"cached_tokens":$cached}}',
    finish='{"complete":{"output_ids":[$ids],"finish_reason":"$finish","prompt_tokens":$prompt,'
    '"completion_tokens":$tokens,"cached_tokens":$cached}}',
    document='{"complete":{"output_ids":[$whole_ids],"finish_reason":"$finish","prompt_tokens":$prompt,'
    '"completion_tokens":$completion,"cached_tokens":$cached}}',
    words=("stop", "length", "abort"),
    error="",
    pages=engine_pages(SERVICE, MODEL_INFO),
)  # fmt: skip

VLLM_GRPC = Endpoint(
    name="vllm-grpc",
    aliases=("vllm-engine",),
    title="vLLM's gRPC",
    signs=(),
    dialect=Dialect(EVENT, EVENT, ends_with_body=True, message=RESPONSE),
    framing="grpc",
    joint=TEXT,
    resource=f"{SERVICE}/Generate",
    models=None,
    root=call_path,
    prompts={"text": {"text": PROMPT}, "ids": {"tokenized": {"input_ids": PROMPT}}},
    body=body,
    sampling=ALL_SAMPLING,
    sampling_within="sampling_params",
    headers=HEADERS,
    without={"turns": WITHOUT_TURNS},
    summed=True,
    simulated=(SIMULATED,),
    call=GrpcCall(
        REQUEST,
        id_field=1,
        health_method=f"{SERVICE}/HealthCheck",
        model_method=f"{SERVICE}/GetModelInfo",
        context_field=3,
    ),
)
