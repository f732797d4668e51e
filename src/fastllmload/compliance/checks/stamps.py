"""Checks the clock and the fields of every row: times of submission and tokens, counts, a known status (IETF 4.2)."""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Mask
from fastllmload.compliance import facts
from fastllmload.compliance.checks.runs import per_run, with_arguments
from fastllmload.compliance.evidence import MeasuredRun, Rows
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged
from fastllmload.documents.fields import known
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.records import layout
from fastllmload.records.integrity import ROWS

AGAIN = "measure again; the recording is incomplete"
MOST = 3  # rows that a message names
CLOSE = 1e-6  # relative difference of two sums of the same times
STAMPS = ("t_dispatch", "t_submit", "t_first", "t_last", "t_end")
ENOUGH = 10_000  # rows that are examined for the resolution


@with_arguments
@per_run
def clock_resolution(run: MeasuredRun, at_most_ns: int) -> RequirementOutcome:
    """The greatest unit of which all stamps are multiples is at most *at_most_ns*."""
    run.need(ROWS)
    some = run.run.rows[:ENOUGH]
    stamps = np.concatenate([some[name] for name in STAMPS])
    different = np.unique(stamps[stamps > 0])
    if len(different) < 3:
        return inapplicable("there are too few different time stamps to tell")
    unit = int(np.gcd.reduce(np.diff(different)))
    return judged(unit <= at_most_ns, f"time stamps are multiples of {unit:,} ns", "measure with a finer clock")


@per_run
def streamed(run: MeasuredRun) -> RequirementOutcome:
    answered = run.ok
    if not len(answered):
        return inapplicable("no request succeeded")
    share = float(np.mean((answered["flags"] & layout.FLAG_STREAM) != 0))
    return judged(share == 1.0, f"{share:.1%} of the answers were streamed", "ask for streams: leave out --no-stream")


@per_run
def submission_times(run: MeasuredRun) -> RequirementOutcome:
    """Every answered row has t_submit, and it is not before the dispatch."""
    rows = run.measure
    sent = rows.where((rows["t_headers"] > 0) | (rows["status"] == layout.OK))
    wrong = sent.where((sent["t_submit"] == 0) | (sent["t_submit"] < sent["t_dispatch"]))
    return by_rows(wrong, len(sent), "answered requests have the instant of their submission")


@per_run
def first_token_times(run: MeasuredRun) -> RequirementOutcome:
    """Every row with content has t_first, and it is the time of the first content event."""
    rows, chosen = run.rows, content_rows(run)
    wrong = chosen & ((rows["t_first"] == 0) | (rows["t_first"] != run.content.first))
    return by_rows(rows.where(wrong), int(chosen.sum()), "requests with content have the time of their first token")


@per_run
def token_times(run: MeasuredRun) -> RequirementOutcome:
    """There is one event per piece of content, in order of time."""
    rows, chosen = run.rows, content_rows(run)
    if not run.content.ascending:
        return false("events of a request are not in the order of time", AGAIN)
    wrong = chosen & (run.content.count != rows["content_events"])
    return by_rows(
        rows.where(wrong), int(chosen.sum()), "requests have one time stamp for every piece of their content"
    )


@per_run
def last_token_times(run: MeasuredRun) -> RequirementOutcome:
    rows, chosen = run.rows, content_rows(run)
    wrong = chosen & ((rows["t_last"] == 0) | (rows["t_last"] != run.content.last))
    return by_rows(rows.where(wrong), int(chosen.sum()), "requests with content have the time of their last token")


def content_rows(run: MeasuredRun) -> Mask:
    rows = run.rows
    chosen: Mask = (rows["phase"] == layout.MEASURE) & (rows["content_events"] > 0)
    return chosen


@per_run
def input_counts(run: MeasuredRun) -> RequirementOutcome:
    """Every row has a prompt length, from the server or from the plan."""
    rows = run.measure
    wrong = rows.where((rows["prompt_tokens"] < 0) & (rows["input_target"] == 0))
    return by_rows(wrong, len(rows), "requests have a count of their input tokens", "name a tokenizer with --tokenizer")


@per_run
def output_counts(run: MeasuredRun) -> RequirementOutcome:
    """Every successful request has a count of output tokens with its source."""
    sources = facts.sources_of(run)
    if not sources:
        return false("run.json has no counts of output tokens", AGAIN)
    uncounted = sources.get("none", 0)
    reason = ", ".join(f"{number:,} from {name}" for name, number in sources.items() if number) or "no request"
    return judged(not uncounted, f"output tokens: {reason}", "use --record-text on with a --tokenizer")


@per_run
def statuses(run: MeasuredRun) -> RequirementOutcome:
    rows = run.measure
    named = rows["status"] < len(layout.STATUS_NAMES)
    ended = ~np.isin(rows["status"], (layout.IN_FLIGHT, layout.HOST_LOST))
    wrong = rows.where(~(named & ended))
    planned = run.document.counts.planned
    if len(rows) != int(known(planned) or 0):
        return false(f"there are {len(rows):,} rows for {planned} planned requests", AGAIN)
    return by_rows(wrong, len(rows), "requests have the status in which they ended")


@per_run
def gaps_without_ttft(run: MeasuredRun) -> RequirementOutcome:
    """Gaps are between content events only: over the latency population they add up to the last minus the first token.

    If gaps began at the submission, the pooled figures of run.json would add up to more.
    """
    chosen = content_rows(run)
    rows = run.rows
    wrong = chosen & (run.content.last - run.content.first != rows["t_last"] - rows["t_first"])
    if wrong.any():
        return by_rows(rows.where(wrong), int(chosen.sum()), "requests have gaps that add up to last minus first token")
    pooled = run.document.metric(run.document.metric("share_single").pooled_as or "")
    gaps, mean = int(known(pooled.n) or 0), known(pooled.mean)
    if not gaps or mean is None:
        return inapplicable("no gap was measured")
    found = mean * gaps
    timed = populations(run.run, window_of(run.run)).latency & (rows["t_first"] > 0)
    wanted = float((rows["t_last"] - rows["t_first"])[timed].sum()) / 1e6
    reason = f"{gaps:,} gaps add up to {found:,.1f} ms, first to last tokens to {wanted:,.1f} ms"
    return judged(abs(found - wanted) <= CLOSE * max(wanted, 1.0), reason, AGAIN)


def by_rows(wrong: Rows, total: int, what: str, remedy: str = AGAIN) -> RequirementOutcome:
    """Outcome with the number of right rows of *total*, and with some of the *wrong* ones."""
    if not len(wrong):
        return judged(True, f"all {total:,} {what}")
    named = ", ".join(str(int(number)) for number in wrong["request"][:MOST])
    return false(f"only {total - len(wrong):,} of {total:,} {what}; not request {named}", remedy)
