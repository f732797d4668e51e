"""Other spellings of settings: --host and --port, vLLM's random lengths, sampling options, URLs as arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from refusals import raises_code, says

from fastllmload.api import read_settings
from fastllmload.cli.main import main
from fastllmload.endpoint import ENDPOINTS, resolve_endpoint
from fastllmload.endpoint.body import SAMPLING, sampling_fields


@pytest.fixture(autouse=True)
def _no_target_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_host_and_port_are_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings(rate=1, host="::1", port=9).target.urls == ("http://[::1]:9",)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other:1")
    assert read_settings(rate=1, port=9).target.urls == ("http://127.0.0.1:9",)
    with raises_code("options-conflict", "port", "url"):
        read_settings(rate=1, port=9, url="http://h:1")
    with raises_code("url-invalid", "--url http://h"):
        read_settings(rate=1, host="http://h")


def test_random_is_vllms_workload() -> None:
    workload = read_settings(rate=1, workload="random").workload
    assert (workload.name, workload.isl, workload.osl) == ("synthetic-uniform", "1024", "128")
    workload = read_settings(rate=1, dataset_name="random", random_input_len=100, random_range_ratio=0.1).workload
    assert (workload.isl, workload.osl) == ("uniform:90,110", "uniform:115,141")  # 128 +- 12.8, outwards
    ratios = '{"input": 0, "output": 0.5}'
    assert read_settings(rate=1, workload="random", random_range_ratio=ratios).workload.osl == "uniform:64,192"


def test_a_ratio_needs_one_length_each() -> None:
    with raises_code("option-missing", "--isl", "uniform:LOW,HIGH"):
        read_settings(rate=1, random_range_ratio=0.1)
    with raises_code("option-missing", "--osl", "uniform:1,2"):
        read_settings(rate=1, isl=5, osl="uniform:1,2", random_range_ratio=0.1)


GIVEN = {
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "presence_penalty": 1,
    "frequency_penalty": -1,
    "repetition_penalty": 1.1,
}


@pytest.mark.parametrize("name", sorted(ENDPOINTS))
def test_sampling_options_are_in_the_body_where_the_protocol_has_them(name: str) -> None:
    endpoint = resolve_endpoint(name)
    form: dict[str, Any] = {} if endpoint.takes("text") else {"prompt_form": "ids"}
    for option in SAMPLING:
        given = {"rate": 1, "endpoint_type": name, "temperature": 0.7, option: GIVEN[option], **form}
        if option not in endpoint.sampling:
            with raises_code("protocol-unsupported", f"--{option.replace('_', '-')}", name):
                read_settings(**given)
            continue
        workload = read_settings(**given).workload
        assert sampling_fields(json.loads(workload.extra_body or "")) == {endpoint.sampling[option]: GIVEN[option]}
        prompt: Any = [1, 2] if form else "hello"
        body = endpoint.encode_body("m", workload, prompt, 5)
        if endpoint.call is None:
            assert endpoint.sampling[option].encode() in body
        else:
            assert body != endpoint.encode_body("m", read_settings(rate=1, endpoint_type=name, temperature=0.7,
                                                                   **form).workload, prompt, 5)  # fmt: skip


def test_sampling_without_a_temperature_is_refused() -> None:
    with raises_code("option-not-applicable", "top_p", "temperature 0"):
        read_settings(rate=1, top_p=0.9)
    assert read_settings(rate=1, presence_penalty=1).workload.extra_body == '{"presence_penalty": 1.0}'


def test_sampling_and_the_extra_body_are_joined() -> None:
    workload = read_settings(rate=1, top_k=-1, temperature=1, extra_body='{"stop": ["x"]}').workload
    assert json.loads(workload.extra_body or "") == {"stop": ["x"], "top_k": -1}
    with raises_code("options-conflict", "--top-k 5", "7"):
        read_settings(rate=1, top_k=5, temperature=1, extra_body='{"top_k": 7}')
    with raises_code("option-prescribed", "top_k", "--plan"):
        read_settings(plan="p.flp", top_k=5, temperature=1)


def test_a_class_has_its_own_sampling() -> None:
    one = read_settings(rate=4, **{"class": ["chat share=0.5 temperature=1 top-p=0.5", "rest share=0.5"]}).classes
    assert [each.workload.extra_body for each in one] == ['{"top_p": 0.5}', None]


PLAN = ["plan", "-m", "m", "--duration", "2"]


@pytest.mark.parametrize(
    "arguments",
    [[*PLAN, "--top-k", "40", "--temperature", "0.7", "--rate", "5"], [*PLAN, "h:8000", "--rate", "5", "--top_k", "4"]],
)
def test_the_plan_says_what_sampling_is_sent(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(arguments)
    shown = capsys.readouterr()
    if "--top_k" in arguments:
        assert code == 2 and says(shown.err, "option-unknown", "--top_k", "--top-k?")
    else:
        assert code == 0 and "top_k 40 instead of the server's own" in shown.out


def test_a_url_is_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["h:8000"], ["http://h:8000"]):
        assert main(["run", *words, "--rate", "5", "--url", "ftp://x"]) == 2
        assert says(capsys.readouterr().err, "url-invalid", "ftp")
        assert main([*words, "--rate", "0"]) == 2
        assert says(capsys.readouterr().err, "rate-invalid")
    assert main(["--rate", "5", "somewhere"]) == 2
    assert says(capsys.readouterr().err, "usage", "'somewhere'", "http://HOST:PORT")


def test_all_unknown_options_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trust-remote-code", "--qps", "5", "--concurency", "3", "--flurb=1", "--rate", "-1", "-z"]) == 2
    printed = capsys.readouterr().err
    assert says(
        printed, "option-unknown", "--qps (use --rate)", "--concurency (did you mean --concurrency?)", "--flurb", "-z"
    )
    assert "--request-rate" not in printed and "-1" not in printed
    assert main(["report", "x", "--foo", "--bar"]) == 2
    assert says(capsys.readouterr().err, "option-unknown", "--foo", "--bar", "fastllmload report")
