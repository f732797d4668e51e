"""Statements of the draft on comparisons, with its list to be checked before publishing, and on security (IETF 6, 7)."""

from __future__ import annotations

from fastllmload.compliance.checks import comparison, tests
from fastllmload.compliance.checks.declared import declared, declared_as
from fastllmload.compliance.statement import definition, item, must, should, step, under

# 6 Comparisons
COMPARISON = under("comparison",
    must("IETF-6.1-a", "Comparison: identical workload (same requests, same order, same seeds).",
        comparison.same_requests),
    item("IETF-6.1-b", "Comparison: equivalent SUT boundary.", comparison.same_boundary),
    item("IETF-6.1-c", "Comparison: comparable hardware, or normalised by hardware capability.",
        comparison.comparable_hardware),
    item("IETF-6.1-d", "Comparison: same load model and parameters.", comparison.same_load),
    step("IETF-6.2-a", "Unequal hardware: throughput per accelerator-second is stated.",
        comparison.normalised("tok_per_gpu_s"), applies="unequal_hardware"),
    step("IETF-6.2-b", "When hardware differs, report cost-normalised throughput (tokens per dollar-hour).",
        comparison.normalised("tok_s_per_dollar_hour"), applies="unequal_hardware"),
    step("IETF-6.3-a", "Comparative claims: confidence intervals for key metrics.", comparison.intervals),
    definition("IETF-6.3-b", "Comparative claims: at least 3 independent runs.", comparison.repeated),
    step("IETF-6.4-a", "Verify same workload specification before publishing.", comparison.same_requests),
    step("IETF-6.4-b", "Verify same test duration.",
        comparison.same_settings("config.load.duration", "config.load.num_requests")),
    step("IETF-6.4-c", "Verify same warm-up procedure.",
        comparison.same_settings(
            "config.load.warmup_requests", "config.load.warmup_tokens", "config.load.warmup_seconds"
        )),
    step("IETF-6.4-d", "Verify same success criteria.",
        comparison.same_settings("config.output.goodput", "config.load.timeout")),
    step("IETF-6.4-e", "Verify both systems tested at the same time if using shared resources.", comparison.same_time),
    step("IETF-6.4-g", "Differences in configuration explicitly noted.", comparison.differences_known),
)  # fmt: skip

# 7 Security considerations
SECURITY = (
    should("IETF-7.1-d", "Operators consider whether to publish detailed capacity information.",
        declared_as("publication.reviewed", "yes")),
    should("IETF-7.2-d", "Results are checked with other workloads and with samples of production traffic.",
        declared("workload.varied")),
    should("IETF-7.4-a", "Conduct memory pressure tests on isolated systems.", declared_as("sut.isolated", "yes"),
        applies="test memory-pressure"),
    should("IETF-7.4-b", "Have recovery procedures ready.", declared("sut.recovery"), applies="test memory-pressure"),
    should("IETF-7.4-c", "Monitor for cascading failures.", tests.watched_for_cascades, applies="test memory-pressure"),
)  # fmt: skip

STATEMENTS = (*COMPARISON, *SECURITY)
