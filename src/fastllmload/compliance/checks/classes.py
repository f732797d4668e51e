"""Checks request classes of a mixed load: their number, lengths and shares (IETF 5.6.2)."""

from __future__ import annotations

import math

import numpy as np

from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged

SHARES = {"short": 0.8, "long": 0.2}  # of the draft's example, which is the default mix
ERRORS = 4.0  # standard errors that a share may be off


def mixed(run: MeasuredRun) -> bool:
    return len(np.unique(run.measure["request_class"])) > 1


@check
def classes_least(evidence: ComplianceEvidence, /, least: int) -> RequirementOutcome:
    """A level has at least *least* classes."""
    most = max((len(np.unique(run.measure["request_class"])) for run in evidence.levels), default=0)
    return judged(most >= least, f"{most} classes in one level", f"measure a mix of {least} or more")


@check
def class_within(
    evidence: ComplianceEvidence, /, number: int, input: list[int], output: list[int]
) -> RequirementOutcome:
    """Every request of class *number* in the mix asks for lengths inside the class's rectangle."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if not mixed(run):
            return inapplicable("one class alone")
        rows = run.measure.where(run.measure["request_class"] == number)
        inside = (
            (rows["input_target"] >= input[0]) & (rows["input_target"] <= input[1])
            & (rows["output_target"] >= output[0]) & (rows["output_target"] <= output[1])
        )  # fmt: skip
        return judged(bool(inside.all()), f"{int(inside.sum()):,} of {len(rows):,} requests lie inside", "use the mix")

    return each(evidence, judge, levels=True)


@check
def class_shares(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The shares of the mix are those that the plan states, to 4 standard errors."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if not mixed(run):
            return inapplicable("one class alone")
        stated = shares_of(run)
        if abs(sum(stated) - 1.0) > 1e-9:
            return false(f"the stated shares add up to {sum(stated):g}", "state shares that add up to 1")
        counts = np.bincount(run.measure["request_class"], minlength=len(stated))
        n = int(counts.sum())
        off = [abs(c / n - s) > ERRORS * math.sqrt(s * (1 - s) / n) for c, s in zip(counts, stated, strict=False)]
        measured = ", ".join(f"{c / n:.1%}" for c in counts)
        return judged(not any(off) and len(counts) == len(stated), f"shares: {measured}", "use the mix of the test")

    return each(evidence, judge, levels=True)


def shares_of(run: MeasuredRun) -> list[float]:
    """The plan's share of each class, in the order of their numbers; the draft's where the plan states none."""
    names, mix = run.get("plan.description.workload.classes") or [], run.get("plan.description.workload.mix") or {}
    found = [float(share) for name in names for key, share in mix.items() if str(key).split()[0] == name]
    return found if len(found) == len(names) > 0 else list(SHARES.values())


@check
def requests_per_class(evidence: ComplianceEvidence, /, least: int) -> RequirementOutcome:
    """At least *least* requests of every class, in levels with several classes."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if not mixed(run):
            return inapplicable("one class alone")
        smallest = int(np.unique(run.measure["request_class"], return_counts=True)[1].min())
        return judged(smallest >= least, f"the smallest class has {smallest:,} requests", "run for longer")

    return each(evidence, judge, levels=True)
