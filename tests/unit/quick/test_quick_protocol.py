"""asiai's protocol as settings of a run: what it decides, and what stays as the user asked."""

from __future__ import annotations

import pytest
from refusals import says

from fastllmload.cli import main as entry
from fastllmload.quick.bench import PROMPTS, as_run, engines, from_card, prompt_types
from fastllmload.settings import Client, Load, Output, RunSettings, Target, Workload
from fastllmload.workload.dataset import read_dataset


def test_every_prompt_type_is_sent_so_often_one_at_a_time_at_temperature_0() -> None:
    found = as_run(RunSettings(), 3)
    assert (found.load.concurrency, found.load.num_requests, found.load.rate) == (1, 3 * len(prompt_types()), None)
    assert (found.workload.temperature, found.workload.ignore_eos, found.load.warmup_requests) == (0.0, False, 0)
    assert (found.client.workers, found.workload.dataset_path) == (1, str(PROMPTS))


def test_the_prompts_are_of_one_kind_each_and_bounded() -> None:
    requests = read_dataset("custom", PROMPTS, None).requests
    assert [one.name for one in requests] == prompt_types() == ["code", "reasoning", "tool_call", "long"]
    assert all(one.output_tokens and isinstance(one.content, str) for one in requests)


def test_target_client_and_output_stay_as_asked() -> None:
    asked = RunSettings(
        target=Target(urls=("http://a",), headers=(("X", "y"),)),
        load=Load(timeout=5.0),
        workload=Workload(osl="16", tokenizer="none"),
        client=Client(decode="strict"),
        output=Output(metadata=(("who", "me"),), strict=True),
    )
    found = as_run(asked, 1)
    assert (found.target, found.load.timeout, found.client.decode) == (asked.target, 5.0, "strict")
    assert (found.workload.osl, found.workload.tokenizer, found.output.strict) == ("16", "none", True)
    assert dict(found.output.metadata) == {"profile": "quick", "who": "me"}


def test_several_engines_have_a_run_and_a_folder_each() -> None:
    both = RunSettings(target=Target(urls=("http://a", "http://b")), output=Output(directory="out"))
    found = engines(both)
    assert [one.target.urls for one in found] == [("http://a",), ("http://b",)]
    assert [one.output.directory for one in found] == ["out/engine-1", "out/engine-2"]
    assert engines(RunSettings()) == [RunSettings()]


@pytest.mark.parametrize(
    ("card", "declared", "found"),
    [
        ({"details": {"format": "gguf", "quantization_level": "Q4_K_M"}}, {}, ["gguf", "Q4_K_M"]),
        ({"details": {"format": "gguf", "quantization_level": "Q4_K_M"}}, {"sut.model.format": "mlx"}, ["Q4_K_M"]),
        ({"details": {"format": 7, "quantization_level": ""}}, {}, []),
        ({"id": "one"}, {}, []),
        ({"details": None}, {}, []),
    ],
)
def test_the_card_of_the_model_answers_what_was_not_declared(card, declared, found) -> None:
    assert [value for _, value in from_card(card, declared)] == found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "5"], ("option-prescribed", "--rate")),
        (["--concurrency", "5"], ("option-prescribed", "--concurrency")),
        (["--temperature", "1"], ("option-prescribed", "--temperature")),
        (["--workload", "sharegpt"], ("option-prescribed", "--workload")),
        (["--runs", "0"], ("count-invalid", "--runs '0'")),
        (["--runs", "many"], ("count-invalid", "--runs 'many'")),
    ],
)
def test_what_the_protocol_decides_cannot_be_asked_for(capsys, arguments, words) -> None:
    assert entry.main(["quick", *arguments]) == 2
    said_, error = capsys.readouterr()
    assert said_ == "" and says(error, *words) and error.count("\n") == 1
