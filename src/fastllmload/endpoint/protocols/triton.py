"""Triton's generate_stream, and generate for answers that are not streamed: a text in, the model's name in the path.

A backend decides what the fields of requests and answers are. vLLM's sends what is new of a text, and so does an ensemble of
TensorRT-LLM; the model of its LLM API sends all of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from fastllmload._ext.events.dialect import Dialect, FinishReason
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import ALL_SAMPLING, NUMBER, PROMPT, SAMPLING, check_lengths, settings_object
from fastllmload.endpoint.endpoint import Endpoint, below
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi, SimulatedPage
from fastllmload.endpoint.turns import TEXT
from fastllmload.settings import Workload

ASKED = {"return_finish_reason": True}


def vllm_body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """The settings are a text, which is JSON."""
    ours: dict[str, Any] = {"max_tokens": NUMBER}
    if workload.ignore_eos:
        ours |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        ours["temperature"] = workload.temperature
    sampling = settings_object("sampling_parameters", "max_tokens", ours, extra, "Triton's vLLM backend")
    fields = {
        **prompt, "stream": workload.streaming, "exclude_input_in_output": True, "sampling_parameters": packed(sampling),
        **ASKED, "return_num_input_tokens": True, "return_num_output_tokens": True,
    }  # fmt: skip
    return given(fields | extra)


def packed(sampling: dict[str, Any]) -> msgspec.Raw:
    """*sampling* as JSON in a JSON text, with `NUMBER` where it was."""
    pieces = msgspec.json.encode(sampling).split(bytes(NUMBER))
    return msgspec.Raw(b'"%s"' % bytes(NUMBER).join(msgspec.json.encode(piece.decode())[1:-1] for piece in pieces))


def tensorrt_body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    check_lengths(extra, "sampling_param_max_tokens", "TensorRT-LLM's backend")
    fields: dict[str, Any] = {
        **prompt, "streaming": workload.streaming, "sampling_param_max_tokens": NUMBER,
        "sampling_param_exclude_input_from_output": True, **ASKED,
    }  # fmt: skip
    if workload.temperature is not None:
        fields["sampling_param_temperature"] = workload.temperature
    return given(fields | extra)


def ensemble_body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """The shortest answer has a name of earlier and one of later ensembles: Triton takes an unknown field as a parameter."""
    check_lengths(extra, "max_tokens", "TensorRT-LLM's ensemble")
    fields: dict[str, Any] = {
        **prompt, "max_tokens": NUMBER, "stream": workload.streaming, "exclude_input_in_output": True,
        "return_num_input_tokens": True, "return_num_output_tokens": True,
    }  # fmt: skip
    if workload.ignore_eos:
        fields |= {"min_length": NUMBER, "min_tokens": NUMBER}
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    return given(fields | extra)


def given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def dialect(text: F) -> Dialect:
    keys = {
        "model_name": F.ANY, "text_output": text, "finish_reason": F.FINISH, "error": F.ERROR,
        "num_input_tokens": F.PROMPT_TOKENS, "num_output_tokens": F.EVENT_TOKENS,
    }  # fmt: skip
    return Dialect(keys, keys, ends_with_body=True, words={"None": FinishReason.FINISH_NONE})


# The simulated engine answers as each backend does. TensorRT-LLM's says nothing of tokens.
OPENING = '{"model_name":"$model","model_version":"1","text_output":"'
COUNTED = '","num_input_tokens":$prompt,"num_output_tokens":1,"finish_reason":"'
SIMULATED_VLLM = SimulatedApi(
    path="/v2/models/$model/generate_stream",
    keys=RequestKeys(
        prompt="text_input", tokens=("sampling_parameters.max_tokens",), stream="stream",
        min_tokens="sampling_parameters.min_tokens", ignore_eos="sampling_parameters.ignore_eos",
    ),
    packed="sampling_parameters",
    recognised_by="sampling_parameters",
    content=OPENING + "$text" + COUNTED + 'None"}',
    last=OPENING + "$text" + COUNTED + '$finish"}',
    words=("stop", "length", "abort"),
    document=OPENING + '$whole_text","num_input_tokens":$prompt,"num_output_tokens":$completion,"finish_reason":"$finish"}',
    error='{"error":"$message"}',
    missing="Request for unknown model: '$model' is not found",
    broken='{"model_name":"m","text_output":" bro',
    deep='{"text_output":',
    pages=(
        SimulatedPage("/v2/health/ready", ""),
        SimulatedPage(
            "/v2/repository/index",
            '[{"name":"$model","version":"1","state":"READY"},{"name":"other","state":"UNAVAILABLE"}]',
            method="POST",
        ),
    ),
)  # fmt: skip
SO_FAR = OPENING + '$whole_text","finish_reason":"'
SIMULATED_TENSORRT = replace(
    SIMULATED_VLLM,
    keys=RequestKeys(prompt="text_input", tokens=("sampling_param_max_tokens",), stream="streaming"),
    packed="",
    recognised_by="sampling_param_max_tokens",
    content=OPENING + '$whole_text"}',
    last=SO_FAR + '$finish"}',
    document=SO_FAR + '$finish"}',
    pages=(),
)
ENSEMBLE = '{"batch_index":0,"cum_log_probs":0.0,"model_name":"$model","model_version":"1",'
SIMULATED_ENSEMBLE = replace(
    SIMULATED_VLLM,
    keys=RequestKeys(
        prompt="text_input", tokens=("max_tokens",), stream="stream", min_tokens="min_tokens",
        usage="return_num_output_tokens",
    ),
    packed="",
    recognised_by="max_tokens",
    content=ENSEMBLE + '$<usage:"num_input_tokens":$prompt,"num_output_tokens":1,$>"text_output":"$text"}',
    last="",
    document=ENSEMBLE + '$<usage:"num_input_tokens":$prompt,"num_output_tokens":$completion,$>"text_output":"$whole_text"}',
    pages=(),
)  # fmt: skip


def both(api: SimulatedApi) -> tuple[SimulatedApi, SimulatedApi]:
    return api, replace(api, path=api.path.removesuffix("_stream"), pages=())


WITHOUT_IDS = "Triton's generate takes text only; use --prompt-form words or text"
TRITON = Endpoint(
    name="triton-generate",
    aliases=("triton", "triton-vllm"),
    title="Triton's generate",
    signs=(rb'"text_output"\s*:\s*"',),
    dialect=dialect(F.CONTENT),
    framing="sse",
    joint=TEXT,
    resource="v2/models/{model}/generate_stream",
    unstreamed="v2/models/{model}/generate",
    models="v2/repository/index",
    lists_by="POST",
    root=below,
    prompts={"text": {"text_input": PROMPT}},
    body=vllm_body,
    sampling=ALL_SAMPLING,
    sampling_within="sampling_parameters",
    without={"ids": WITHOUT_IDS},
    summed=True,
    simulated=both(SIMULATED_VLLM),
)
TRITON_TENSORRT = replace(
    TRITON,
    name="triton-tensorrtllm",
    aliases=("triton-llmapi",),
    title="Triton's generate with TensorRT-LLM's LLM API",
    signs=(),
    dialect=dialect(F.CONTENT_SO_FAR),
    body=tensorrt_body,
    sampling={name: f"sampling_param_{name}" for name in SAMPLING if name != "min_p"},
    sampling_within="",
    without={
        "ids": WITHOUT_IDS,
        "ignore_eos": "Triton's TensorRT-LLM backend has no ignore_eos: a model may stop before the output length that was "
        "asked for (sampling_param_max_tokens)",
    },
    summed=False,
    simulated=both(SIMULATED_TENSORRT),
)
TRITON_ENSEMBLE = replace(
    TRITON,
    name="triton-ensemble",
    aliases=("tensorrt-llm", "trt"),
    title="Triton's generate with an ensemble of TensorRT-LLM",
    signs=(),
    body=ensemble_body,
    sampling={name: name for name in SAMPLING if name != "min_p"},
    sampling_within="",
    simulated=both(SIMULATED_ENSEMBLE),
)
