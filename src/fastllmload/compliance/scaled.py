"""What `--quick` makes smaller: there the first thing to do is to leave it out."""

from __future__ import annotations

from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import RequirementOutcome

SCALED = frozenset(
    {
        "lasted", "requests_per_level", "requests_per_class", "gaps_enough", "slots_used", "samples", "intervals",
        "level_count", "fractions", "spans_to_saturation", "contexts", "buckets", "fixed_output", "long_enough_outputs",
        "enough",
    }
)  # fmt: skip


def with_remedy(evidence: ComplianceEvidence, check: str, outcome: RequirementOutcome) -> RequirementOutcome:
    """*outcome* of *check* with what to do about a test that was scaled down; its own remedy may ask for less than the
    tester gave.
    """
    if outcome.holds or check not in SCALED or not evidence.asked("quick"):
        return outcome
    least = f"; where that is not enough: {outcome.remedy}" if outcome.remedy else ""
    return RequirementOutcome(outcome.state, outcome.reason, f"leave out --quick, which scales this down{least}")
