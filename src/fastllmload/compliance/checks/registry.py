"""Registers checks by name: functions of the evidence and of the parameters in a requirement's `with`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import INAPPLICABLE, RequirementOutcome, false


class Check(Protocol):
    def __call__(self, evidence: ComplianceEvidence, /, **params: Any) -> RequirementOutcome: ...


F = TypeVar("F", bound=Callable[..., RequirementOutcome])
CHECKS: dict[str, Check] = {}


def check(function: F) -> F:
    """Register *function* under its own name."""
    if function.__name__ in CHECKS:
        raise ValueError(f"two checks are called {function.__name__}")
    CHECKS[function.__name__] = function
    return function


def each(
    evidence: ComplianceEvidence, judge: Callable[[MeasuredRun], RequirementOutcome], levels: bool = False
) -> RequirementOutcome:
    """Apply *judge* to every run; returns the first outcome that does not hold, else the first that is applicable.

    *levels*: only runs that the test reports on.
    """
    if not (evidence.levels if levels else evidence.runs):
        if evidence.absent:
            place = evidence.absent[0]
            more = f" (and {len(evidence.absent) - 1} more)" if len(evidence.absent) > 1 else ""
            why = evidence.why.get(place, f"{place} is missing")
            return false(f"{why}{more}", "restore its files, or measure it again")
        return false("no level was measured", "let it run to its end")
    held: RequirementOutcome | None = None
    for run in evidence.levels if levels else evidence.runs:
        found = judge(run)
        if not found.holds:
            where = "" if len(evidence.runs) == 1 and run.entry is None else f"{run.name}: "
            return RequirementOutcome(found.state, f"{where}{found.reason}", found.remedy)
        if held is None or (held.state == INAPPLICABLE and found.state != INAPPLICABLE):
            held = found
    assert held is not None
    return held
