"""All statements: those that decide a verdict, which are code in `draft`, and the others, which are rows of `coverage.csv`.

A row has the id, the level and the basis of a statement, the conditions under which it applies, and how it is met:

design    the tool does it; the reason says where. Not checked for a single run
declared  a declaration; the reason names its keys ("key", or "key=value" where one value only is meant)
judged    with other statements; the reason is their ids
open      not covered; the reason says why
"""

from __future__ import annotations

import csv
import functools
from importlib import resources

from fastllmload.compliance.checks.declared import declared, declared_as
from fastllmload.compliance.draft import STATEMENTS
from fastllmload.compliance.outcome import SHOWN, UNCHECKED, RequirementOutcome
from fastllmload.compliance.statement import AllOf, Check, Statement, all_of, conditions

COVERAGE = "coverage.csv"
HOW = ("design", "declared", "judged", "open")


@functools.cache
def coverage() -> tuple[Statement, ...]:
    """The statements that decide nothing, from `coverage.csv`."""
    text = resources.files(__package__).joinpath(COVERAGE).read_text(encoding="utf-8")
    return tuple(
        Statement(
            id=row["id"],
            level=row["level"],
            basis=row["basis"],
            text=row["statement"],
            judged_by=how_met(row["how"], row["reason"]),
            applies=conditions(row["applies"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def how_met(how: str, reason: str) -> Check | AllOf:
    """What judges a row of `coverage.csv`. ValueError for an unknown *how*."""
    if how == "judged":
        return all_of(reason)
    if how == "declared":
        key, _, value = reason.partition("=")
        return declared_as(key, value) if value else declared(*reason.split())
    if how == "design":
        outcome = RequirementOutcome(SHOWN, f"by design: {reason}")
    elif how == "open":
        outcome = RequirementOutcome(UNCHECKED, reason, "judge it yourself")
    else:
        raise ValueError(f"{COVERAGE}: how = {how!r} is none of {', '.join(HOW)}")
    return lambda _: outcome


@functools.cache
def statements() -> tuple[Statement, ...]:
    """All statements, in the order of the draft."""
    return tuple(sorted((*STATEMENTS, *coverage()), key=lambda one: one.place))


@functools.cache
def by_id() -> dict[str, Statement]:
    return {statement.id: statement for statement in statements()}
