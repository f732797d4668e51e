"""Text Generation Inference: generate_stream, and generate for answers that are not streamed. One text in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import NUMBER, PROMPT, settings_object
from fastllmload.endpoint.endpoint import Endpoint, below
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi, SimulatedPage
from fastllmload.endpoint.turns import TEXT
from fastllmload.settings import Workload


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """`parameters`. TGI refuses a temperature of 0: without sampling it takes the likeliest token."""
    ours: dict[str, Any] = {"max_new_tokens": NUMBER, "details": True}
    if workload.temperature is not None:
        ours["do_sample"] = workload.temperature > 0
        if workload.temperature > 0:
            ours["temperature"] = workload.temperature
    return {**prompt, "parameters": settings_object("parameters", "max_new_tokens", ours, extra, "TGI"), **extra}


# A token an event; the last one says the whole text again.
DETAILS = (F.TABLE, {
    "finish_reason": F.FINISH, "generated_tokens": F.COMPLETION_TOKENS, "input_length": F.PROMPT_TOKENS})  # fmt: skip
DIALECT = Dialect(
    {"index": F.COUNTER, "generated_text": F.LAST, "details": DETAILS, "error": F.ERROR,
     "token": (F.OBJECT, {"id": F.TOKEN_ID, "text": F.CONTENT, "logprob": F.COUNTER, "special": F.SPECIAL})},
    {"generated_text": F.CONTENT, "details": DETAILS, "error": F.ERROR},
)  # fmt: skip

TOKEN = '{"index":$completion,"token":{"id":$ids,"text":"$text","logprob":-0.5,"special":false},"generated_text":'
SAID = '"details":{"finish_reason":"$finish","generated_tokens":$completion,"input_length":$prompt}}'
STREAM = SimulatedApi(
    path="/generate_stream",
    keys=RequestKeys(prompt="inputs", tokens=("parameters.max_new_tokens",)),
    stream_default=True,
    content=TOKEN + 'null,"details":null}',
    last=TOKEN + '"$whole_text",' + SAID,
    words=("eos_token", "length", "abort"),
    document='{"generated_text":"$whole_text",' + SAID,
    error='{"error":"$message","error_type":"generation"}',
    broken='{"index":1,"token":{"id":1,"text":" bro',
    deep='{"token":',
    pages=(SimulatedPage("/info", '{"model_id":"$model","max_total_tokens":$max_model_len}'),),
)

TGI = Endpoint(
    name="tgi",
    aliases=("huggingface_generate", "huggingface-generate"),
    title="Text Generation Inference (TGI)",
    signs=(rb'"token"\s*:\s*\{\s*"id"\s*:', rb'"generated_text"\s*:\s*"'),
    dialect=DIALECT,
    framing="sse",
    joint=TEXT,
    resource="generate_stream",
    unstreamed="generate",
    models="v1/models",
    root=below,
    prompts={"text": {"inputs": PROMPT}},
    body=body,
    sampling={name: name for name in ("top_p", "top_k", "frequency_penalty", "repetition_penalty")},
    sampling_within="parameters",
    without={
        "ids": "TGI takes text only; use --prompt-form words or text",
        "ignore_eos": "TGI has no ignore_eos: a model may stop before the output length that was asked for (max_new_tokens)",
    },
    simulated=(STREAM, replace(STREAM, path="/generate", stream_default=False, pages=())),
)
