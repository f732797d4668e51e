"""Options that do not go together are refused by one table, whichever way they came."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code

from fastllmload.cli.main import fastllmload
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.rules import RULES, validate_traffic
from fastllmload.cli.options.sources import RawOptions, from_table, given_options
from fastllmload.cli.options.table import BY_PARAMETER
from fastllmload.errors import InputError
from fastllmload.redact import Redactor
from fastllmload.settings import Load, RunSettings, Workload

WEBSOCKET = {"url": "http://h:1", "endpoint_type": "openai-responses-ws"}
STATIONARY = {"workload": "weka", "dataset_path": "f", "session_start": "stationary"}
Source = Callable[[Mapping[str, object], Path], RawOptions]


def from_flags(options: Mapping[str, object], _: Path) -> RawOptions:
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in options.items()]
    command = fastllmload.table["run"].load()
    return given_options(command.make_context("run", words).params)


def from_file(options: Mapping[str, object], folder: Path) -> RawOptions:
    path = folder / "c.toml"
    values = {name: "true" if value is True else f'"{value}"' for name, value in options.items()}
    path.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    command = fastllmload.table["run"].load()
    return given_options(command.make_context("run", ["--config", str(path)]).params)


def from_python(options: Mapping[str, object], _: Path) -> RawOptions:
    return from_table(options, "", "")


@pytest.mark.parametrize("source", [from_flags, from_file, from_python])
@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({}, "load-missing", "--rate"),
        ({"rate": 5, "concurrency": 3}, "rate-and-concurrency", "--concurrency 3"),
        ({"concurrency": 3, "arrival": "constant"}, "option-not-applicable", "arrival"),
        ({"rate": "inf"}, "run-without-end", "--num-requests"),
        ({"rate": 5, "plan": "p"}, "option-prescribed", "rate"),
        ({"rate": 5, "think_time": "2s"}, "option-not-applicable", "--turns"),
        ({"rate": 5, "turns": 2, "workload": "batch"}, "option-not-applicable", "batch"),
        (
            {"rate": 5, "turns": 2, "tool_turns": 0.5, "endpoint_type": "vllm"},
            "protocol-unsupported",
            "openai-completions",
        ),
        ({"rate": 5, "cancel_share": 0.1}, "option-missing", "--cancel-after"),
        ({"rate": 5, "session_children": "parent"}, "option-missing", "--affinity"),
        ({"rate": 5, "affinity": "vllm"} | WEBSOCKET, "protocol-unsupported", "affinity"),
        ({"rate": 5, "session_token": "x-t"} | WEBSOCKET, "protocol-unsupported", "session"),
        ({"rate": 5, "backend_header": "x-b"} | WEBSOCKET, "protocol-unsupported", "backend"),
        ({"rate": 5, "affinity": "openai", "endpoint_type": "vllm-grpc"}, "protocol-unsupported", "--session-header"),
        (
            {"rate": 5, "session_body": "user: {user}", "workload": "batch", "dataset_path": "f"},
            "option-not-applicable",
            "batch",
        ),
        ({"rate": 5, "affinity": "smg", "header": "x-smg-routing-key: 1"}, "options-conflict", "X-SMG-Routing-Key"),
        ({"rate": 5, "affinity": "vllm-sticky", "ray": "h:1", "url": "http://h:1"}, "option-not-applicable", "--ray"),
        ({"rate": 5, "session_body": "model: {session}"}, "options-conflict", "'model'"),
        ({"rate": 5, "slow_readers": "5%:2kB/s", "transport": "asyncio"}, "option-not-applicable", "asyncio"),
        (
            {"rate": 5, "http_version": "2", "url": "http://h:1", "transport": "asyncio"},
            "option-not-applicable",
            "asyncio",
        ),
        ({"rate": 5, "http_version": "2", "url": "http://h:1", "timestamps": "tap"}, "option-not-applicable", "tap"),
        (
            {"rate": 5, "http_version": "2", "url": "http://h:1", "slow_readers": "5%:2kB/s"},
            "option-not-applicable",
            "1.1",
        ),
        (
            {"rate": 5, "url": "http://h:1", "endpoint_type": "kserve-grpc", "http_version": "1.1"},
            "option-not-applicable",
            "--http-version",
        ),
        (
            {"rate": 5, "url": "http://h:1", "endpoint_type": "kserve-grpc", "turns": 3},
            "protocol-unsupported",
            "use triton-generate",
        ),
        ({"rate": 5, "url": "http://h:1", "streams_per_connection": 7}, "option-not-applicable", "--http-version 2"),
        ({"rate": 5, "url": "http://a", "simulate": "model=b"}, "options-conflict", "url"),
        ({"rate": 5, "image": "8x8", "endpoint_type": "ollama"}, "protocol-unsupported", "--image"),
        ({"rate": 5, "turns": "2", "history": "stored"}, "protocol-unsupported", "--history stored"),
        ({"rate": 5, "workload": "csv"}, "option-missing", "csv"),
        (STATIONARY, "option-missing", "--rate"),
        (
            {"workload": "weka", "dataset_path": "f", "trace_timing": "recorded", "trace_max_wait": "30s"},
            "options-conflict",
            "--trace-max-wait",
        ),
        ({"workload": "weka", "dataset_path": "f", "trace_max_wait": "users=30s"}, "longest-wait-invalid", "users=30s"),
        ({"rate": 5, "trace_max_wait": "30s"}, "option-not-applicable", "trace of sessions"),
        (STATIONARY | {"rate": "inf", "num_requests": 3}, "options-conflict", "--rate inf"),
        (STATIONARY | {"rate": "ramp:1,9", "duration": 9}, "options-conflict", "curve of --rate"),
        (
            STATIONARY | {"rate": 5, "num_requests": 3, "session_start": "share:0,0.5"},
            "option-not-applicable",
            "share:0,0.5",
        ),
        ({"rate": 5, "num_prefixes": 3}, "option-missing", "--prefix-len"),
        ({"rate": 5, "power": "rapl", "power_command": "x"}, "option-not-applicable", "rapl"),
        ({"rate": 5, "hosts": 3}, "option-missing", "--ray"),
        ({"rate": 5, "ray": "local", "hosts": 3}, "options-conflict", "3"),
        ({"rate": 5, "ray": "auto"}, "option-missing", "--url"),
        (
            {"rate": 5, "ray": "auto", "url": "http://a", "source_address": "10.0.0.1"},
            "option-not-applicable",
            "source",
        ),
        ({"rate": 5, "ray": "ray://10.0.0.1:10001", "url": "http://a"}, "value-invalid", "ray://10.0.0.1:10001"),
        ({"rate": 5, "ray": "10.0.0.1", "url": "http://a"}, "value-invalid", "10.0.0.1"),
        ({"rate": 5, "goodput": "ttft:1 ttft:2"}, "option-repeated", "ttft"),
        ({"rate": 5, "insecure": True}, "option-not-applicable", "insecure"),
        ({"rate": "x"}, "rate-invalid", "x"),
        ({"rate": "ramp:1,9", "arrival": "onoff:2,8"}, "options-conflict", "onoff:2,8"),
        ({"rate": 5, "arrival": "constant", "burstiness": 2}, "option-not-applicable", "--burstiness 2"),
        ({"workload": "trace", "dataset_path": "f", "trace_loop": True}, "run-without-end", "--trace-loop"),
        ({"rate": 5, "turns": 2, "workload": "code-completion"}, "option-not-applicable", "code-completion"),
        ({"rate": 5, "turns": 2, "prompt_form": "text"}, "option-not-applicable", "--prompt-form text"),
        ({"rate": 5, "turns": 2, "image": "8x8"}, "option-not-applicable", "--image"),
        ({"rate": 5, "turns": 2, "prefix_len": 9, "prefix_share": 0.5}, "option-not-applicable", "--prefix-share"),
        ({"rate": 5, "prompt_form": "text", "workload": "long-context"}, "option-not-applicable", "long-context"),
        ({"rate": 5, "prompt_form": "native", "tokenizer": "none"}, "option-not-applicable", "--tokenizer none"),
    ],
)
def test_a_refusal_is_the_same_from_each_source(
    tmp_path: Path,
    source: Callable[[Mapping[str, object], Path], RawOptions],
    options: dict[str, object],
    code: str,
    value: str,
) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(source(options, tmp_path), {}, Redactor([]))
    assert caught.value.code == code and value in caught.value.message


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({"session_header": "X: {sessions}"}, "session-template-invalid", "{sessions}"),
        ({"session_header": "X: {session"}, "session-template-invalid", "{{"),
        ({"session_header": "X"}, "header-invalid", "Name: value"),
        ({"session_header": "content-length: {turn}"}, "header-reserved", "content-length"),
        ({"session_header": "X-Fastllmload-Request: {turn}"}, "header-reserved", "X-Fastllmload-Request"),
        ({"session_body": "a.: {turn}"}, "session-template-invalid", "a."),
        ({"session_body": "user"}, "session-template-invalid", "FIELD: TEMPLATE"),
        ({"session_token": "body:id."}, "session-token-invalid", "body:FIELD"),
        ({"session_token": "a=b=c"}, "session-token-invalid", "NAME=OTHER"),
        ({"session_token": "x-t=body:messages"}, "options-conflict", "--session-token sets 'messages'"),
        ({"session_body": "messages: {user}"}, "options-conflict", "--session-body sets 'messages'"),
        ({"session_token": "body:id=body:previous_response_id", "endpoint_type": "openai-responses", "history": "stored",
          "turns": "2"}, "options-conflict", "'previous_response_id'"),
        ({"session_token": "x-t=body:user.id", "session_body": "user: {user}"}, "options-conflict", "another field"),
        ({"session_token": "body:id", "endpoint_type": "kserve-grpc"}, "protocol-unsupported", "names a field of JSON"),
        ({"session_token": "a b"}, "session-token-invalid", "NAME=OTHER"),
        ({"session_token": "Content-Type=x"}, "session-token-invalid", "Content-Type"),
        ({"backend_header": "x-b: c"}, "header-name-invalid", "x-b: c"),
        ({"backend_header": "Transfer-Encoding"}, "header-name-invalid", "Transfer-Encoding"),
        ({"between": "reset"}, "between-invalid", "reset-cache"),
        ({"between": "POST ftp://h/x"}, "between-invalid", "METHOD URL"),
        ({"between": ["wake", "sleep"]}, "option-missing", "wake"),
        ({"between": "sleep"}, "option-missing", "wake"),
        ({"between": ["profile", "profile"]}, "option-repeated", "profile"),
        ({"replica": "http://e"}, "option-missing", "--url"),
        ({"session_end": "ftp://h/{session}"}, "session-end-invalid", "METHOD URL"),
        ({"session_end": "POST /a b"}, "session-end-invalid", "METHOD URL"),
        ({"session_end": "POST /{sessions}"}, "session-template-invalid", "{sessions}"),
        ({"affinity": "vlm"}, "choice-unknown", "vllm"),
        ({"affinity": "openai", "extra_body": '{"prompt_cache_key": 1}'}, "options-conflict", "'prompt_cache_key'"),
        ({"session_body": "metadata.id: {user}", "extra_body": '{"metadata": {}}'}, "options-conflict", "'metadata'"),
        ({"class": [{"name": "a", "rate": 1, "extra-body": '{"user": 1}'}], "session_body": "user: {user}"},
         "options-conflict", "'user'"),
    ],
)  # fmt: skip
def test_session_identity_that_cannot_be_sent_is_refused(options: dict[str, object], code: str, value: str) -> None:
    load = {} if "class" in options else {"rate": 5}
    with raises_code(code, value):
        read_settings(from_table({**load, **options}, "", ""), {}, Redactor([]))


@pytest.mark.parametrize(
    ("options", "code", "remedy"),
    [
        ({"http_version": "2"}, "option-not-applicable", "leave --http-version out"),
        ({"streams_per_connection": 7}, "option-not-applicable", "leave it out"),
        ({"transport": "asyncio"}, "option-not-applicable", "not --transport asyncio; leave one out"),
        ({"timestamps": "tap"}, "option-not-applicable", "--timestamps tap finds no responses"),
        ({"no_stream": True}, "option-not-applicable", "leave --no-stream out"),
        ({"prompt_form": "ids"}, "protocol-unsupported", "needs --endpoint-type openai-completions"),
    ],
)
def test_what_websocket_lacks_is_refused_in_one_sentence(options: dict[str, object], code: str, remedy: str) -> None:
    with raises_code(code, remedy) as caught:
        read_settings(from_table({"rate": 5, **WEBSOCKET, **options}, "", ""), {}, Redactor([]))
    (name,) = options
    assert ". " not in caught.value.message and "\n" not in caught.value.message
    assert name.replace("no_", "").replace("_", "-") in caught.value.message


def test_rules_name_options_of_a_run() -> None:
    assert {each for rule in RULES for each in rule.options} <= BY_PARAMETER.keys()


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({"num_requests": 4, "class": ["t workload=trace dataset_path=f"]}, "run-without-end", "'t'"),
        ({"class": ["a rate=1 prompt_form=ids"]}, "protocol-unsupported", "'a'"),
        (
            {"class": ["a rate=1 workload=weka dataset_path=f session_start=stationary models=b,c"], "num_requests": 4},
            "options-conflict",
            "--models",
        ),
        ({"endpoint_type": "vllm", "class": ["a rate=1 image=8x8"]}, "protocol-unsupported", "'a'"),
        ({"endpoint": "/x", "class": ["a rate=1 endpoint_type=vllm"]}, "protocol-unsupported", "/x"),
        ({"arrival": "constant", "class": ["a rate=1 burstiness=2"]}, "option-not-applicable", "constant"),
        ({"class": ["a rate=1 workload=csv"]}, "option-missing", "csv"),
        ({**WEBSOCKET, "class": ["a rate=1", "b rate=1 endpoint_type=vllm"]}, "protocol-unsupported", "'b'"),
        ({"class": ["a rate=1", "b rate=1 endpoint_type=responses-ws"]}, "protocol-unsupported", "'b'"),
        ({**WEBSOCKET, "class": ["a rate=1 prompt_form=ids"]}, "protocol-unsupported", "'a'"),
        ({**WEBSOCKET, "class": ["a rate=1", "b rate=1 header=X-A:1"]}, "protocol-unsupported", "'b' has a header"),
        ({**WEBSOCKET, "class": ["a rate=1 endpoint=/x"]}, "protocol-unsupported", "'a' has a header or endpoint"),
        ({"tokenizer": "none", "class": ["a rate=1 prompt_form=native"]}, "option-not-applicable", "native"),
    ],
)
def test_a_class_is_checked_with_the_settings_that_it_has_from_the_run(
    options: dict[str, object], code: str, value: str
) -> None:
    with raises_code(code, value):
        read_settings(from_table(options, "", ""), {}, Redactor([]))


def test_only_the_classes_are_checked_where_a_run_has_classes() -> None:
    """The run's arrival process is that of no class here."""
    options: dict[str, object] = {"arrival": "constant", "burstiness": 2, "class": ["a rate=1 arrival=gamma"]}
    settings, _ = read_settings(from_table(options, "", ""), {}, Redactor([]))
    assert settings.classes[0].load.arrival == "gamma"


@pytest.mark.parametrize(
    ("load", "workload", "code"),
    [
        ({}, {}, "load-missing"),
        ({"rate": 1.0, "concurrency": 1}, {}, "rate-and-concurrency"),
        ({"rate": math.inf}, {}, "run-without-end"),
        ({"rate": 1.0, "duration": None}, {}, "run-without-end"),
        ({"rate": 1.0}, {"name": "csv"}, "option-missing"),
        ({"rate": 1.0}, {"name": "conversation", "turns": "all"}, "option-missing"),
        ({"rate": 1.0}, {"turns": "3", "image": "8x8:1"}, "option-not-applicable"),
    ],
)
def test_replaced_settings_are_checked_by_the_same_rules(
    load: dict[str, Any], workload: dict[str, Any], code: str
) -> None:
    with raises_code(code):
        validate_traffic(RunSettings(load=Load(**{"duration": 1.0, **load}), workload=Workload(**workload)))
