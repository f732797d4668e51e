"""Makes checks of all runs, or of all levels of a test, from a check of one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import INAPPLICABLE, RequirementOutcome, false
from fastllmload.compliance.statement import Check

P = ParamSpec("P")
RunCheck = Callable[Concatenate[MeasuredRun, P], RequirementOutcome]
CheckWith = Callable[Concatenate[ComplianceEvidence, P], RequirementOutcome]


def with_arguments(check: CheckWith[P]) -> Callable[P, Check]:
    """*check* as a function of its further arguments, which gives the check with these."""
    return lambda *args, **named: lambda evidence: check(evidence, *args, **named)


def per_run(judge: RunCheck[P]) -> CheckWith[P]:
    """A check of every run: the first outcome that does not hold, else the first that is applicable."""
    return lambda evidence, /, *args, **named: each(evidence, evidence.runs, lambda run: judge(run, *args, **named))


def per_level(judge: RunCheck[P]) -> CheckWith[P]:
    """The same of the runs that the test reports on."""
    return lambda evidence, /, *args, **named: each(evidence, evidence.levels, lambda run: judge(run, *args, **named))


def each(
    evidence: ComplianceEvidence, runs: tuple[MeasuredRun, ...], judge: Callable[[MeasuredRun], RequirementOutcome]
) -> RequirementOutcome:
    if not runs:
        if evidence.absent:
            place = evidence.absent[0]
            more = f" (and {len(evidence.absent) - 1} more)" if len(evidence.absent) > 1 else ""
            why = evidence.why.get(place, f"{place} is missing")
            return false(f"{why}{more}", "restore its files, or measure it again")
        return false("no level was measured", "let it run to its end")
    held: RequirementOutcome | None = None
    for run in runs:
        found = judge(run)
        if not found.holds:
            where = "" if len(evidence.runs) == 1 and run.entry is None else f"{run.name}: "
            return RequirementOutcome(found.state, f"{where}{found.reason}", found.remedy)
        if held is None or (held.state == INAPPLICABLE and found.state != INAPPLICABLE):
            held = found
    assert held is not None
    return held


def scaled(check: CheckWith[P]) -> CheckWith[P]:
    """*check* of something that --quick scales down; the remedy is then first to leave out --quick."""

    def judge(evidence: ComplianceEvidence, /, *args: P.args, **named: P.kwargs) -> RequirementOutcome:
        outcome = check(evidence, *args, **named)
        if outcome.holds or evidence.procedure is None or not evidence.procedure.quick:
            return outcome
        least = f"; where that is not enough: {outcome.remedy}" if outcome.remedy else ""
        return RequirementOutcome(outcome.state, outcome.reason, f"leave out --quick, which scales this down{least}")

    return judge
