"""Which workload a test measures with: the one that is named, else the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastllmload.cli.main import main
from fastllmload.procedure import run as module
from fastllmload.settings import RunSettings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunSettings]:
    """Settings that a procedure would be conducted with; nothing is sent."""
    found: list[RunSettings] = []

    def conduct(test: Any, settings: RunSettings, *rest: Any) -> int:
        found.append(settings)
        return 0

    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(module, "run_procedure", conduct)
    return found


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["guardrail"], "conversation"),
        (["guardrail", "--osl", "8"], "conversation"),
        (["guardrail", "--workload", "synthetic-uniform"], "synthetic-uniform"),
        (["guardrail", "--isl", "64"], "synthetic-uniform"),
        (["memory-pressure"], "long-context"),
        (["memory-pressure", "--workload", "synthetic-uniform"], "synthetic-uniform"),
        (["prefix-cache"], "code-completion"),
        (["prefix-cache", "--prefix-len", "200"], "synthetic-uniform"),
        (["ttft"], "synthetic-uniform"),
    ],
)
def test_a_named_workload_is_never_replaced(asked: list[RunSettings], words: list[str], name: str) -> None:
    assert main(["procedure", *words]) == 0
    assert asked[0].workload.name == name


def test_the_answers_lengths_that_were_asked_for_are_kept(asked: list[RunSettings]) -> None:
    main(["procedure", "prefix-cache", "--osl", "4"])
    assert (asked[0].workload.name, asked[0].workload.osl) == ("code-completion", "4")


def test_requests_that_share_nothing_do_not_test_a_prefix_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    folder = tmp_path / "p"
    assert main(["procedure", "prefix-cache", "--rate", "5", "--isl", "64", "--output", str(folder)]) == 2
    assert "--prefix-len" in capsys.readouterr().err and not folder.exists()


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (["fairness", "--workload", "conversation"], "--workload"),
        (["fairness", "--workload", "conversation", "--turns", "3"], "--turns"),
        (["long-context", "--workload", "synthetic-uniform"], "--workload"),
        (["fairness", "--plan", "p"], "--plan"),
        (["fairness", "--dataset-path", "absent.jsonl"], "--dataset-path"),
    ],
)
def test_a_test_of_one_workload_takes_no_other(
    asked: list[RunSettings], capsys: pytest.CaptureFixture[str], words: list[str], left_out: str
) -> None:
    assert main(["procedure", *words]) == 2
    said = capsys.readouterr().err
    assert f"leave {left_out}" in said and f"the test {words[0]} sends the workload {words[0]}" in said
    assert not asked


@pytest.mark.parametrize("name", ["fairness", "long-context"])
def test_its_own_workload_may_be_named(asked: list[RunSettings], name: str) -> None:
    assert main(["procedure", name, "--workload", name]) == 0
    assert asked[0].workload.name == name
