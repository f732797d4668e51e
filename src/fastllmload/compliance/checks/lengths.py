"""Checks lengths and shares of the standard workloads, as planned (IETF appendix A)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun, dig
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true

Z_9999 = 3.719  # quantile of the normal distribution
ERRORS = 4.0  # standard errors that a mean may be off


@check
def targets(
    evidence: ComplianceEvidence,
    /,
    side: str,
    least: int | None = None,
    most: int | None = None,
    mean: float | None = None,
    median: float | None = None,
    within: float = 0.05,
    enough: int = 2_000,
) -> RequirementOutcome:
    """Target lengths (*side*: input or output) lie in [least, most]; with *enough* of them mean and median fit too.

    *within*: relative error allowed for the median. The mean may differ by 4 standard errors, or by *within*.
    """

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if facts.workload(run).get("isl" if side == "input" else "osl") is None:
            return inapplicable("the plan does not state its lengths")
        lengths = run.measure[f"{side}_target"][run.measure["turn"] == 0].astype(np.float64)
        if not len(lengths):
            return inapplicable("no request was planned")
        low, high = float(lengths.min()), float(lengths.max())
        if (least is not None and low < least) or (most is not None and high > most):
            return false(f"{side} lengths lie in {low:,.0f} to {high:,.0f}", "leave out --isl and --osl")
        off = too_far(lengths, mean, median, within) if len(lengths) >= enough else None
        return judged(
            off is None, off or f"{side} lengths lie in {low:,.0f} to {high:,.0f}", "leave out --isl and --osl"
        )

    return each(evidence, judge)


def too_far(lengths: npt.NDArray[np.float64], mean: float | None, median: float | None, within: float) -> str | None:
    """A sentence on a wrong mean or median; None when both fit."""
    if median is not None and abs(float(np.median(lengths)) - median) > within * median:
        return f"the median length is {float(np.median(lengths)):,.0f}, to be near {median:,.0f}"
    if mean is not None:
        error = max(ERRORS * float(lengths.std()) / math.sqrt(len(lengths)), within * mean)
        if abs(float(lengths.mean()) - mean) > error:
            return f"the mean length is {float(lengths.mean()):,.1f}, to be near {mean:,.1f}"
    return None


@check
def fixed_output(evidence: ComplianceEvidence, /, tokens: int | None = None) -> RequirementOutcome:
    """All requests ask for the same output length, *tokens* where it is given."""
    lengths = {int(n) for run in evidence.runs for n in np.unique(run.measure["output_target"])}
    fits = len(lengths) == 1 and (tokens is None or lengths == {tokens})
    first = ", ".join(str(n) for n in sorted(lengths)[:4]) or "no"
    return judged(fits, f"output lengths asked for: {first}", f"give --osl {tokens or 256}")


@check
def shares_no_prefix(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """No shared prefix is configured."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        length = int(facts.workload(run).get("prefix_len") or 0)
        return judged(not length, f"the shared prefix has {length} tokens", "leave out --prefix-len")

    return each(evidence, judge)


@check
def share_drawn(evidence: ComplianceEvidence, /, path: str, share: float) -> RequirementOutcome:
    """The plan states *share* as the fraction of requests with a shared prefix, and it has it within 4 standard errors."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        stated = dig(facts.workload(run), path)
        if stated != share:
            return false(f"the share is stated as {stated}, to be {share:g}", "use the standard workload")
        planned = run.planned
        if planned is None or "prefix_tokens" not in (planned.dtype.names or ()) or not len(planned):
            return true(f"the plan states a share of {share:g}")
        drawn = float(np.mean(planned["prefix_tokens"] > 0))
        off = ERRORS * math.sqrt(share * (1 - share) / len(planned))
        reason = f"{drawn:.1%} of {len(planned):,} requests have a shared prefix, to be {share:.0%}"
        return judged(abs(drawn - share) <= off, reason, "use the standard workload")

    return each(evidence, judge)


@check
def choices_follow(evidence: ComplianceEvidence, /, exponent: float) -> RequirementOutcome:
    """The frequencies of contexts fit Zipf's law with *exponent* (chi-square below its 99.99% quantile)."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        chosen = np.asarray(dig(facts.workload(run), "contexts.chosen") or [], np.float64)
        if chosen.sum() < 100:
            return inapplicable("fewer than 100 requests chose a context")
        law = np.arange(1, len(chosen) + 1, dtype=np.float64) ** -exponent
        expected = chosen.sum() * law / law.sum()
        distance = float(((chosen - expected) ** 2 / expected).sum())
        freedom = len(chosen) - 1
        limit = freedom * (1 - 2 / (9 * freedom) + Z_9999 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty
        return judged(
            distance <= limit, f"chi-square {distance:.1f}, to be at most {limit:.1f}", "use the standard workload"
        )

    return each(evidence, judge)


@check
def contexts(evidence: ComplianceEvidence, /, count: int, least: int, most: int) -> RequirementOutcome:
    """*count* repository contexts, each with a length in [least, most]."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        lengths = dig(facts.workload(run), "contexts.tokens") or []
        inside = all(least <= int(length) <= most for length in lengths)
        return judged(len(lengths) == count and inside, f"contexts of {lengths} tokens", "use the standard workload")

    return each(evidence, judge)
