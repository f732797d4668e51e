"""The thresholds are complete, consistent and equal to the documentation."""

import re
from pathlib import Path

import pytest
from evidence_maker import clean

from fastllmload.certificate.criteria import CRITERIA, Criterion, format_against, format_value, reasons
from fastllmload.certificate.judge import figures, judge_evidence

DOCUMENT = Path(__file__).parents[3] / "docs" / "certificate.md"


def cell(criterion: Criterion, value: float | None) -> str:
    return "" if value is None else ("< " if criterion.below else "> ") + format_value(value, criterion.unit)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.code)
def test_the_documentation_has_this_row(criterion: Criterion) -> None:
    marks = {"h": criterion.host_may_explain, "g": criterion.limits_generator, "e": criterion.explains}
    row = [
        f"`{criterion.code}`",
        f"`{criterion.figure}`",
        cell(criterion, criterion.note),
        cell(criterion, criterion.suspect),
        cell(criterion, criterion.invalid),
        " ".join(mark for mark, on in marks.items() if on),
    ]
    assert any(line.startswith(f"| {' | '.join(row)} | ") for line in DOCUMENT.read_text().splitlines())


def test_the_documentation_has_no_other_row() -> None:
    table = DOCUMENT.read_text().split("## Thresholds")[1].split("\n## ")[0]
    assert sum(line.startswith("| `") for line in table.splitlines()) == len(CRITERIA)


def test_levels_rise_and_codes_are_unique() -> None:
    assert len({criterion.code for criterion in CRITERIA}) == len(CRITERIA)
    for criterion in CRITERIA:
        levels = [level for level in (criterion.note, criterion.suspect, criterion.invalid) if level is not None]
        assert levels and levels == sorted(levels, reverse=criterion.below)


def test_every_figure_is_made_and_every_made_figure_is_judged() -> None:
    evidence = clean()
    assert set(figures(evidence, judge_evidence(evidence))) == {criterion.figure for criterion in CRITERIA}


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.code)
def test_the_limit_itself_is_allowed(criterion: Criterion) -> None:
    """A limit is exceeded beyond it, not at it, and the worst exceeded level counts."""
    for name in ("note", "suspect", "invalid"):
        limit = getattr(criterion, name)
        if limit is None:
            continue
        beyond = limit - 1e-6 if criterion.below else limit + 1e-6
        passed = criterion.severity(beyond)
        assert passed is not None and passed[0] == name
        at = criterion.severity(limit)
        assert at is None or at[0] != name


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.34, "us", "12.3 us"),
        (1_234, "us", "1.23 ms"),
        (0.005, "share", "0.5 %"),
        (1.5, "x", "1.5x"),
        (1, "runs", "1 run"),
        (3, "workers", "3 workers"),
        (7, "decades", "7"),
    ],
)  # fmt: skip
def test_values_are_formatted_with_units(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("value", "limit", "unit", "text"),
    [
        (1_002.3, 1_000, "us", "1.002 ms"),
        (1_000.04, 1_000, "us", "1.00004 ms"),
        (19_078, 15_000, "us", "19.1 ms"),
        (0.0050004, 0.005, "share", "0.50004 %"),
        (1.49999, 1.5, "x", "1.49999x"),
        (6.0004, 6, "decades", "6.0004"),
    ],
)  # fmt: skip
def test_a_value_has_enough_digits_to_differ_from_its_limit(value: float, limit: float, unit: str, text: str) -> None:
    assert format_against(value, limit, unit) == text


def test_the_text_of_a_reason_shows_by_how_much_the_limit_is_exceeded() -> None:
    (reason,) = reasons({**dict.fromkeys(one.figure for one in CRITERIA), "lag_p99_us": 1_002.3})
    assert reason.code == "schedule_lag" and re.findall(r"[\d.]+ ms", reason.text) == ["1.002 ms", "1 ms"]
