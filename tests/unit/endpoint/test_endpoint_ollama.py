"""Ollama's bodies carry the workload in Ollama's fields; paths follow the base URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import says

from fastllmload.endpoint import ENDPOINTS
from fastllmload.engine.preflight.answers import ProbeAnswer, offered_models, parse_answer
from fastllmload.errors import InputError
from fastllmload.plan.build import build_plan
from fastllmload.settings import Client, Load, RunSettings, Target, Workload

BOTH = ("ollama-chat", "ollama-generate")


def body(name: str, **workload: Any) -> dict[str, Any]:
    found = json.loads(ENDPOINTS[name].encode_body("m", Workload(**workload), "hi", 64))
    assert isinstance(found, dict)
    return found


def test_bodies_of_both_resources() -> None:
    options = {"num_predict": 64, "temperature": 0.0}
    said = {"model": "m", "stream": True, "options": options}
    assert body("ollama-chat") == {**said, "messages": [{"role": "user", "content": "hi"}]}
    assert body("ollama-generate") == {**said, "prompt": "hi"}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("workload", "options", "more"),
    [
        ({"streaming": False}, {"num_predict": 64, "temperature": 0.0}, {"stream": False}),
        ({"temperature": None}, {"num_predict": 64}, {}),
        (
            {"extra_body": '{"options":{"seed":7,"temperature":1},"keep_alive":"5m","think":false}'},
            {"num_predict": 64, "temperature": 1, "seed": 7},
            {"keep_alive": "5m", "think": False},
        ),
        ({"extra_body": '{"options":{"temperature":null}}'}, {"num_predict": 64}, {}),
        (
            {"extra_body": '{"options":{"num_ctx":"{output_tokens}"}}'},
            {"num_predict": 64, "temperature": 0.0, "num_ctx": 64},
            {},
        ),
    ],
)
def test_fields_follow_the_workload(
    name: str, workload: dict[str, Any], options: dict[str, Any], more: dict[str, Any]
) -> None:
    found = body(name, **workload)
    assert found["options"] == options
    assert {key: found[key] for key in more} == more


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        ({"prompt_form": "ids"}, ("protocol-unsupported", "--prompt-form ids", "text only")),
        (
            {"extra_body": '{"max_completion_tokens":"{output_tokens}"}'},
            ("protocol-unsupported", "--osl becomes num_predict"),
        ),
        ({"extra_body": '{"options":[1]}'}, ("extra-body-invalid", "an object")),
        ({"extra_body": '{"options":{"num_predict":5}}'}, ("extra-body-reserved", "'num_predict'", "--osl")),
        ({"extra_body": '{"options":{"num_predict":null}}'}, ("extra-body-reserved", "'num_predict'", "--osl")),
    ],
)
@pytest.mark.parametrize("name", BOTH)
def test_what_ollama_cannot_carry_is_refused_in_one_sentence(
    name: str, workload: dict[str, Any], sentence: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        ENDPOINTS[name].body_pieces("m", Workload(**workload))
    assert says(str(caught.value), *sentence) and "\n" not in str(caught.value)


def test_the_missing_ignore_eos_is_reported() -> None:
    for name in BOTH:
        assert "no ignore_eos" in " ".join(ENDPOINTS[name].remarks(Workload()))
        assert ENDPOINTS[name].remarks(Workload(ignore_eos=False)) == ()
    assert ENDPOINTS["openai-chat"].remarks(Workload()) == ()


@pytest.mark.parametrize(
    ("base", "chat", "generate", "tags"),
    [
        ("", "/api/chat", "/api/generate", "/api/tags"),
        ("/", "/api/chat", "/api/generate", "/api/tags"),
        ("/api", "/api/chat", "/api/generate", "/api/tags"),
        ("/api/", "/api/chat", "/api/generate", "/api/tags"),
        ("/behind/proxy", "/behind/proxy/api/chat", "/behind/proxy/api/generate", "/behind/proxy/api/tags"),
    ],
)
def test_paths(base: str, chat: str, generate: str, tags: str) -> None:
    endpoints = [ENDPOINTS[name] for name in BOTH]
    assert [endpoint.path(base) for endpoint in endpoints] == [chat, generate]
    assert [endpoint.models_path(base) for endpoint in endpoints] == [tags, tags]
    assert [endpoint.models_path(endpoint.path(base)) for endpoint in endpoints] == [tags, tags]


def test_a_plan_holds_what_encode_body_gives(tmp_path: Path) -> None:
    workload = Workload(isl="uniform:3,9", osl="uniform:1,300", extra_body='{"options":{"seed":1}}')
    asked = RunSettings(
        target=Target(endpoint_type="ollama-chat"),
        load=Load(rate=10.0, num_requests=5),
        workload=workload,
        client=Client(seed=0),
    )
    endpoint = ENDPOINTS["ollama-chat"]
    plan = build_plan(asked, phase="measure", endpoint=endpoint, model="m", out_dir=tmp_path)
    for number in range(5):
        found = json.loads(plan.body(number))
        tokens = int(plan.output_tokens[number])
        assert found["options"] == {"num_predict": tokens, "temperature": 0.0, "seed": 1}
        prompt = found["messages"][0]["content"]
        assert endpoint.encode_body("m", workload, prompt, tokens) == plan.body(number)


def test_the_probe_reads_ollamas_answers() -> None:
    lines = (
        b'{"model":"m","response":"Hi","done":false}\n'
        b'{"model":"m","response":"","done":true,"done_reason":"stop","eval_count":2,"prompt_eval_count":3}'
    )
    kinds, texts, said = parse_answer(lines, "application/x-ndjson", ENDPOINTS["ollama-generate"].dialect)
    assert (kinds, texts, said.usage, said.counted) == ([3, 8], lines.split(b"\n"), True, False)
    whole = b'{"model":"m","message":{"role":"assistant","content":"Hi"},"done":true,"done_reason":"stop"}'
    answer = ProbeAnswer(False, texts=1, ended=True)
    dialect = ENDPOINTS["ollama-chat"].dialect
    assert parse_answer(whole, "application/json; charset=utf-8", dialect) == ([3], [whole], answer)


def test_model_lists_of_both_kinds() -> None:
    tags = b'{"models":[{"name":"a:latest","model":"a:latest"},{"name":"b:7b"}]}'
    assert offered_models(tags) == ["a:latest", "b:7b"]
    assert offered_models(b'{"models":[{"name":"x"}],"data":[{"id":"y"}]}') == ["y"]
    assert offered_models(b'{"models":[]}') is None
    index = b'[{"name":"a","state":"READY"},{"name":"b","state":"UNAVAILABLE"},{"name":"c"}]'  # Triton's
    assert offered_models(index) == ["a", "c"] and offered_models(b"[1]") is None
