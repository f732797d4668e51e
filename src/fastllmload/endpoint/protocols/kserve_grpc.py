"""KServe v2's ModelStreamInfer, as Triton serves models of its vLLM backend and ensembles of TensorRT-LLM: one call for each
request.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fastllmload._ext.bytes.schema import Kind, Schema
from fastllmload._ext.events.dialect import Dialect, FinishReason
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import ALL_SAMPLING, NUMBER, PROMPT, SAMPLING, check_lengths, settings_object
from fastllmload.endpoint.call import HEADERS, HEALTH, GrpcCall, call_path, fields
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.protocols.triton import packed
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi, SimulatedPage
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

# Inputs of an ensemble, whose names --extra-body may have: the type of each, and its field of contents.
BYTES, INT32, UINT64, FP32, BOOL = (
    ("BYTES", "bytes_contents"), ("INT32", "int_contents"), ("UINT64", "uint64_contents"), ("FP32", "fp32_contents"),
    ("BOOL", "bool_contents"),
)  # fmt: skip
ENSEMBLE_INPUTS = {
    "max_tokens": INT32, "stream": BOOL, "min_length": INT32, "min_tokens": INT32, "bad_words": BYTES, "stop_words": BYTES,
    "end_id": INT32, "pad_id": INT32, "top_k": INT32, "top_p": FP32, "temperature": FP32, "length_penalty": FP32,
    "repetition_penalty": FP32, "presence_penalty": FP32, "frequency_penalty": FP32, "random_seed": UINT64, "seed": UINT64,
    "beam_width": INT32, "exclude_input_in_output": BOOL, "return_log_probs": BOOL, "return_num_input_tokens": BOOL,
    "return_num_output_tokens": BOOL,
}  # fmt: skip


def ensemble_body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """Triton refuses an input that the ensemble lacks, so only those of all versions are sent; an ensemble has batches."""
    check_lengths(extra, "max_tokens", "TensorRT-LLM's ensemble")
    given = {"max_tokens": NUMBER, "stream": workload.streaming}
    if workload.ignore_eos:
        given["min_length"] = NUMBER
    if workload.temperature is not None:
        given["temperature"] = workload.temperature
    given |= {name: extra.pop(name) for name in ENSEMBLE_INPUTS if name in extra}
    inputs = [tensor("text_input", "BYTES", shape=[1, 1], bytes_contents=[prompt["text_input"]])]
    for name, value in given.items():
        if value is not None:
            datatype, contents = ENSEMBLE_INPUTS[name]
            values = value if isinstance(value, list) else [value]
            inputs.append(tensor(name, datatype, shape=[1, len(values)], **{contents: values}))
    parameters = {"triton_enable_empty_final_response": {"bool_param": True}} | (extra.pop("parameters", None) or {})
    inputs += extra.pop("inputs", None) or ()
    return {"model_name": model, "parameters": parameters, "inputs": inputs, **extra}


def tensor(
    name: str, datatype: str, shape: tuple[int, ...] | list[int] = (1,), **contents: list[Any]
) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "contents": contents}


def asked(message: bytes) -> bytes:
    """JSON of a request: its model, its id, and the first element of each tensor."""
    found = fields(message)
    raw = found.get(7, [])  # raw_input_contents: texts have four bytes before them
    said = {name: found[number][-1].decode() for name, number in (("model", 1), ("id", 3)) if number in found}
    for place, each in enumerate(map(fields, found.get(5, []))):
        contents = fields(each[5][-1]) if 5 in each else {}
        first = next(iter(contents.values()))[0] if contents else raw[place]
        if each[2] == [b"BYTES"]:
            value: Any = (first if contents else first[4:]).decode()
        elif each[2] == [b"INT32"]:
            value = fields(b"\x08" + first)[1][0] if contents else int.from_bytes(first, "little")
        else:
            value = bool(first[0])
        said[each[1][0].decode()] = value
    return json.dumps(said).encode()


def read(message: bytes) -> bytes:
    try:
        return asked(message)
    except (LookupError, TypeError, AttributeError):  # a field of another type, or none
        raise ValueError("it is not a ModelInferRequest with the contents of its inputs") from None


def raw(text: str) -> str:
    """A text of raw contents, inside a JSON string."""
    return json.dumps(len(text).to_bytes(4, "little").decode() + text)[1:-1]


SERVICE = "inference.GRPCInferenceService"
SAID = '{"infer_response":{"model_name":"$model","model_version":"1","id":"$request_id","parameters":'
OUTPUTS = ",".join(
    json.dumps({"name": name, "datatype": datatype, "shape": [1]})
    for name, datatype in (
        ("text_output", "BYTES"), ("finish_reason", "BYTES"), ("num_input_tokens", "UINT32"),
        ("num_output_tokens", "UINT32"),
    )
)  # fmt: skip
MORE = SAID + '{"triton_final_response":{"bool_param":false}},"outputs":[' + OUTPUTS + '],"raw_output_contents":["$'
FINAL = SAID + '{"triton_final_response":{"bool_param":true}}}}'
INDEX = Schema({"models": (1, {"name": (1, Kind.TEXT), "version": (2, Kind.TEXT), "state": (3, Kind.TEXT)})})
READY = Schema({"ready": (1, Kind.BOOL)})  # `live` of ServerLive
SIMULATED = SimulatedApi(
    path=f"/{SERVICE}/ModelStreamInfer",
    keys=RequestKeys(
        prompt="text_input", tokens=("sampling_parameters.max_tokens",), stream="stream", request_id="id",
        min_tokens="sampling_parameters.min_tokens", ignore_eos="sampling_parameters.ignore_eos",
    ),
    packed="sampling_parameters",
    recognised_by="sampling_parameters",
    framing="grpc",
    read=read,
    reply=RESPONSE,
    content=MORE + 'raw_text","' + raw("None") + '","$raw_prompt","$raw_tokens"]}}',
    last=MORE + 'raw_text","$finish","$raw_prompt","$raw_tokens"]}}',
    finish=FINAL,
    document=(MORE + 'raw_whole_text","$finish","$raw_prompt","$raw_completion"]}}', FINAL),
    words=(raw("stop"), raw("length"), raw("abort")),
    error='{"error_message":"$message"}',
    missing="Request for unknown model: '$model' is not found",
    pages=(
        SimulatedPage(f"/{SERVICE}/ServerLive", '{"ready":true}', message=READY),
        SimulatedPage(f"/{SERVICE}/ServerReady", '{"ready":true}', message=READY),
        SimulatedPage(f"/{SERVICE}/ModelReady", '{"ready":$served}', message=READY),
        SimulatedPage(
            f"/{SERVICE}/RepositoryIndex", '{"models":[$models]}', message=INDEX,
            entry='{"name":"$model","version":"1","state":"READY"}',
        ),
        HEALTH,
    ),
)  # fmt: skip
TEXT_ONLY = SAID + (
    '{"triton_final_response":{"bool_param":false}},"outputs":[{"name":"text_output","datatype":"BYTES","shape":[1,1]},'
    '{"name":"cum_log_probs","datatype":"FP32","shape":[1,1]}],"raw_output_contents":["$'
)
SIMULATED_ENSEMBLE = replace(
    SIMULATED,
    keys=RequestKeys(
        prompt="text_input", tokens=("max_tokens",), stream="stream", request_id="id", min_tokens="min_length"
    ),
    packed="",
    recognised_by="max_tokens",
    content=TEXT_ONLY + 'raw_text","\\u0000\\u0000\\u0000\\u0000"]}}',
    last="",
    document=(TEXT_ONLY + 'raw_whole_text","\\u0000\\u0000\\u0000\\u0000"]}}', FINAL),
    pages=(),
)

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
    sampling=ALL_SAMPLING,
    sampling_within="sampling_parameters",
    headers=HEADERS,
    without={
        "ids": "KServe's text_input takes text only; use --prompt-form words or text",
        "turns": "its messages are made before the run, without replies; use triton-generate for conversations",
    },
    summed=True,
    simulated=(SIMULATED,),
    call=GrpcCall(
        REQUEST, id_field=3, health_method=f"{SERVICE}/ServerReady", list_method=f"{SERVICE}/RepositoryIndex"
    ),
)
KSERVE_GRPC_ENSEMBLE = replace(
    KSERVE_GRPC,
    name="kserve-grpc-ensemble",
    aliases=("triton-grpc-ensemble",),
    title="KServe's gRPC with an ensemble of TensorRT-LLM",
    body=ensemble_body,
    sampling={name: name for name in SAMPLING if name != "min_p"},
    sampling_within="",
    without={
        "ids": KSERVE_GRPC.without["ids"],
        "turns": "its messages are made before the run, without replies; use triton-ensemble for conversations",
    },
    simulated=(SIMULATED_ENSEMBLE,),
)
