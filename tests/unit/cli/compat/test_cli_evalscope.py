"""evalscope's command lines: prompts, conversations and templates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compat_runs import settings_of
from refusals import says

from fastllmload.cli.main import main
from fastllmload.settings import RunSettings

EVALSCOPE = ("evalscope", "perf", "--model", "m", "--parallel", "2", "--number", "8", "--max-tokens", "16")


def test_evalscopes_own_prompts(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    workload = settings_of(sent, *EVALSCOPE, "--prompt", "Write a story").workload
    assert (workload.name, workload.prompt, workload.osl) == ("text", "Write a story", "16")
    assert settings_of(sent, *EVALSCOPE, "--prompt", "@prompts.txt").workload.prompt == "Why?\nWhere to?\n"
    workload = settings_of(sent, *EVALSCOPE, "--dataset", "line_by_line", "--dataset-path", "prompts.txt").workload
    assert (workload.name, workload.dataset_path, workload.prompt) == ("text", "prompts.txt", None)
    words = ("--dataset", "line_by_line", "--dataset-path", "prompts.txt", "--min-prompt-length", "5")
    workload = settings_of(sent, *EVALSCOPE, *words).workload
    assert workload.name == "custom" and Path(workload.dataset_path or "").read_text() == '{"prompt": "Where to?"}\n'
    workload = settings_of(sent, *EVALSCOPE, "--dataset", "openqa").workload
    assert (workload.name, workload.dataset_path, dict(workload.dataset_columns)) == (
        "custom", "open_qa.jsonl", {"prompt": "question"}
    )  # fmt: skip
    assert main(["compat", *EVALSCOPE, "--prompt", "@absent.txt"]) == 2
    assert says(capsys.readouterr().err, "file-unreadable", "--prompt is --prompt @absent.txt")


def test_evalscopes_data_sets_are_fetched_from_the_hub(sent: list[RunSettings]) -> None:
    workload = settings_of(sent, *EVALSCOPE, "--dataset", "longalpaca").workload
    assert workload.dataset_path == "hf://datasets/Yukang/LongAlpaca-12k/LongAlpaca-12k.json"


@pytest.mark.usefixtures("sent", "without_hub")
def test_evalscopes_data_sets_without_the_hub(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", *EVALSCOPE, "--dataset", "longalpaca"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--dataset longalpaca", "LongAlpaca-12k.json")


def test_evalscopes_conversations_and_templates(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--dataset", "random_multi_turn", "--min-prompt-length", "5", "--max-prompt-length", "9", "--multi-turn")
    settings = settings_of(sent, *EVALSCOPE, *words, "--min-turns", "2", "--max-turns", "5")
    assert (settings.workload.turns, settings.workload.isl, settings.load.num_requests) == (
        "uniform:2,5",
        "uniform:5,9",
        8,
    )
    assert "--number 8: nearly the same" in capsys.readouterr().err
    assert main(["compat", *EVALSCOPE, *words]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--max-turns")
    fields = {"model": "%m", "messages": [{"role": "user", "content": "%p"}], "stream": False, "stop": ["x"],
              "temperature": 0.7, "max_tokens": 33}  # fmt: skip
    words = (*EVALSCOPE[:-2], "--prompt", "p", "--query-template")
    workload = settings_of(sent, *words, json.dumps(fields)).workload
    assert (workload.osl, workload.temperature, workload.streaming) == ("33", 0.7, False)
    assert json.loads(workload.extra_body or "") == {"stop": ["x"]}
    fields["messages"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "%p"}]
    assert main(["compat", *words, json.dumps(fields)]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--query-template messages")
    for text, code in (("[1]", "json-invalid"), ("@absent", "file-unreadable")):
        assert main(["compat", *words, text]) == 2 and says(capsys.readouterr().err, code, "--query-template")
