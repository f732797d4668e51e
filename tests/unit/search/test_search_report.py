"""What a search says of its aim, its bounds and its trials."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typed_documents import typed_search

from fastllmload.experiment.console import Console
from fastllmload.search.interval_search import IntervalSearch, Trials
from fastllmload.search.judges import RATIO, CriterionResult, criterion_text
from fastllmload.search.objective_text import read_objective
from fastllmload.search.peak_search import Height, PeakSearch
from fastllmload.search.report import ENDED, bound_lines, bounds
from fastllmload.search.run import announce
from fastllmload.search.trials import SearchParameters
from fastllmload.statistics.sequential_tests import Decision, SequentialPlan

LIMITS = (("ttft", 100.0), ("tpot", 20.0))


@pytest.mark.parametrize(
    ("objective", "limits", "aim"),
    [
        (
            "p90",
            (("fluidity", 0.9),),
            ["90%", "fluidity", "0.9"],
        ),
        ("smooth-goodput", (), ["smooth goodput"]),
        (
            "p99",
            LIMITS,
            ["P99", "ttft", "100 ms", "P99", "tpot", "20 ms"],
        ),
        (
            "attainment",
            LIMITS,
            ["90%", "ttft", "100 ms", "tpot", "20 ms"],
        ),
    ],
)
def test_the_aim_is_a_sentence(objective: str, limits: tuple[tuple[str, float], ...], aim: list[str]) -> None:
    said: list[str] = []
    asked = read_objective(objective, limits, lambda load: 1.0, closed=False)
    document = SimpleNamespace(manifest=SimpleNamespace(simulated=False))
    book = SimpleNamespace(path=Path("s/search.json"), resumed=False, document=document)

    def kept(line: str) -> str:
        said.append(line)
        return line

    announce(Console(kept), book, asked, SearchParameters())  # type: ignore[arg-type]
    (line,) = (text for text in said if text.startswith("search in s: "))
    assert re.findall(r"P99|\d+%|\d+ ms|0\.9|ttft|tpot|fluidity|smooth goodput", line) == aim


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (1.0, 1 - 1e-16, 1 + 2.84e-16, "+0% (+0 to +0%)"),
        (1 - 1e-12, 1 - 1e-12, 1 + 1e-12, "+0% (+0 to +0%)"),
        (1.0465, 1.0417, 1.0514, "+4.65% (+4.17 to +5.14%)"),
    ],
)
def test_float_rounding_is_not_a_gain(value: float, low: float, high: float, said: str) -> None:
    part = CriterionResult(
        name="gain", decision=Decision.FAIL, value=value, low=low, high=high, allowed=1.05, unit=RATIO
    )
    assert said in criterion_text(part)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (37.9504, 200.0, ("37.9", "200")),
        (112.5, 137.123, ("112.5", "138")),  # a level that was tested stays what it is
        (0.0123456, 1234.5, ("0.0123", "1235")),
        (None, 0.99999, (None, "1")),
    ],
)
def test_ends_between_levels_have_three_digits_and_lie_outside(
    low: float | None, high: float, said: tuple[str | None, str]
) -> None:
    document = {"answer": {"low": low, "high": high}, "decisions": [{"level": level} for level in (50.0, 112.5, 200.0)]}
    assert bounds(typed_search(document)) == said


def test_where_no_level_holds_the_report_says_nothing_about_lower_ones() -> None:
    """A fail at the lowest level bounds the answer by an assumption at most; below it nothing was measured."""
    (line,) = bound_lines(None, "4", "requests/s", "95%")
    assert "95% confidence" in line and "4 requests/s" in line
    assert "lower ones" in ENDED["minimum"]


class Dead(Exception):
    """The server went away during a trial."""


class DyingBench(Trials):
    """The second trial does not end."""

    def run_trial(self, level: float, number: int) -> Decision:
        if number:
            raise Dead
        return Decision.UNDECIDED


class DyingPeak:
    def run_trial(self, level: float, number: int) -> Height:
        if number:
            raise Dead
        return Height(1.0, 1.0, known=False)


def test_an_interrupted_trial_does_not_count() -> None:
    search = IntervalSearch(10.0, 40.0, lambda load: 1.0, DyingBench(), SequentialPlan(0.05, 5, 3, short=0))
    with pytest.raises(Dead):
        search.run()
    assert search.trials == {10.0: 1}
    peak = PeakSearch(10.0, 40.0, lambda load: 1.0, DyingPeak().run_trial, SequentialPlan(0.05, 5, 3))
    with pytest.raises(Dead):
        peak.run()
    assert peak.trials == {10.0: 1}
