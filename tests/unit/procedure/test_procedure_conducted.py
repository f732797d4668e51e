"""What a procedure writes of itself from declarations to report: its workload, and the warnings of its levels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from fake_runs import FakeRuns, installed
from refusals import code_of, codes, raises_code
from typed_documents import typed

from fastllmload.documents.experiment import Criteria
from fastllmload.documents.read import convert
from fastllmload.documents.run_parts.classes import Fairness
from fastllmload.experiment.console import Console
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure import tests as ten
from fastllmload.procedure.procedure_test import Conditions
from fastllmload.procedure.procedure_test import ProcedureTest as Procedure
from fastllmload.procedure.run import ProcedureTerms, run_procedure, without_effect
from fastllmload.procedure.tests import NAMES, fairness
from fastllmload.procedure.tests.long_context import TEST as LONG_CONTEXT
from fastllmload.records import layout
from fastllmload.search.saturation import SaturationCapacity
from fastllmload.settings import Load, Output, RunSettings, Target, Workload

SETTINGS = RunSettings(
    target=Target(urls=("http://127.0.0.1:1",)), load=Load(warmup_requests=0), output=Output(ui="none")
)
SHORT = "the mean e2e latency of 1.2 s is more than a tenth of the level's 6 s: too short for the completion criterion"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return installed(monkeypatch)


def conducted(
    test: Procedure, folder: Path, parameters: Any = None, settings: RunSettings = SETTINGS
) -> dict[str, Any]:
    """procedure.json after the test."""
    asked = test.parameters() if parameters is None else parameters
    run_procedure(
        test, settings, None, asked, ProcedureTerms(folder, conforming=False, settle_s=0.0), Console(str, quiet=True)
    )
    found: dict[str, Any] = json.loads((folder / "procedure.json").read_text())
    return found


def nothing(given: Conditions[Any]) -> Iterator[None]:
    """A test without levels."""
    yield from ()


@pytest.mark.parametrize("named", ["synthetic-uniform", "conversation"])
def test_the_manifest_names_the_workload_that_is_sent(runs: FakeRuns, tmp_path: Path, named: str) -> None:
    """Whatever the tester named, where the test sends its own (IETF 4.1)."""
    settings = RunSettings(
        target=SETTINGS.target, load=SETTINGS.load, output=SETTINGS.output, workload=Workload(name=named)
    )
    found = conducted(LONG_CONTEXT, tmp_path / "p", LONG_CONTEXT.parameters(lengths=(1024, 2048)), settings)
    assert [asked.workload.name for asked in runs.asked] == ["long-context"] * 2
    assert found["manifest"]["workload"] == "long-context"
    assert "<dt>Workload</dt><dd>long-context</dd>" in (tmp_path / "p" / "procedure.html").read_text().replace("\n", "")
    found = conducted(replace(fairness.TEST, at_shares=False, levels=nothing), tmp_path / "f", None, settings)
    assert found["manifest"]["workload"] == fairness.MIXED == "fairness"
    assert found["parameters"]["run"]["workload"]["name"] == named  # what was asked, by which it is started again
    conducted(replace(fairness.TEST, at_shares=False, levels=nothing), tmp_path / "f", None, settings)


def test_lengths_that_are_all_beyond_the_context_are_refused_before_the_warm_up(runs: FakeRuns, tmp_path: Path) -> None:
    """It ended as done, with nothing measured."""
    settings = RunSettings(
        target=SETTINGS.target, load=SETTINGS.load, output=SETTINGS.output, workload=Workload(context_limit=2200)
    )
    with raises_code("context-exceeded", "from 2,048 tokens on", "context of 2,200", "--lengths"):
        conducted(LONG_CONTEXT, tmp_path / "p", LONG_CONTEXT.parameters(lengths=(4096, 2048)), settings)
    assert not runs.asked
    found = conducted(LONG_CONTEXT, tmp_path / "q", LONG_CONTEXT.parameters(lengths=(4096, 1024)), settings)
    assert [level["name"] for level in found["levels"]] == ["1024 tokens"]
    assert any("2,200 tokens" in text and text.endswith(": 4096") for text in found["sentences"])


def test_only_two_tests_send_a_workload_of_their_own() -> None:
    own = {name: sends for name in NAMES if (sends := ten.test_named(name).sends) is not None}
    assert own == {"fairness": "fairness", "long-context": "long-context"}


@pytest.mark.parametrize(
    ("name", "load", "reason"),
    [
        ("throughput", Load(num_requests=40), "--num-requests has"),
        ("ttft", Load(duration=9.0), "--duration has"),
        ("ttft", Load(num_requests=40), None),
        ("tradeoff", Load(duration=9.0), None),
        ("prefix-cache", Load(num_requests=40, duration=9.0), None),
    ],
)
def test_an_end_that_a_test_does_not_use_gives_a_warning(name: str, load: Load, reason: str | None) -> None:
    """It was dropped without a word."""
    test = ten.test_named(name)
    said = " ".join(without_effect(test, RunSettings(load=load), test.parameters()))
    assert said.startswith(reason) if reason else said == ""


def test_the_title_is_there_from_the_start(runs: FakeRuns, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def levels(given: Conditions[Any]) -> Iterator[None]:
        seen.append(json.loads((given.experiment.folder / "procedure.json").read_text()))
        yield from ()

    conducted(replace(fairness.TEST, at_shares=False, levels=levels), tmp_path / "p")
    assert (seen[0]["status"], seen[0]["section"], seen[0]["title"]) == ("running", "5.6", "Scheduling Fairness")


def test_each_level_warning_is_once_in_every_report(runs: FakeRuns, tmp_path: Path) -> None:
    """A level that is too short for the completion criterion (spec/procedures 0.6), and which ones."""

    def levels(given: Conditions[Any]) -> Iterator[None]:
        experiment = given.experiment
        for number, warnings in enumerate(([f"{SHORT}; take 300 s or more"], [], [f"{SHORT}; take 300 s or more"])):
            experiment.record(
                experiment.level(f"{number} per second", experiment.base), criteria=Criteria(warnings=tuple(warnings))
            )
        experiment.record(
            experiment.level("silent", experiment.base), criteria=Criteria(warnings=("nothing was measured",))
        )
        yield from ()

    found = conducted(replace(fairness.TEST, at_shares=False, levels=levels), tmp_path / "p")
    short, silent = (text for text in found["warnings"] if text.startswith("level"))
    assert (short[:11], code_of(short)) == ("levels 0, 2", "level-too-short")
    assert (silent[:16], code_of(silent)) == ("level 3 (silent)", "nothing-measured")
    for name in ("procedure.md", "procedure.html"):
        assert (tmp_path / "p" / name).read_text().count("level-too-short") == 1


def test_a_class_is_counted_by_what_its_percentiles_are_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by all that ended, which the ramp is part of; and each of the four is warned of by its own count."""

    def figures(n: int) -> dict[str, Any]:
        of = {"p50": 8.0, "p95": 9.0, "p99": 10.0, "mean": 8.5}
        return {"ttft": {**of, "n": n}, "tpot": {**of, "n": n}}

    def level(number: int, n: int) -> fairness.Level:
        document = {"completed": n + 16, "failed": 0, "metrics": figures(n)}
        return fairness.Level(number, f"level {number}", SETTINGS, tmp_path, typed(document))

    classes = {
        name: {**figures(n), "submitted": n + 3, "ok": n, "starvation_rate": 0.0}
        for name, n in (("short", 2000), ("long", 39))
    }
    index = {"value": 0.95, "significantly_unfair": False}
    block = {"jain_index": index, "jain_norm_latency": index, "classes": classes}
    monkeypatch.setattr(fairness.Level, "run", None)
    monkeypatch.setattr(fairness.Level, "answered", np.zeros(0, layout.REQUEST))
    monkeypatch.setattr(fairness, "block_of", lambda run, isolated: convert(block, Fairness))
    found, experiment = Findings(), cast(Experiment, None)  # nothing is measured
    known = SaturationCapacity(10.0, "known")
    done = fairness.FairnessLevels(level(2, 2039), {"short": level(0, 143), "long": level(1, 1000)}, [])
    fairness.analyze(done, Conditions(experiment, SETTINGS, fairness.Parameters(), found, known))
    rows = next(table for table in found.tables if table.id == "fairness").rows
    assert [row[:2] for row in rows] == [
        ("short isolated", 143), ("short mixed", 2000), ("long isolated", 1000), ("long mixed", 39),
    ]  # fmt: skip
    assert codes(found.warnings) == ["few-samples", "few-samples"]
    assert [text.partition(":")[0] for text in found.warnings] == ["class short, isolated", "class long, mixed"]
    assert [re.findall(r"[\d,]{2,}", text) for text in found.warnings] == [
        ["99", "143", "1,000"],
        ["99", "39", "1,000"],
    ]
