"""KServe v2's ModelStreamInfer, as Triton serves models of its vLLM backend: one call for each request."""

from __future__ import annotations

from typing import Any

from fastllmload._ext.bytes.schema import Kind, Schema
from fastllmload._ext.events.dialect import Dialect, FinishReason
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import NUMBER, PROMPT, settings_object
from fastllmload.endpoint.call import HEADERS, GrpcCall, call_path
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.protocols.triton import packed
from fastllmload.endpoint.turns import TEXT
from fastllmload.settings import Workload

PARAMETER = {
    "bool_param": (1, Kind.BOOL), "int64_param": (2, Kind.INTEGER), "string_param": (3, Kind.TEXT),
    "double_param": (4, Kind.DOUBLE), "uint64_param": (5, Kind.INTEGER),
}  # fmt: skip
CONTENTS = {
    "bool_contents": (1, Kind.BOOL), "int_contents": (2, Kind.INTEGER), "int64_contents": (3, Kind.INTEGER),
    "uint_contents": (4, Kind.INTEGER), "uint64_contents": (5, Kind.INTEGER), "fp32_contents": (6, Kind.FLOAT),
    "fp64_contents": (7, Kind.DOUBLE), "bytes_contents": (8, Kind.TEXT),
}  # fmt: skip
PARAMETERS = (4, Kind.MAP, PARAMETER)
TENSOR: dict[str, Any] = {
    "name": (1, Kind.TEXT), "datatype": (2, Kind.TEXT), "shape": (3, Kind.INTEGER), "parameters": PARAMETERS,
    "contents": (5, CONTENTS),
}  # fmt: skip
REQUEST = Schema({
    "model_name": (1, Kind.TEXT), "model_version": (2, Kind.TEXT), "id": (3, Kind.TEXT), "parameters": PARAMETERS,
    "inputs": (5, TENSOR), "outputs": (6, {"name": (1, Kind.TEXT), "parameters": (2, Kind.MAP, PARAMETER)}),
})  # fmt: skip
RESPONSE = Schema({
    "error_message": (1, Kind.TEXT),
    "infer_response": (2, {
        "model_name": (1, Kind.TEXT), "model_version": (2, Kind.TEXT), "id": (3, Kind.TEXT), "parameters": PARAMETERS,
        "outputs": (5, TENSOR), "raw_output_contents": (6, Kind.TEXT)}),
})  # fmt: skip
EVENT = {
    "error_message": F.ERROR,
    "infer_response": (F.OBJECT, {
        "parameters": (F.ENTRIES, {"triton_final_response": (F.OBJECT, {"bool_param": F.LAST})}),
        "outputs": (F.TENSORS, {
            "text_output": F.CONTENT, "finish_reason": F.FINISH, "num_input_tokens": F.PROMPT_TOKENS,
            "num_output_tokens": F.EVENT_TOKENS}),
        "raw_output_contents": F.RAW_TENSORS}),
}  # fmt: skip


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """The empty last response is asked for: without it a decoupled model may end without a word."""
    ours: dict[str, Any] = {"max_tokens": NUMBER}
    if workload.ignore_eos:
        ours |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        ours["temperature"] = workload.temperature
    sampling = settings_object("sampling_parameters", "max_tokens", ours, extra, "Triton's vLLM backend")
    parameters = {"triton_enable_empty_final_response": {"bool_param": True}} | (extra.pop("parameters", None) or {})
    inputs = [
        tensor("text_input", "BYTES", bytes_contents=[prompt["text_input"]]),
        tensor("stream", "BOOL", bool_contents=[workload.streaming]),
        tensor("exclude_input_in_output", "BOOL", bool_contents=[True]),
        tensor("sampling_parameters", "BYTES", bytes_contents=[packed(sampling)]),
        *(tensor(name, "BOOL", bool_contents=[True]) for name in ASKED),
        *(extra.pop("inputs", None) or ()),
    ]
    return {"model_name": model, "parameters": parameters, "inputs": inputs, **extra}


ASKED = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens")


def tensor(name: str, datatype: str, **contents: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [1], "contents": contents}


KSERVE_GRPC = Endpoint(
    name="kserve-grpc",
    aliases=("triton-grpc",),
    title="KServe's gRPC",
    signs=(),
    dialect=Dialect(EVENT, EVENT, ends_with_body=True, words={"None": FinishReason.FINISH_NONE}, message=RESPONSE),
    framing="grpc",
    joint=TEXT,
    resource="inference.GRPCInferenceService/ModelStreamInfer",
    models=None,
    root=call_path,
    prompts={"text": {"text_input": PROMPT}},
    body=body,
    headers=HEADERS,
    without={
        "ids": "KServe's text_input takes text only; use --prompt-form words or text",
        "turns": "prompts that grow are not made as messages yet; use --endpoint-type triton-generate",
    },
    summed=True,
    call=GrpcCall(REQUEST, id_field=3),
)
