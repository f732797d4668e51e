"""Checks how answers were delivered and how inter-token times were derived from that (IETF 4.6, B.1, B.2)."""

from __future__ import annotations

import numpy as np

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true
from fastllmload.records import layout

DIRECT_ABOVE = 0.90  # IETF B.2.1
AGAIN = "measure with this version"


@check
def protocol_reported(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    found = facts.protocol(evidence)
    return judged(found is not None, f"the protocol is {found}", "name a known --endpoint-type")


@check
def protocol_is(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    found = facts.protocol(evidence)
    remedy = "this version does not support it: note it as a deviation" if name == "grpc" else "stream the answers"
    return judged(found == name, f"the protocol is {found}, recommended is {name}", remedy)


@check
def chunks_reported(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The share of chunks that carry exactly one token is stated."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        stated = run.get("metrics.share_single")
        if not isinstance(stated, dict):
            return false("the share of single-token chunks is not stated", AGAIN)
        share = stated.get("value")
        if share is None:
            return true("the number of tokens per chunk is not known, and that is stated")
        return true(f"{share:.1%} of the chunks carry one token")

    return each(evidence, judge)


@check
def option_declared(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every run names its ITL option."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        option = run.get("metrics.share_single.itl_option")
        return judged(option in ("direct", "A", "B", "C"), f"the ITL option is {option}", AGAIN)

    return each(evidence, judge)


def without_answers(run: MeasuredRun) -> bool:
    """Whether no answer of the run has a content token."""
    return bool(run.get("counts.all_reasoning")) and run.get("metrics.ttft.n") == 0


@check
def option_follows(evidence: ComplianceEvidence, /, option: str) -> RequirementOutcome:
    """The option follows from the delivery pattern, unless the user chose another."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        share, found = run.get("metrics.share_single.value"), run.get("metrics.share_single.itl_option")
        asked = run.get("config.output.itl_option")
        single = share is not None and share > DIRECT_ABOVE
        if without_answers(run):
            return inapplicable("the answers were all reasoning: no gap between answer tokens")
        if single != (option == "direct"):
            return inapplicable(f"the share of single-token chunks is {share}")
        return judged(found == option or asked not in (None, "auto"), f"option {found} at a share of {share}", AGAIN)

    return each(evidence, judge)


@check
def named_tbc(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Option A: gaps are times between chunks, and nothing is called ITL."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        chunks, tokens = run.get("metrics.tbc.n") or 0, run.get("metrics.itl.n") or 0
        if without_answers(run):
            return inapplicable("the answers were all reasoning: no gap between answer tokens")
        return judged(chunks > 0 and not tokens, f"{chunks:,} gaps are reported as tbc, {tokens:,} as itl", AGAIN)

    return each(evidence, judge)


@check
def spread_named(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Option B: gaps have their own name and a caveat."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        n, caveat = run.get("metrics.itl_b.n") or 0, run.get("metrics.itl_b.caveat")
        return judged(n > 0 and bool(caveat), f"{n:,} gaps as itl_b: {caveat}", AGAIN)

    return each(evidence, judge)


@check
def first_content_counts(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """t_first is a content event, never a role, whitespace, usage or comment event."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows = run.rows
        chosen = (rows["phase"] == layout.MEASURE) & (rows["content_events"] > 0)
        same = rows["t_first"][chosen] == run.content.first[chosen]
        return judged(bool(same.all()), f"{int(same.sum()):,} first tokens are content", AGAIN)

    return each(evidence, judge)


@check
def leading_noted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Events before the content are counted, in rows and in the difference between ttft and ttft_any."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        early = int(np.count_nonzero((run.ok["leading_events"] > 0) | (run.ok["reasoning_events"] > 0)))
        stated = run.get("metrics.ttft_any.n")
        return judged(bool(stated), f"{early:,} requests had other tokens before content; ttft_any has {stated}", AGAIN)

    return each(evidence, judge)


@check
def first_token_defined(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Both definitions of TTFT are reported, under their own names."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        both = run.get("metrics.ttft.n") is not None and run.get("metrics.ttft_any.n") is not None
        return judged(both, "ttft is to the first content, ttft_any to any token", AGAIN)

    return each(evidence, judge)


@check
def events_and_reads(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Tokens per event and coalesced events are both recorded."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        coalesced = run.get("certificate.coalesced_read_share")
        both = coalesced is not None and run.get("metrics.share_single") is not None
        return judged(both, f"{coalesced or 0:.1%} of the events shared a read", AGAIN)

    return each(evidence, judge)
