"""Ollama's API: chat and generate, with lines of JSON as answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastllmload._ext.events.dialect import Dialect, Duration, FinishReason
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import ALL_SAMPLING, CHAT_PROMPTS, NUMBER, PROMPT, settings_object
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi, SimulatedPage
from fastllmload.endpoint.turns import TEXT, Part, ToolTurn, TurnTemplate
from fastllmload.settings import Workload

WITHOUT = {
    "ids": "Ollama takes text only; use --prompt-form words or text",
    "ignore_eos": "Ollama has no ignore_eos: a model may stop before the output length that was asked for (num_predict)",
}


def api_path(base_path: str, resource: str) -> str:
    """Path of *resource* (`api/chat`, `api/tags`). A base URL may end in /api or in the resource."""
    path = base_path.rstrip("/")
    if path.endswith(f"/{resource}"):
        return path
    return f"{path.removesuffix('/api')}/{resource}"


def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, **prompt, **sampling_fields(workload, extra)}


def sampling_fields(workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
    """`stream` and `options`. Fields of --extra-body replace ours, null removes one of ours. InputError for a wrong one."""
    ours: dict[str, Any] = {"num_predict": NUMBER}
    if workload.temperature is not None:
        ours["temperature"] = workload.temperature
    options = settings_object("options", "num_predict", ours, extra, "Ollama")
    return {"stream": workload.streaming, "options": options, **extra}


MESSAGE = {
    "role": F.ROLE, "content": F.CONTENT, "thinking": F.REASONING,
    "tool_calls": (F.CALLS, {
        "index": F.CALL_INDEX, "id": F.CALL_ID, "function": (F.OBJECT, {"name": F.NAME, "arguments": F.ARGUMENTS}),
    }),
}  # fmt: skip


def dialect(text: dict[str, Any]) -> Dialect:
    """Of events with the *text*; a whole answer is one of them. Each says its own time."""
    keys = {
        "model": F.ANY, "created_at": F.COUNTER, **text, "error": F.ERROR, "done": F.DONE, "done_reason": F.FINISH,
        "prompt_eval_count": F.PROMPT_TOKENS, "prompt_eval_cached_count": F.CACHED_TOKENS,
        "eval_count": F.COMPLETION_TOKENS, "logprobs": F.LOGPROBS,
        "total_duration": (F.DURATION, Duration.NS_TOTAL), "load_duration": (F.DURATION, Duration.NS_LOAD),
        "prompt_eval_duration": (F.DURATION, Duration.NS_PROMPT_EVAL), "eval_duration": (F.DURATION, Duration.NS_EVAL),
    }  # fmt: skip
    words: dict[str, int] = {"load": FinishReason.FINISH_LOAD, "unload": FinishReason.FINISH_UNLOAD}
    return Dialect(keys, keys, words=words)


TURNS = TurnTemplate(
    between=",",
    user='{"role":"user","content":"$text"}',
    reply='{"role":"assistant","content":"$text"}',
    tools=ToolTurn(
        '{"role":"assistant","content":$said,"tool_calls":[$calls]},$answers',
        said='"$text"',
        silent='""',
        call=Part(
            '{"id":"$id","function":{"name":"$name","arguments":$object}}',
            id="id",
            unnamed='{"function":{"name":"$name","arguments":$object}}',
            inside="tool_calls",
        ),
        answer=Part(
            '{"role":"tool","tool_name":"$name","tool_call_id":"$id","content":"$answer"}',
            id="tool_call_id",
            unnamed='{"role":"tool","tool_name":"$name","content":"$answer"}',
            names=("tool_name", "name"),
            mark=("role", "tool"),
        ),
    ),
)

# The simulated engine answers as Ollama does. Each object has a time of its own; a count or a duration of 0 is left out.
OPENING = '{"model":"$model","created_at":"$time",'
LAST = (
    ',"done":true,"done_reason":"$finish"$<total_ns:,"total_duration":$total_ns$>$<load_ns:,"load_duration":$load_ns$>'
    '$<usage prompt:,"prompt_eval_count":$prompt$>$<usage cached:,"prompt_eval_cached_count":$cached$>'
    '$<prompt_eval_ns:,"prompt_eval_duration":$prompt_eval_ns$>$<usage completion:,"eval_count":$completion$>'
    '$<eval_ns:,"eval_duration":$eval_ns$>}'
)
SAID = '"message":{"role":"assistant","content":"'
CALL = '{"function":{"name":"$tool","arguments":$text}}'
LOADED = ',"done_reason":"$reason","done":true}'
DETAILS = (
    '"details":{"parent_model":"","format":"simulated","family":"simulated","families":["simulated"],'
    '"parameter_size":"0","quantization_level":"none"}'
)
CARD = '{"name":"$model:latest","model":"$model:latest","size":0,"digest":"' + "0" * 64 + '",' + DETAILS + ","
LIST = '{"models":[$models]}'
JSON = "application/json; charset=utf-8"
SIMULATED_CHAT = SimulatedApi(
    path="/api/chat",
    keys=RequestKeys(prompt="messages", tokens=("options.num_predict",), stream="stream", keep_alive="keep_alive"),
    messages=True,
    stream_default=True,
    unlimited=True,
    model_tag=":latest",
    missing="model '$model' not found",
    framing="ndjson",
    content=OPENING + SAID + '$text"},"done":false}',
    reasoning=OPENING + SAID + '","thinking":"$text"},"done":false}',
    call=OPENING + SAID + '","tool_calls":[' + CALL + ']},"done":false}',
    finish=OPENING + SAID + '"}' + LAST,
    words=("stop", "length", "abort"),
    document=OPENING + SAID + '$whole_text"}' + LAST,
    calls='{"model":"$model","created_at":"2026-01-01T00:00:00Z","done":true,"done_reason":"stop",' + SAID
    + '","tool_calls":[$text]},"total_duration":$total_ns,"prompt_eval_count":$prompt,"eval_count":$completion}',
    call_entry=CALL,
    object_arguments=True,
    error='{"error":"$message"}',
    load_answer='{"model":$asked,"created_at":"$now",' + SAID + '"}' + LOADED,
    broken='{"model":"simulated","message":{"role":"assistant","content":" bro',
    deep='{"message":',
    huge='{"message":"',
    pages=(
        SimulatedPage("/api/tags", LIST, content_type=JSON, entry=CARD + '"modified_at":"$now"}'),
        SimulatedPage("/api/ps", LIST, content_type=JSON, entry=CARD + '"expires_at":"$later","size_vram":0}'),
        SimulatedPage("/api/version", '{"version":"$version-simulator"}', content_type=JSON),
        SimulatedPage(
            "/api/show", "{" + DETAILS + ',"model_info":{},"capabilities":["completion"]}', method="POST", content_type=JSON
        ),
    ),
)  # fmt: skip
SIMULATED_GENERATE = replace(
    SIMULATED_CHAT,
    path="/api/generate",
    keys=replace(SIMULATED_CHAT.keys, prompt="prompt"),
    messages=False,
    content=OPENING + '"response":"$text","done":false}',
    reasoning=OPENING + '"response":"","thinking":"$text","done":false}',
    call="",
    finish=OPENING + '"response":""' + LAST,
    document=OPENING + '"response":"$whole_text"' + LAST,
    calls="",
    call_entry="",
    load_answer='{"model":$asked,"created_at":"$now","response":""' + LOADED,
    pages=(),
)

OLLAMA_CHAT = Endpoint(
    name="ollama-chat",
    aliases=("ollama",),
    title="Ollama's chat",
    signs=(rb'"message"\s*:\s*\{.*"done"\s*:',),
    dialect=dialect({"message": (F.OBJECT, MESSAGE)}),
    framing="ndjson",
    joint=TURNS,
    resource="api/chat",
    models="api/tags",
    root=api_path,
    prompts=CHAT_PROMPTS,
    body=body,
    sampling={**ALL_SAMPLING, "repetition_penalty": "repeat_penalty"},
    sampling_within="options",
    without=WITHOUT,
    engine=("ollama", "api/version"),
    simulated=(SIMULATED_CHAT,),
)
OLLAMA_GENERATE = replace(
    OLLAMA_CHAT,
    name="ollama-generate",
    aliases=("ollama-completions",),
    title="Ollama's generate",
    signs=(rb'"response"\s*:\s*".*"done"\s*:',),
    dialect=dialect({"response": F.CONTENT, "thinking": F.REASONING}),
    joint=TEXT,
    resource="api/generate",
    prompts={"text": {"prompt": PROMPT}},
    simulated=(SIMULATED_GENERATE,),
)
