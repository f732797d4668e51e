"""Makes checks of all runs, or of all levels of a test, from a check of one run."""

from __future__ import annotations

from collections.abc import Callable

from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import INAPPLICABLE, RequirementOutcome, false
from fastllmload.compliance.statement import Check

RunCheck = Callable[[MeasuredRun], RequirementOutcome]


def per_run(judge: RunCheck) -> Check:
    """A check of every run: the first outcome that does not hold, else the first that is applicable."""
    return lambda evidence: each(evidence, evidence.runs, judge)


def per_level(judge: RunCheck) -> Check:
    """The same of the runs that the test reports on."""
    return lambda evidence: each(evidence, evidence.levels, judge)


def each(evidence: ComplianceEvidence, runs: tuple[MeasuredRun, ...], judge: RunCheck) -> RequirementOutcome:
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


def scaled(check: Check) -> Check:
    """*check* of something that --quick scales down; the remedy is then first to leave out --quick."""

    def judge(evidence: ComplianceEvidence) -> RequirementOutcome:
        outcome = check(evidence)
        if outcome.holds or evidence.procedure is None or not evidence.procedure.quick:
            return outcome
        least = f"; where that is not enough: {outcome.remedy}" if outcome.remedy else ""
        return RequirementOutcome(
            outcome.state, outcome.reason, f"leave out --quick, which scales this down{least}"
        )  # fmt: skip

    return judge
