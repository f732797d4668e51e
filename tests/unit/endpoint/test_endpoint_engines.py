"""Bodies of the engines' own protocols carry the workload in their fields; what they lack is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import code_of, raises_code

from fastllmload.cli.main import main
from fastllmload.endpoint import ENDPOINTS
from fastllmload.endpoint.call import fields
from fastllmload.endpoint.endpoint import named
from fastllmload.settings import Workload


def body(name: str, prompt: Any = "hi", **workload: Any) -> dict[str, Any]:
    found = json.loads(ENDPOINTS[name].encode_body("m", Workload(**workload), prompt, 64))
    assert isinstance(found, dict)
    return found


def test_a_body_of_tgi() -> None:
    """A temperature of 0 means no sampling: TGI refuses the number."""
    parameters = {"max_new_tokens": 64, "details": True, "do_sample": False}
    assert body("tgi") == {"inputs": "hi", "parameters": parameters}
    assert body("tgi", temperature=0.5)["parameters"] == {**parameters, "do_sample": True, "temperature": 0.5}
    asked = '{"parameters":{"details":null,"top_k":5},"x":1}'
    assert body("tgi", temperature=None, extra_body=asked) == {
        "inputs": "hi", "parameters": {"max_new_tokens": 64, "top_k": 5}, "x": 1,
    }  # fmt: skip


def test_a_body_of_sglang() -> None:
    sampling = {"max_new_tokens": 64, "min_new_tokens": 64, "ignore_eos": True, "temperature": 0.0}
    assert body("sglang-generate") == {"text": "hi", "sampling_params": sampling, "stream": True}
    asked = '{"sampling_params":{"top_p":0.9,"min_new_tokens":null},"cache_salt":"a"}'
    assert body("sglang-generate", [5, 6], prompt_form="ids", ignore_eos=False, streaming=False, extra_body=asked) == {
        "input_ids": [5, 6], "sampling_params": {"max_new_tokens": 64, "temperature": 0.0, "top_p": 0.9,
        "min_new_tokens": None}, "stream": False, "cache_salt": "a",
    }  # fmt: skip


def test_a_body_of_vllm() -> None:
    """Only ids, and usage in an event of its own."""
    sampling = {"max_tokens": 64, "min_tokens": 64, "ignore_eos": True, "temperature": 0.0}
    asked = {"prompt_form": "ids", "extra_body": '{"stream_options":null,"output_mode":"text"}'}
    found = {"model": "m", "token_ids": [5, 6], "sampling_params": sampling, "stream": True}
    assert body("vllm-generate", [5, 6], prompt_form="ids") == {**found, "stream_options": {"include_usage": True}}
    assert body("vllm-generate", [5, 6], **asked) == {**found, "output_mode": "text"}


def test_bodies_of_triton() -> None:
    """vLLM's backend takes its settings as a text, in which the output length may come twice."""
    found = body("triton-generate", extra_body='{"sampling_parameters":{"top_p":"{output_tokens}","stop":["\\""]}}')
    assert json.loads(found.pop("sampling_parameters")) == {
        "max_tokens": 64, "min_tokens": 64, "ignore_eos": True, "temperature": 0.0, "top_p": 64, "stop": ['"'],
    }  # fmt: skip
    assert found == {
        "text_input": "hi", "stream": True, "exclude_input_in_output": True, "return_finish_reason": True,
        "return_num_input_tokens": True, "return_num_output_tokens": True,
    }  # fmt: skip
    assert body("triton-tensorrtllm", streaming=False, extra_body='{"return_finish_reason":null}') == {
        "text_input": "hi", "streaming": False, "sampling_param_max_tokens": 64, "sampling_param_temperature": 0.0,
        "sampling_param_exclude_input_from_output": True,
    }  # fmt: skip
    asked = body("triton-ensemble", ignore_eos=False, extra_body='{"stop_words":["a"],"exclude_input_in_output":null}')
    counts = {"return_num_input_tokens": True, "return_num_output_tokens": True}
    assert asked == {
        "text_input": "hi", "max_tokens": 64, "stream": True, "temperature": 0.0, "stop_words": ["a"], **counts,
    }  # fmt: skip
    assert {"min_length": 64, "min_tokens": 64, **counts}.items() <= body("triton-ensemble").items()


def test_a_message_for_an_ensemble_has_a_tensor_of_each_input() -> None:
    """Of a batch of one; the fields of --extra-body get the type that the ensemble has."""
    extra = '{"min_length":null,"min_tokens":"{output_tokens}","bad_words":["a","b"],"top_p":0.5}'
    message = fields(ENDPOINTS["kserve-grpc-ensemble"].encode_body("m", Workload(extra_body=extra), "hi", 300))
    found = {}
    for each in map(fields, message[5]):
        (contents,) = fields(each[5][0]).items()
        found[each[1][0].decode()] = (each[2][0].decode(), list(each[3][0]), *contents)
    assert found == {
        "text_input": ("BYTES", [1, 1], 8, [b"hi"]), "max_tokens": ("INT32", [1, 1], 2, [b"\xac\x02"]),
        "stream": ("BOOL", [1, 1], 1, [b"\x01"]), "temperature": ("FP32", [1, 1], 6, [bytes(4)]),
        "min_tokens": ("INT32", [1, 1], 2, [b"\xac\x02"]), "bad_words": ("BYTES", [1, 2], 8, [b"a", b"b"]),
        "top_p": ("FP32", [1, 1], 6, [b"\0\0\0\x3f"]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("openai-embeddings", "/v1/embeddings", {"input": "hi", "encoding_format": "base64"}),
        ("pooling", "/pooling", {"input": "hi"}),
        ("score", "/score", {"text_1": "What is this text about?", "text_2": "hi"}),
        ("rerank", "/rerank", {"query": "What is this text about?", "documents": ["hi"]}),
    ],
)
def test_bodies_of_answers_without_tokens(name: str, path: str, expected: dict[str, Any]) -> None:
    """Neither an output length nor a temperature, and no stream."""
    assert ENDPOINTS[name].path("") == path
    assert body(name) == {"model": "m", **expected}
    assert body(name, extra_body='{"encoding_format":null,"query":"q"}')["query"] == "q"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--goodput", "ttft:100"], "ttft"), (["--osl", "5"], "--osl"), (["--turns", "2"], "--turns"),
        (["--class", "a rate=1 osl=5"], "osl"), (["--cancel-share", "0.5", "--cancel-after", "5tok"], "--cancel-"),
    ],
)  # fmt: skip
def test_options_about_tokens_are_refused_where_answers_have_none(
    options: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--endpoint-type", "rerank", "--rate", "1", "-n", "1", "-m", "m", *options]) == 2
    said = capsys.readouterr().err
    assert code_of(said) == "protocol-unsupported" and word in said


@pytest.mark.parametrize("command", [["sweep", "--vary", "rate=1,2"], ["search", "--goodput", "e2el:100"]])
def test_experiments_are_refused_where_answers_are_not_tokens(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--endpoint-type", "pooling", "--duration", "1", "-o", str(tmp_path / "x")]) == 2
    assert code_of(capsys.readouterr().err) == "protocol-unsupported"


@pytest.mark.parametrize(
    ("name", "base", "streamed", "whole"),
    [
        ("tgi", "", "/generate_stream", "/generate"),
        ("tgi", "/v1", "/generate_stream", "/generate"),
        ("sglang-generate", "", "/generate", "/generate"),
        ("sglang-generate", "/v1/", "/generate", None),
        ("vllm-generate", "/v1", "/inference/v1/generate", "/inference/v1/generate"),
        ("triton-generate", "", "/v2/models/a%2Fb/generate_stream", "/v2/models/a%2Fb/generate"),
        ("triton-ensemble", "/v1", "/v2/models/a%2Fb/generate_stream", "/v2/models/a%2Fb/generate"),
        ("vllm-grpc", "", "/vllm.grpc.engine.VllmEngine/Generate", "/vllm.grpc.engine.VllmEngine/Generate"),
        ("tgi", "/behind/proxy/generate_stream", "/behind/proxy/generate_stream", None),
    ],
)
def test_paths(name: str, base: str, streamed: str, whole: str | None) -> None:
    endpoint = ENDPOINTS[name]
    assert named(endpoint.path(base), "a/b") == streamed
    if whole is not None:
        assert named(endpoint.path(base, False), "a/b") == whole


@pytest.mark.parametrize(
    ("name", "workload", "code"),
    [
        ("tgi", {"prompt_form": "ids"}, "protocol-unsupported"),
        ("tgi", {"extra_body": '{"max_tokens":"{output_tokens}"}'}, "protocol-unsupported"),
        ("tgi", {"extra_body": '{"parameters":{"max_new_tokens":5}}'}, "extra-body-reserved"),
        ("openai-responses", {"history": "stored", "extra_body": '{"store":false}'}, "extra-body-reserved"),
        ("tgi", {"extra_body": '{"parameters":[]}'}, "extra-body-invalid"),
        ("tgi", {"extra_body": '{"inputs":"x"}'}, "extra-body-reserved"),
        ("vllm-generate", {}, "protocol-unsupported"),
        (
            "vllm-generate",
            {"prompt_form": "ids", "extra_body": '{"max_tokens":"{output_tokens}"}'},
            "protocol-unsupported",
        ),
        ("triton-tensorrtllm", {"prompt_form": "ids"}, "protocol-unsupported"),
        ("triton-tensorrtllm", {"extra_body": '{"sampling_param_max_tokens":5}'}, "extra-body-reserved"),
        ("triton-ensemble", {"extra_body": '{"max_tokens":5}'}, "extra-body-reserved"),
        ("kserve-grpc-ensemble", {"extra_body": '{"ignore_eos":true}'}, "protocol-unsupported"),
        ("sglang-generate", {"extra_body": '{"input_ids":[1]}'}, "extra-body-reserved"),
        ("vllm-grpc", {"extra_body": '{"sampling_params":{"top":1}}'}, "protocol-unsupported"),
        ("vllm-grpc", {"extra_body": '{"stop":["a"]}'}, "protocol-unsupported"),
        ("vllm-grpc", {"extra_body": '{"tokenized":{}}'}, "extra-body-reserved"),
        ("sglang-grpc", {}, "protocol-unsupported"),
        ("kserve-grpc", {"prompt_form": "ids"}, "protocol-unsupported"),
        ("sglang-generate", {"extra_body": '{"sampling_params":{"max_new_tokens":5}}'}, "extra-body-reserved"),
    ],
)
def test_what_a_protocol_cannot_carry_is_refused(name: str, workload: dict[str, Any], code: str) -> None:
    with raises_code(code):
        ENDPOINTS[name].body_pieces("m", Workload(**workload))
    if not ENDPOINTS[name].takes("messages"):
        with raises_code("protocol-unsupported"):
            ENDPOINTS[name].messages_pieces("m", Workload())
