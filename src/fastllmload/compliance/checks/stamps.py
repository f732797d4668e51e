"""Checks the fields of every row: times of submission and tokens, counts, a known status (IETF 4.2.6)."""

from __future__ import annotations

import numpy as np

from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun, Rows
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged
from fastllmload.metrics.run.window import Mask, populations, window_of
from fastllmload.records import layout

AGAIN = "measure again; the recording is incomplete"
MOST = 3  # rows that a message names
CLOSE = 1e-6  # relative difference of two sums of the same times


@check
def streamed(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Answers came as streams of events."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        answered = run.ok
        if not len(answered):
            return inapplicable("no request succeeded")
        share = float(np.mean((answered["flags"] & layout.FLAG_STREAM) != 0))
        return judged(
            share == 1.0, f"{share:.1%} of the answers were streamed", "ask for streams: leave out --no-stream"
        )

    return each(evidence, judge)


@check
def submission_times(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every answered row has t_submit, and it is not before the dispatch."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows = run.measure
        sent = rows.where((rows["t_headers"] > 0) | (rows["status"] == layout.OK))
        wrong = sent.where((sent["t_submit"] == 0) | (sent["t_submit"] < sent["t_dispatch"]))
        return by_rows(wrong, len(sent), "answered requests have the instant of their submission")

    return each(evidence, judge)


@check
def first_token_times(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every row with content has t_first, and it is the time of the first content event."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows, chosen = run.rows, content_rows(run)
        wrong = chosen & ((rows["t_first"] == 0) | (rows["t_first"] != run.content.first))
        return by_rows(rows.where(wrong), int(chosen.sum()), "requests with content have the time of their first token")

    return each(evidence, judge)


@check
def token_times(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """There is one event per piece of content, in order of time."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows, chosen = run.rows, content_rows(run)
        if not run.content.ascending:
            return false("events of a request are not in the order of time", AGAIN)
        wrong = chosen & (run.content.count != rows["content_events"])
        return by_rows(
            rows.where(wrong), int(chosen.sum()), "requests have one time stamp for every piece of their content"
        )

    return each(evidence, judge)


@check
def last_token_times(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """t_last is the time of the last content event."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows, chosen = run.rows, content_rows(run)
        wrong = chosen & ((rows["t_last"] == 0) | (rows["t_last"] != run.content.last))
        return by_rows(rows.where(wrong), int(chosen.sum()), "requests with content have the time of their last token")

    return each(evidence, judge)


def content_rows(run: MeasuredRun) -> Mask:
    """Rows of the measure phase with content."""
    rows = run.rows
    chosen: Mask = (rows["phase"] == layout.MEASURE) & (rows["content_events"] > 0)
    return chosen


@check
def input_counts(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every row has a prompt length, from the server or from the plan."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows = run.measure
        wrong = rows.where((rows["prompt_tokens"] < 0) & (rows["input_target"] == 0))
        return by_rows(
            wrong, len(rows), "requests have a count of their input tokens", "name a tokenizer with --tokenizer"
        )

    return each(evidence, judge)


@check
def output_counts(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every successful request has a count of output tokens with its source."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        sources = run.get("counts.output_tokens_source")
        if not isinstance(sources, dict):
            return false("run.json has no counts of output tokens", AGAIN)
        uncounted = int(sources.get("none", 0))
        reason = ", ".join(f"{number:,} from {name}" for name, number in sources.items() if number) or "no request"
        return judged(not uncounted, f"output tokens: {reason}", "use --record-text on with a --tokenizer")

    return each(evidence, judge)


@check
def statuses(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every planned request ended with a known status."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows = run.measure
        known = rows["status"] < len(layout.STATUS_NAMES)
        ended = rows["status"] != layout.IN_FLIGHT
        wrong = rows.where(~(known & ended))
        if len(rows) != int(run.get("counts.planned") or 0):
            return false(f"there are {len(rows):,} rows for {run.get('counts.planned')} planned requests", AGAIN)
        return by_rows(wrong, len(rows), "requests have the status in which they ended")

    return each(evidence, judge)


@check
def additive(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """t_submit <= t_first <= t_last <= t_end in every successful row, so that the parts of a latency add up."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows = run.ok.where(run.ok["t_first"] > 0)
        wrong = (
            (rows["t_submit"] > rows["t_first"]) | (rows["t_first"] > rows["t_last"]) | (rows["t_last"] > rows["t_end"])
        )
        return by_rows(rows.where(wrong), len(rows), "successful requests have their instants in order")

    return each(evidence, judge)


@check
def gaps_without_ttft(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Gaps are between content events only: over the latency population they add up to the last minus the first token.

    If gaps began at the submission, the pooled figures of run.json would add up to more.
    """

    def judge(run: MeasuredRun) -> RequirementOutcome:
        chosen = content_rows(run)
        rows = run.rows
        wrong = chosen & (run.content.last - run.content.first != rows["t_last"] - rows["t_first"])
        if wrong.any():
            return by_rows(
                rows.where(wrong), int(chosen.sum()), "requests have gaps that add up to last minus first token"
            )
        pooled = run.get(f"metrics.{run.get('metrics.share_single.pooled_as')}") or {}
        if not pooled.get("n"):
            return inapplicable("no gap was measured")
        found = float(pooled["mean"]) * int(pooled["n"])
        timed = populations(run.run, window_of(run.run)).latency & (rows["t_first"] > 0)
        wanted = float((rows["t_last"] - rows["t_first"])[timed].sum()) / 1e6
        return judged(
            abs(found - wanted) <= CLOSE * max(wanted, 1.0),
            f"{int(pooled['n']):,} gaps add up to {found:,.1f} ms, first to last tokens to {wanted:,.1f} ms",
            AGAIN,
        )

    return each(evidence, judge)


def by_rows(wrong: Rows, total: int, what: str, remedy: str = AGAIN) -> RequirementOutcome:
    """Outcome with the number of right rows of *total*, and with some of the *wrong* ones."""
    if not len(wrong):
        return judged(True, f"all {total:,} {what}")
    named = ", ".join(str(int(number)) for number in wrong["request"][:MOST])
    return false(f"only {total - len(wrong):,} of {total:,} {what}; not request {named}", remedy)
