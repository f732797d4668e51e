"""Which entries of a data set other tools leave out by their lengths, and that the same are left out here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fastllmload.cli.compat.translate import translations
from fastllmload.cli.main import main
from fastllmload.documents.plan import DatasetFacts
from fastllmload.endpoint import resolve_endpoint
from fastllmload.engine import run as engine_run
from fastllmload.plan.build import build_plan
from fastllmload.settings import RunSettings

FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"
VLLM = ("vllm", "bench", "serve", "--model", "m", "--dataset-name")
SGLANG = ("sglang", "--model", "m", "--dataset-name", "sharegpt", "--dataset-path", FILE)
SHAREGPT = (*VLLM, "sharegpt", "--dataset-path", FILE)
AIPERF = ("aiperf", "profile", "-m", "m", "--public-dataset", "sharegpt")
OF_VLLM = "min-input=4,max-input=1024,min-output=4,max-total=2048"
WITHOUT_OUTPUT = "min-input=4,max-input=1024,max-total=2048"
# Tokens of prompt and answer: each limit, and one token outside of it.
SIZES = ((4, 4), (3, 9), (9, 3), (2, 2), (1, 9), (1024, 1024), (1025, 9), (1024, 1025), (9, 2040))


def bounds(*words: str) -> str | None:
    """--dataset-lengths of our command."""
    (found,) = translations(words, {})
    (command,) = found.commands
    return command[command.index("--dataset-lengths") + 1] if "--dataset-lengths" in command else None


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The sizes that requests of a command have, and the plan's facts of the data set, with a file of SIZES."""
    found: list[RunSettings] = []
    monkeypatch.setattr(engine_run, "execute", lambda settings, *_, **__: found.append(settings) or 0)
    monkeypatch.chdir(tmp_path)
    turns = [[("human", " the" * size), ("gpt", " the" * answer)] for size, answer in SIZES]
    rows = [{"conversations": [{"from": who, "value": text[1:]} for who, text in each]} for each in turns]
    Path(FILE).write_text(json.dumps(rows))

    def plan(*words: str) -> tuple[set[tuple[int, int]], DatasetFacts]:
        assert main(["compat", *words]) == 0
        settings = found[-1]
        load = msgspec.structs.replace(settings.load, rate=1.0, concurrency=None, num_requests=len(SIZES))
        settings = msgspec.structs.replace(settings, load=load)
        endpoint = resolve_endpoint(settings.target.endpoint_type)
        folder = tmp_path / f"plan{len(found)}"
        made = build_plan(settings, phase="measure", endpoint=endpoint, model="m", out_dir=folder)
        texts = [json.loads(made.body(number)) for number in range(made.requests)]
        facts = made.description.workload.dataset
        assert facts is not None
        return {sizes_of(body) for body in texts}, facts

    return plan


def sizes_of(body: dict[str, Any]) -> tuple[int, int]:
    text = body.get("prompt") or body.get("text") or body["messages"][-1]["content"]
    asked = body.get("sampling_params", body)
    length = next(asked[name] for name in ("max_tokens", "max_completion_tokens", "max_new_tokens") if name in asked)
    return len(text.split()), length


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (SHAREGPT, {(4, 4), (1024, 1024)}),
        ((*SHAREGPT, "--sharegpt-output-len", "3"), {(4, 3), (9, 3), (1024, 3)}),
        (("benchmark_serving.py", "--model", "m", "--dataset", FILE), {(4, 4), (1024, 1024)}),
        (SGLANG, {one for one in SIZES if min(one) >= 2}),
        ((*SGLANG, "--sharegpt-context-len", "2048"), {one for one in SIZES if min(one) >= 2 and sum(one) <= 2048}),
        ((*SGLANG, "--sharegpt-output-len", "4", "--sharegpt-context-len", "12"), {(4, 4), (3, 4), (2, 4)}),
        (AIPERF, {(4, 4), (1024, 1024)}),
    ],
)
def test_the_entries_that_another_tool_sends(planned: Any, words: tuple[str, ...], kept: set[tuple[int, int]]) -> None:
    found, facts = planned(*words)
    assert found == kept
    assert facts.left_out == len(SIZES) - facts.requests and "within min-input=" in facts.subset


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*SHAREGPT, "--output-len", "9"), WITHOUT_OUTPUT),
        ((*VLLM, "hf", "--dataset-path", "Aeala/ShareGPT_Vicuna_unfiltered"), OF_VLLM),
        ((*VLLM, "hf", "--dataset-path", "f", "--hf-name", "Aeala/ShareGPT_Vicuna_unfiltered"), OF_VLLM),
        ((*VLLM, "hf", "--dataset-path", "AI-MO/NuminaMath-CoT"), "min-input=4,max-input=2048,min-output=4,max-total=32000"),
        ((*VLLM, "hf", "--dataset-path", "AI-MO/NuminaMath-CoT", "--hf-output-len", "9"), None),
        ((*VLLM, "hf", "--dataset-path", "philschmid/mt-bench"), None),
        ((*VLLM, "random"), None),
        (("sglang", "--model", "m", "--dataset-name", "random"), None),
        (("tensorrt_llm.serve.scripts.benchmark_serving", "--model", "m", "--dataset-path", FILE), OF_VLLM),
        ((*AIPERF, "--osl", "9"), "min-input=4,max-input=1024"),
    ],
)  # fmt: skip
def test_bounds_by_data_set_and_output_length(planned: Any, words: tuple[str, ...], expected: str | None) -> None:
    assert bounds(*words) == expected


EVALSCOPE = ("evalscope", "perf", "--model", "m", "--dataset", "line_by_line", "--dataset-path", "p.txt")


def test_evalscope_counts_tokens_only_with_a_tokenizer(planned: Any) -> None:
    tokens = ("--tokenizer-path", "Qwen/Qwen3-8B")
    assert bounds(*EVALSCOPE, *tokens) is None
    assert bounds(*EVALSCOPE, *tokens, "--min-prompt-length", "5") == "min-input=5,max-input=131072"
    assert bounds(*EVALSCOPE, *tokens, "--max-prompt-length", "50") == "min-input=1,max-input=50"
    both = ("--min-prompt-length", "0", "--max-prompt-length", "50")
    assert bounds(*EVALSCOPE, *tokens, *both) == "min-input=1,max-input=50"
    Path("p.txt").write_text("one\none two three four five six\nsix seven\n")
    (found,) = translations((*EVALSCOPE, "--min-prompt-length", "5", "--max-prompt-length", "15"), {})
    assert bounds(*EVALSCOPE, *both, "--min-prompt-length", "5") is None, "which counts characters"
    assert list(found.files.values()) == ['{"prompt": "six seven"}\n'] and not found.lacks
    Path("t.json").write_text("{}")
    (here,) = translations((*EVALSCOPE, "--tokenizer-path", "t.json", *both), {})
    assert {"--tokenizer", "t.json", "--dataset-lengths"} <= set(here.commands[0])
    sent, facts = planned(
        *EVALSCOPE, *tokens, "--min-prompt-length", "2", "--max-prompt-length", "5", "--max-tokens", "7"
    )
    assert sent == {(2, 7)} and facts.left_out == 2


def test_what_differs_is_said(planned: Any) -> None:
    (found,) = translations((*SHAREGPT, "--no-oversample"), {})
    assert any("first two turns" in line for line in found.differs)
    assert [lack.option for lack in found.lacks] == ["--no-oversample"]
