"""Declarations that are missing: asked for, taken from an earlier start, or all named at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from refusals import raises_code

from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.engine.public_settings import redactor
from fastllmload.errors import InputError
from fastllmload.experiment import journal
from fastllmload.experiment.declarations import ask_operator
from fastllmload.experiment.experiment import recorded_settings
from fastllmload.experiment.level.settings import digest
from fastllmload.procedure.procedure_test import ProcedureTest as Procedure
from fastllmload.procedure.run import ProcedureTerms, complete_declarations
from fastllmload.procedure.tests.capacity import TEST as CAPACITY
from fastllmload.procedure.tests.guardrail import TEST as GUARDRAIL
from fastllmload.settings import Load, Output, RunSettings, Target, Workload

SETTINGS = RunSettings(target=Target(urls=("http://127.0.0.1:1",)), load=Load(), output=Output())


def answering(*answers: str) -> tuple[list[str], Callable[[str], str]]:
    """Questions asked so far, and who answers them: *answers* in turn, then the end of the input."""
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        if len(questions) > len(answers):
            raise EOFError
        return answers[len(questions) - 1]

    return questions, ask


def completed(test: Procedure, parameters: Any, earlier: dict[str, str] | None = None, **terms: Any) -> dict[str, str]:
    return complete_declarations(test, SETTINGS, parameters, ProcedureTerms(Path("unused"), **terms), earlier or {})


def test_a_wrong_answer_is_asked_for_again() -> None:
    from fastllmload.declarations import by_key

    questions, ask = answering("gpu", "model_engine")
    found: dict[str, str] = {}
    ask_operator([by_key()["sut.boundary"]], ask, found)
    assert found == {"sut.boundary": "model_engine"}
    assert "'gpu'" in questions[1] and "model_engine" in questions[1]


def test_the_end_of_the_input_leaves_the_rest_undeclared() -> None:
    """What is left is then listed, as for a program that cannot be asked."""
    _, ask = answering("model_engine")
    with pytest.raises(InputError) as refused:
        completed(CAPACITY, CAPACITY.parameters(slo_ttft_p99_ms=100.0), ask=ask)
    assert "--declare sut.boundary" not in str(refused.value)
    assert "--declare tokenizer.vocabulary" in str(refused.value)


def test_parameters_hooks_and_declarations_are_missed_at_once() -> None:
    with pytest.raises(InputError) as refused:
        completed(CAPACITY, CAPACITY.parameters())
    assert "--slo-ttft-p99" in str(refused.value) and "--declare sut.boundary" in str(refused.value)
    with pytest.raises(InputError) as refused:
        completed(GUARDRAIL, GUARDRAIL.parameters())
    assert "--hook guardrail-full" in str(refused.value) and "--declare sut.boundary" in str(refused.value)


def test_a_test_that_cannot_begin_does_not_ask_the_operator() -> None:
    questions, ask = answering("model_engine")
    with pytest.raises(InputError, match="--slo-ttft-p99"):
        completed(CAPACITY, CAPACITY.parameters(), ask=ask)
    assert questions == []


def test_a_quick_try_asks_nothing() -> None:
    questions, ask = answering()
    assert completed(CAPACITY, CAPACITY.parameters(slo_ttft_p99_ms=1.0), ask=ask, quick=True) == {}
    assert questions == []


def test_what_was_answered_before_is_not_asked_again() -> None:
    questions, ask = answering()
    with pytest.raises(InputError):
        completed(CAPACITY, CAPACITY.parameters(slo_ttft_p99_ms=1.0), {"sut.boundary": "model_engine"}, ask=ask)
    assert questions and not questions[0].startswith("sut.boundary")


def test_a_journal_has_the_declarations_of_an_earlier_start(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"test": {}, "quick": False, "run": {"load": {"rate": 5.0}}}
    first = journal.Journal(tmp_path, ProcedureDocument, "ttft", asked)
    assert first.declared == {} and not list(tmp_path.iterdir())
    first.put(manifest={"declarations": {"sut.boundary": "model_engine"}})
    assert journal.Journal(tmp_path, ProcedureDocument, "ttft", asked).declared == {"sut.boundary": "model_engine"}


def test_other_options_are_named_with_both_values(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"test": msgspec.to_builtins(CAPACITY.parameters()), "run": {"load": {"rate": 5.0}}}
    journal.Journal(tmp_path, ProcedureDocument, "capacity", asked).save()
    changed = {"test": {**asked["test"], "initial": 4}, "run": {"load": {"rate": 7.0}}}
    with raises_code("experiment-changed", "(run.load.rate 5.0, now 7.0; test.initial 8, now 4)"):
        journal.Journal(tmp_path, ProcedureDocument, "capacity", changed)


def test_a_setting_of_a_later_version_is_not_recorded(tmp_path: Path) -> None:
    journal.Journal(tmp_path, ProcedureDocument, "ttft", {"run": {"load": {"rate": 5.0}}}).save()
    with raises_code("experiment-changed", "(run.load.grace not recorded, now null)"):
        journal.Journal(tmp_path, ProcedureDocument, "ttft", {"run": {"load": {"rate": 5.0, "grace": None}}})


def test_strict_may_be_added_when_it_is_started_again(tmp_path: Path) -> None:
    """It says what the exit code tells of the client, not what is measured; the declared GPUs enter figures."""

    def journal_with_output(**output: Any) -> journal.Journal:
        settings = msgspec.structs.replace(SETTINGS, output=Output(**output))
        return journal.Journal(tmp_path, ProcedureDocument, "ttft", {"run": recorded_settings(settings)})

    journal_with_output().save()
    assert journal_with_output(strict=True, ui="none").resumed
    with raises_code("experiment-changed", "run.output.gpus null, now 4"):
        journal_with_output(gpus=4)


def test_a_new_credential_does_not_change_the_parameters(tmp_path: Path) -> None:
    """Neither for the procedure nor for its finished levels; any other field of the bodies is one."""

    def asked(key: str, top_k: int = 5) -> RunSettings:
        body = f'{{"api_key": "{key}", "top_k": {top_k}}}'
        return RunSettings(target=Target(headers=(("X-Token", key),)), workload=Workload(extra_body=body))

    def journal_with_output(settings: RunSettings) -> journal.Journal:
        return journal.Journal(
            tmp_path, ProcedureDocument, "ttft", {"run": recorded_settings(settings)}, redact=redactor(settings, None)
        )

    journal_with_output(asked("sk-first")).save()
    assert "sk-first" not in (tmp_path / journal.FILE).read_text()
    assert journal_with_output(asked("sk-second")).resumed
    assert digest(asked("sk-first")) == digest(asked("sk-second")) != digest(asked("sk-first", 6))
    with raises_code("experiment-changed", "run.workload.extra_body "):
        journal_with_output(asked("sk-first", 6))
