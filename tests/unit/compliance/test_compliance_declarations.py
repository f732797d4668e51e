"""Declarations: the table is sound, and `missing` asks for what a test needs and nothing else."""

from __future__ import annotations

import pytest

from fastllmload.declarations import (
    MUST_CLASS,
    SHOULD_CLASS,
    Declaration,
    all_declarations,
    by_key,
    declaration_problems,
    facts_of,
    missing,
    simulated_declarations,
)
from fastllmload.settings import RunSettings, Workload

TESTS = (
    "ttft", "throughput", "tradeoff", "itl", "capacity", "fairness", "prefix-cache", "memory-pressure", "long-context",
    "guardrail",
)  # fmt: skip


def keys(found: list[Declaration]) -> set[str]:
    return {getattr(declaration, "key") for declaration in found}  # noqa: B009


def test_keys_are_unique_and_levels_known() -> None:
    """One table per key; levels are those of the methodology."""
    assert len(by_key()) == len(all_declarations())
    for declaration in all_declarations():
        assert set(declaration.levels) <= {*MUST_CLASS, *SHOULD_CLASS, "DEFINITION"}
        assert set(declaration.tests) <= {*TESTS, "every", "comparison"}


@pytest.mark.parametrize("declaration", all_declarations(), ids=lambda d: d.key)
def test_examples_and_own_values_are_allowed(declaration: Declaration) -> None:
    """What the help shows, and what the tool says about its own engine, passes its own check."""
    key = declaration.key
    assert declaration_problems({key: by_key()[key].example}) == []
    if key in simulated_declarations():
        assert declaration_problems({key: simulated_declarations()[key]}) == []


def test_nothing_is_missing_where_the_simulated_engine_is_the_target() -> None:
    """No declaration is needed for an engine that the tool starts itself."""
    for test in (*TESTS, ""):
        assert missing(simulated_declarations(), test) == []


def test_missing_follows_test_and_conditions() -> None:
    """Hardware for the TTFT test alone; data set versions for data sets; clocks where server stamps are combined."""
    assert "sut.hardware.count" in keys(missing({}, "ttft"))
    assert "sut.hardware.count" not in keys(missing({}, "itl"))
    assert "workload.dataset.version" not in keys(missing({}, "itl"))
    assert "workload.dataset.version" in keys(missing({"workload.kind": "dataset"}, "itl"))
    far = {"topology": "distributed", "clock.server_stamps": "yes"}
    assert {"clock.method", "clock.accuracy_ms", "clock.offset_ms"} <= keys(missing(far, ""))
    assert "clock.method" not in keys(missing({"topology": "distributed"}, ""))


def test_a_reference_tokenizer_needs_no_words_about_the_servers() -> None:
    """Option B counts everything with the tool's own tokenizer."""
    assert "tokenizer.name" in keys(missing({}, "ttft"))
    assert "tokenizer.name" not in keys(missing({"token_counting.option": "B"}, "ttft"))


def test_a_blank_value_is_missing() -> None:
    """`--declare sut.boundary=` says nothing."""
    assert "sut.boundary" in keys(missing({"sut.boundary": " "}, "ttft"))


def test_a_word_that_is_not_allowed_is_named() -> None:
    """The complaint shows what was typed and what may be."""
    (sentence,) = declaration_problems({"sut.boundary": "gateway", "my.label": "anything"})
    assert "gateway" in sentence and "application_gateway" in sentence


def test_remedy_can_be_typed() -> None:
    """The first word after the option is one argument for a shell."""
    assert by_key()["sut.boundary"].remedy.startswith("--declare sut.boundary=model_engine (or ")
    assert '--declare "sut.hardware.accelerator=H100 SXM"' in by_key()["sut.hardware.accelerator"].remedy


def test_facts_of_settings_decide_what_is_asked() -> None:
    """A file needs its version, a reference tokenizer none of the server's, an engine its uniform result."""

    def asked(**workload: object) -> set[str]:
        settings = RunSettings(workload=Workload(**workload))  # type: ignore[arg-type]
        return keys(missing({**facts_of(settings), "sut.boundary": "model_engine"}, "ttft"))

    assert "workload.dataset.version" not in asked(name="conversation")
    assert "workload.dataset.version" in asked(name="conversation", dataset_path="f.json")
    assert "workload.domain" not in asked(name="conversation", dataset_path="f.json")
    assert "workload.dataset.version" not in asked(name="mooncake", dataset_path="f.jsonl")
    assert "workload.domain" in asked(name="mooncake", dataset_path="f.jsonl")
    assert "tokenizer.name" in asked() and "tokenizer.name" not in asked(counting="B")
    assert "workload.uniform_result" in asked(name="conversation") and "workload.uniform_result" not in asked()
    assert "token_counting.tool_formatting" in asked(extra_body='{"tools": []}')


def test_a_key_that_is_nearly_one_is_asked_about() -> None:
    """A misspelled key would declare nothing; a label of the user's own is not one."""
    (sentence,) = declaration_problems({"sut.bundary": "model_engine", "team": "serving", "sut.rack": "12"})
    assert "sut.bundary" in sentence and "sut.boundary" in sentence


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("sut.hardware.count", ["8", "0"], ["x", "", "-1", "2.5", "8 GPUs"]),
        ("sut.hardware.memory_gib", ["80", "141.5"], ["big", "-80", "nan", "80 GB"]),
        ("tokenizer.vocabulary", ["128256"], ["-5", "0", "1e5", "many"]),
        ("workload.prefix_share", ["0", "0.5", "1"], ["1.5", "half", "50%"]),
        ("clock.offset_ms", ["-0.2", "0.2 ms"], ["0.2 s", "small", "inf"]),
    ],
)
def test_a_number_is_declared_as_one(key: str, good: list[str], bad: list[str]) -> None:
    """A text that is not a number, or not a possible one, satisfies nothing; the key's own unit may follow it."""
    assert [declaration_problems({key: value}) for value in good] == [[]] * len(good)
    for value in bad:
        (sentence,) = declaration_problems({key: value})
        assert f"--declare {key}={value!r} is not a" in sentence and by_key()[key].example in sentence


def test_all_that_is_wrong_is_named_at_once() -> None:
    found = declaration_problems({"sut.hardware.count": "x", "sut.boundary": "gpu", "tokenizer.vocabulary": "-5"})
    assert len(found) == 3
