"""`procedure NAME --runs N`: derived seeds, figures over runs, going on where it was stopped (spec/procedures 0.13)."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_runs import FakeRuns, installed
from refusals import raises_code
from typed_documents import typed_procedure

from fastllmload.compliance.evidence import read
from fastllmload.documents.procedure import TtftFindings
from fastllmload.errors import InputError, Interrupted
from fastllmload.experiment.console import Console
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import RERUN, at_rate, instants
from fastllmload.procedure import over_runs
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest
from fastllmload.procedure.repeat import run_repeatedly
from fastllmload.procedure.reshow import saved_report
from fastllmload.procedure.run import ProcedureTerms
from fastllmload.settings import Load, Output, RunSettings, Target

SETTINGS = RunSettings(
    target=Target(urls=("http://127.0.0.1:1",)), load=Load(rate=1.0, duration=1.0), output=Output(ui="none")
)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    def quick(self) -> Parameters:
        return self


def one_level(given: Conditions[Parameters]) -> Iterator[Level]:
    yield given.experiment.level("one", at_rate(given.settings, 2.0))


def analyze(level: Level, given: Conditions[Parameters]) -> None:
    found = given.found
    found.values = TtftFindings(ttft_p99_ms=level.figure("ttft", "p99"))
    found.table("t", "A table", ("Metric", "Value"), [("TTFT P99 (ms)", level.figure("ttft", "p99"))])


TOY = ProcedureTest(
    "ttft", "5.1", "Time to First Token", Parameters, one_level, analyze, shared=lambda parameters: {}, warms_up=False
)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    found = installed(monkeypatch)
    found.answer = lambda settings: {"metrics": {"ttft": {"p99": 100.0 + 10 * settings.load.repetition}}}
    return found


def conducted(folder: Path, count: int, **terms: Any) -> int:
    terms = {"conforming": False, "settle_s": 0.0, **terms}
    return run_repeatedly(
        TOY, SETTINGS, None, Parameters(), ProcedureTerms(folder, **terms), Console(str, quiet=True), count
    )


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs.json").read_text())
    return found


def test_each_run_has_the_same_requests_at_instants_of_its_own(runs: FakeRuns, tmp_path: Path) -> None:
    assert conducted(tmp_path / "p", 3) == 0
    assert [asked.load.repetition for asked in runs.asked] == [0, 1, 2]
    assert {asked.client.seed for asked in runs.asked} == {SETTINGS.client.seed}
    assert {asked.workload.stream for asked in runs.asked} == {runs.asked[0].workload.stream}


def test_figures_over_the_runs(runs: FakeRuns, tmp_path: Path) -> None:
    """100, 110, 120 ms: median 110, sample std 10, t(2) = 4.303 over sqrt(3); population std 8.165 is 7.4 %."""
    conducted(tmp_path / "p", 3)
    found = document(tmp_path / "p")["figures"]["ttft_p99_ms"]
    assert (found["median"], found["mean"], found["std"], found["n"]) == (110.0, 110.0, 10.0, 3)
    assert found["ci95"] == pytest.approx([110 - 24.841, 110 + 24.841], abs=0.001)
    assert found["cv_percent"] == pytest.approx(7.4227, abs=1e-4) and found["stability"] == "variable"
    text = saved_report(tmp_path / "p", "terminal")
    assert text is not None and "110 +/- 25" in text and "3 runs" in text
    assert (tmp_path / "p" / "runs.html").exists() and "110 +/- 25" in (tmp_path / "p" / "runs.md").read_text()


def test_a_stopped_repetition_continues_and_more_runs_can_be_added(runs: FakeRuns, tmp_path: Path) -> None:
    conducted(tmp_path / "p", 1)
    measured, runs.code, runs.answer = runs.answer, 4, lambda settings: {"status": "interrupted"}
    with pytest.raises(Interrupted):
        conducted(tmp_path / "p", 3)
    assert document(tmp_path / "p")["status"] == "interrupted"
    assert document(tmp_path / "p")["figures"]["ttft_p99_ms"]["runs"] == [100.0]
    runs.code, runs.answer = 0, measured
    asked = len(runs.asked)
    conducted(tmp_path / "p", 3)
    assert len(runs.asked) == asked + 2  # the finished one is not measured again
    assert document(tmp_path / "p")["figures"]["ttft_p99_ms"]["runs"] == [100.0, 110.0, 120.0]


def test_the_restart_hook_gives_each_run_a_fresh_system(
    runs: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Experiment, "await_ready", lambda experiment: 0.0)
    conducted(tmp_path / "p", 2, commands={"restart": f"echo x >> {tmp_path}/restarts"})
    assert (tmp_path / "restarts").read_text() == "x\nx\n"
    assert not document(tmp_path / "p")["warnings"]
    conducted(tmp_path / "q", 2)
    assert any("prefix cache" in text and "--hook restart" in text for text in document(tmp_path / "q")["warnings"])


def test_reruns_inside_a_run_and_runs_never_share_instants() -> None:
    """Whatever --runs and --repetition say: below a thousand, and a rerun is above."""
    seen = [instants(at_rate(SETTINGS, 1.0, repetition=run), rerun) for run in range(100) for rerun in range(4)]
    assert len(set(seen)) == len(seen) and instants(SETTINGS, 1) == RERUN


def test_a_verdict_is_asked_of_one_run(runs: FakeRuns, tmp_path: Path) -> None:
    conducted(tmp_path / "p", 1)
    with pytest.raises(InputError, match="run-1"):
        read(tmp_path / "p")


def test_tables_with_other_rows_are_left_out() -> None:
    """A level log of another search has other levels: its cells are not of the same thing."""
    one = {"id": "levels", "title": "Level Log", "columns": ["Level"], "rows": [["5"], ["10"]]}
    other = {**one, "rows": [["5"], ["20"]]}
    assert over_runs.tables([*map(typed_procedure, ({"tables": [one]}, {"tables": [other]}))]) == []
    assert over_runs.tables([typed_procedure({"tables": [one]})] * 2)[0].rows == (("5",), ("10",))


def test_cells_over_runs() -> None:
    assert over_runs.cell([None, None]) is None
    assert over_runs.cell(["pass", "fail"]) == "pass / fail"
    assert over_runs.cell([5, 5]) == "5"
    assert over_runs.cell([10.0, None, 12.0]) == "11 +/- 13"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_between_two_levels_keeps_what_was_found(
    runs: FakeRuns, tmp_path: Path, number: signal.Signals
) -> None:
    """Not only inside a level: in the pause between two, in a hook, in a warm-up."""

    def stopped(given: Conditions[Parameters]) -> Iterator[Level]:
        yield from one_level(given)
        signal.raise_signal(number)

    test, terms = replace(TOY, levels=stopped), ProcedureTerms(tmp_path / "p", conforming=False)
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        with raises_code("interrupted", "--output"):
            run_repeatedly(test, SETTINGS, None, Parameters(), terms, Console(str, quiet=True), 2)
    finally:
        signal.signal(number, before)
    one = json.loads((tmp_path / "p" / "run-1" / "procedure.json").read_text())
    assert one["status"] == "interrupted" and one["findings"]["ttft_p99_ms"] == 100.0
    assert (tmp_path / "p" / "run-1" / "procedure.md").exists()
    assert document(tmp_path / "p")["status"] == "interrupted"


def test_what_the_operator_skips_is_asked_once_and_not_in_every_run(runs: FakeRuns, tmp_path: Path) -> None:
    """An empty answer leaves it undeclared in all runs; what was answered is declared in all of them."""
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question.partition(":")[0])
        return "8" if asked[-1] == "sut.hardware.count" else ""

    conducted(tmp_path / "p", 3, ask=ask)
    assert asked and len(asked) == len(set(asked))
    for number in (1, 2, 3):
        found = json.loads((tmp_path / "p" / f"run-{number}" / "procedure.json").read_text())["manifest"]
        assert found["declarations"] == {"sut.hardware.count": "8"}
    assert all(dict(each.output.declare) == {"sut.hardware.count": "8"} for each in runs.asked)
