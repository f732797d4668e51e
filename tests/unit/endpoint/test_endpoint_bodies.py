"""Bodies carry the fields of the workload; pieces, single bodies and plans give the same bytes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import raises_code, says

from fastllmload.endpoint import ENDPOINTS, BodyPieces
from fastllmload.errors import InputError
from fastllmload.plan.build import build_plan
from fastllmload.settings import Client, Load, RunSettings, Target, Workload

BOTH = ("openai-chat", "openai-completions")
values = st.one_of(st.text(), st.integers(), st.just("{output_tokens}"))
DEFAULTS = {
    "max_tokens": 64, "min_tokens": 64, "ignore_eos": True, "temperature": 0.0,
    "stream": True, "stream_options": {"include_usage": True},
}  # fmt: skip


def body(name: str = "openai-chat", prompt: Any = "hi", tokens: int = 64, **workload: Any) -> dict[str, Any]:
    found = json.loads(ENDPOINTS[name].encode_body("m", Workload(**workload), prompt, tokens))
    assert isinstance(found, dict)
    return found


def assembled(pieces: BodyPieces, prompt: bytes, tokens: int) -> bytes:
    """As a plan assembles bodies."""
    number = str(tokens).encode()
    return pieces.before + prompt + b"".join(piece + number for piece in pieces.middle) + pieces.tail


def test_a_chat_body_has_all_requested_fields() -> None:
    assert body() == {"model": "m", "messages": [{"role": "user", "content": "hi"}], **DEFAULTS}


@pytest.mark.parametrize(("form", "prompt"), [("words", "hi"), ("ids", [1, 50000])])
def test_a_completions_body_takes_text_or_ids(form: str, prompt: Any) -> None:
    found = body("openai-completions", prompt, prompt_form=form)
    assert found == {"model": "m", "prompt": prompt, **DEFAULTS}


@pytest.mark.parametrize(
    ("workload", "gone", "there"),
    [
        ({"streaming": False}, ["stream_options"], {"stream": False}),
        ({"temperature": None}, ["temperature"], {}),
        ({"temperature": 0.7}, [], {"temperature": 0.7}),
        ({"ignore_eos": False}, ["ignore_eos", "min_tokens"], {"max_tokens": 64}),
        ({"extra_body": '{"top_p":0.9,"x":null,"y":[{}]}'}, [], {"top_p": 0.9, "x": None, "y": [{}]}),
        ({"extra_body": '{"temperature":1,"min_tokens":0}'}, [], {"temperature": 1, "min_tokens": 0}),
        ({"extra_body": '{"stream_options":null,"min_tokens":null}'}, ["stream_options", "min_tokens"], {}),
        (
            {"extra_body": '{"max_completion_tokens":"{output_tokens}"}'},
            ["max_tokens"],
            {"max_completion_tokens": 64},
        ),
        ({"extra_body": '{"a":[{"b":"{output_tokens}"}]}'}, [], {"a": [{"b": 64}], "max_tokens": 64}),
        ({"extra_body": '{"c":"{output_tokens}!"}'}, [], {"c": "{output_tokens}!"}),
        ({"extra_body": '{"{output_tokens}":1}'}, [], {"{output_tokens}": 1}),
        ({"extra_body": json.dumps({"d": '"{output_tokens}"'})}, [], {"d": '"{output_tokens}"'}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", BOTH)
def test_fields_follow_the_workload(
    name: str, workload: dict[str, Any], gone: list[str], there: dict[str, Any]
) -> None:
    found = body(name, **workload)
    assert not found.keys() & set(gone)
    assert {key: found[key] for key in there} == there
    assert found.keys() == (set(DEFAULTS) - set(gone)) | there.keys() | {
        "model",
        "messages" if "chat" in name else "prompt",
    }


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ("{", ("extra-body-invalid", "not JSON")),
        ("", ("extra-body-invalid", "not JSON")),
        ("[1]", ("extra-body-invalid", "JSON object")),
        ('{"a":NaN}', ("extra-body-invalid", "not JSON")),
        ('{"a":"\udcff"}', ("extra-body-invalid", "not JSON")),
        ("[" * 5000, ("extra-body-invalid", "not JSON")),
        ('{"a":' * 200 + "1" + "}" * 199, ("extra-body-invalid", "…' is", "not JSON")),
        ('{"model":"x"}', ("extra-body-reserved", "'model'", "--model")),
        ('{"stream":false}', ("extra-body-reserved", "'stream'", "--stream")),
        ('{"messages":[]}', ("extra-body-reserved", "'messages'", "--workload")),
        ('{"n":2}', ("extra-body-reserved", "n=2 replies")),
        ('{"prompt":""}', ("extra-body-reserved", "'prompt'", "--workload")),
        ('{"max_tokens":5}', ("extra-body-reserved", "'max_tokens'", "--osl")),
        ('{"max_completion_tokens":5}', ("extra-body-reserved", "'max_completion_tokens'", "--osl")),
    ],
)
@pytest.mark.parametrize("name", BOTH)
def test_an_invalid_extra_body_is_refused_in_one_sentence(name: str, extra: str, sentence: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="--extra-body") as caught:
        ENDPOINTS[name].body_pieces("m", Workload(extra_body=extra))
    assert says(str(caught.value), *sentence) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_chat_refuses_token_ids() -> None:
    with raises_code("protocol-unsupported", "--prompt-form ids", "openai-chat", "openai-completions"):
        ENDPOINTS["openai-chat"].body_pieces("m", Workload(prompt_form="ids"))
    with raises_code("choice-unknown", "words, text, ids, native"):
        ENDPOINTS["openai-completions"].body_pieces("m", Workload(prompt_form="audio"))


def test_a_model_name_that_is_not_text_is_refused() -> None:
    with raises_code("body-not-encodable", "UTF-8"):
        ENDPOINTS["openai-chat"].body_pieces("m\udcff", Workload())


@settings(deadline=None)
@given(
    name=st.sampled_from(BOTH),
    model=st.text(max_size=8),
    prompt=st.text(max_size=12),
    tokens=st.integers(1, 10**6),
    extra=st.dictionaries(st.text(max_size=5).filter(lambda name: name not in ("n", "model")), values, max_size=3),
)
def test_pieces_and_single_bodies_are_the_same_bytes(
    name: str, model: str, prompt: str, tokens: int, extra: dict[str, Any]
) -> None:
    """Whatever is in model, prompt and extra fields, control characters and our own marks included."""
    endpoint, workload = ENDPOINTS[name], Workload(extra_body=json.dumps(extra))
    whole = endpoint.encode_body(model, workload, prompt, tokens)
    written = json.dumps(prompt, ensure_ascii=False).encode()
    pieces = endpoint.body_pieces(model, workload)
    assert json.loads(assembled(pieces, written, tokens)) == json.loads(whole)
    assert assembled(pieces, b"X", tokens) == pieces.before + b"X" + whole[len(whole) - tail_size(pieces, tokens) :]
    found = json.loads(whole)
    assert found["model"] == model and found["max_tokens"] == tokens
    for key, value in extra.items():
        assert found[key] == (tokens if value == "{output_tokens}" else value)


def tail_size(pieces: BodyPieces, tokens: int) -> int:
    return len(assembled(pieces, b"", tokens)) - len(pieces.before)


@pytest.mark.parametrize(
    ("name", "form"), [("openai-chat", "words"), ("openai-completions", "words"), ("openai-completions", "ids")]
)
def test_a_plan_holds_what_encode_body_gives(tmp_path: Path, name: str, form: str) -> None:
    workload = Workload(isl="uniform:3,9", osl="uniform:1,300", prompt_form=form, extra_body='{"n":1}')
    asked = RunSettings(
        target=Target(endpoint_type=name),
        load=Load(rate=10.0, num_requests=20),
        workload=workload,
        client=Client(seed=0),
    )
    plan = build_plan(asked, phase="measure", endpoint=ENDPOINTS[name], model="m/é", out_dir=tmp_path / "plan")
    bodies = (tmp_path / "plan" / "bodies.bin").read_bytes()
    cuts = [int(offset) for offset in plan.body_offset]
    assert len(cuts) == 21
    for (start, end), tokens in zip(pairwise(cuts), plan.output_tokens.tolist(), strict=True):
        found = json.loads(bodies[start:end])
        assert found["model"] == "m/é" and found["max_tokens"] == found["min_tokens"] == tokens and found["n"] == 1
        prompt = found["prompt"] if form == "ids" or "chat" not in name else found["messages"][0]["content"]
        assert ENDPOINTS[name].encode_body("m/é", workload, prompt, tokens) == bodies[start:end]
