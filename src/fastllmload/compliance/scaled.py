"""Changes the remedy of checks that fail because `--quick` scales the test down."""

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
    """*outcome* of *check*; where a scaled-down test caused it, the remedy is first to leave out --quick."""
    if outcome.holds or check not in SCALED or not evidence.asked("quick"):
        return outcome
    least = f"; where that is not enough: {outcome.remedy}" if outcome.remedy else ""
    return RequirementOutcome(outcome.state, outcome.reason, f"leave out --quick, which scales this down{least}")
