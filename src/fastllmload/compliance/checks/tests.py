"""Checks the loads, durations, figures and reports of the ten tests (IETF 5.1 to 5.10, 7.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from fastllmload.compliance import facts
from fastllmload.compliance.checks.runs import each, per_level, per_run, scaled, with_arguments
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true
from fastllmload.documents.experiment import FindingTable, LevelEntry
from fastllmload.documents.fields import Number, known
from fastllmload.documents.procedure import (
    CapacityReference,
    FairnessFindings,
    GuardrailFindings,
    ItlFindings,
    ProcedureDocument,
    TestParameters,
    TradeoffFindings,
    TtftFindings,
)
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens

NEEDED = {"p99": 1_000, "p999": 10_000}  # samples
EDGES = (0, 256, 512, 1024, 2048, 4096)  # tokens, of classes of prompt length (IETF 5.1.4.2)
NEAR = 0.02  # of a fraction of the load
WITH_CAPACITY = (TradeoffFindings, ItlFindings, FairnessFindings, GuardrailFindings)
ENDED = "let the procedure run to its end"


def document(evidence: ComplianceEvidence) -> ProcedureDocument:
    """procedure.json; empty for a plain run."""
    return evidence.procedure or ProcedureDocument()


def parameters(evidence: ComplianceEvidence) -> TestParameters:
    return document(evidence).parameters.test or TestParameters()


# Loads and durations


def request_count_defined(evidence: ComplianceEvidence) -> RequirementOutcome:
    findings, count = document(evidence).findings, parameters(evidence).request_count
    if count is None and isinstance(findings, TtftFindings):
        count = findings.request_count
    reason = "request_count is not among the parameters" if count is None else f"request_count is {count}"
    return judged(count is not None, reason, "--num-requests 10000")


@with_arguments
@scaled
@per_run
def samples(run: MeasuredRun, name: str, percentile: str) -> RequirementOutcome:
    """There are as many samples as the percentile needs; with fewer it is flagged in the document and does not count."""
    needed = NEEDED[percentile]
    n = run.samples(name)
    return judged(n >= needed, f"{n:,} samples of {name}, {percentile} needs {needed:,}", f"-n {needed} or longer")


@with_arguments
@scaled
@per_level
def lasted(run: MeasuredRun, seconds: float) -> RequirementOutcome:
    """Every level sent requests for at least *seconds*, the ramp included."""
    length = run.seconds
    if length is None:
        return false("its duration is not known", "let it run to its end")
    reason = f"it lasted {length:,.1f} s, asked are {seconds:g} s"
    return judged(length >= seconds - 0.5, reason, f"--duration {seconds:g}")


@with_arguments
def range_given(evidence: ComplianceEvidence, kind: str) -> RequirementOutcome:
    """A search over rates or concurrencies has a least and a greatest load, the first below the second."""
    asked = parameters(evidence)
    low, high = known(asked.minimum), known(asked.maximum)
    given = low is not None and high is not None and low < high
    return judged(given, f"the {kind} was searched from {asked.minimum} to {asked.maximum}", "--min and --max")


def step_given(evidence: ComplianceEvidence) -> RequirementOutcome:
    step = parameters(evidence).step
    return judged((known(step) or 0) > 0, f"the step is {step}", "--step")


def share_of_capacity(evidence: ComplianceEvidence, run: MeasuredRun) -> float | None:
    """Load of a level as a fraction of the load that the test refers to."""
    entry, findings = run.entry or LevelEntry(), document(evidence).findings
    recorded, load = known(entry.share_of_capacity), known(entry.load)
    capacity = findings.capacity if isinstance(findings, WITH_CAPACITY) else None
    reference = known((capacity or CapacityReference()).req_s) or 0.0
    if recorded is not None:
        return recorded
    return load / reference if reference > 0 and load is not None else None


def shares(evidence: ComplianceEvidence, of: Callable[[MeasuredRun], bool] = lambda _: True) -> list[float]:
    """Shares of the capacity of those levels for which *of* is true and the share is known."""
    found = (share_of_capacity(evidence, run) for run in evidence.levels if of(run))
    return [share for share in found if share is not None]


@with_arguments
@scaled
def fractions(evidence: ComplianceEvidence, *wanted: float) -> RequirementOutcome:
    found = sorted({round(share, 3) for share in shares(evidence)})
    same = len(found) >= len(wanted) and all(any(abs(f - want) <= NEAR for f in found) for want in wanted)
    text = ", ".join(f"{f:g}" for f in found) or "not recorded"
    remedy = f"measure at {', '.join(f'{f:g}' for f in wanted)}"
    return judged(same, f"shares of the reference load: {text}", remedy)


@with_arguments
def mixed_load_within(evidence: ComplianceEvidence, least: float, most: float) -> RequirementOutcome:
    """The load of the mixed level lies in [least, most] of the reference load."""
    found = shares(evidence, lambda run: "isolated" not in run.name)
    inside = bool(found) and all(least - NEAR <= share <= most + NEAR for share in found)
    text = ", ".join(f"{share:.3g}" for share in found) or "not recorded"
    reason = f"the load is {text} of the saturation load"
    return judged(inside, reason, f"measure at {least:g} to {most:g} of it")


@with_arguments
def states(evidence: ComplianceEvidence, *wanted: str) -> RequirementOutcome:
    """Levels were measured in each of these states of the system, which are words in their name or state."""
    found = [f"{run.name} {' '.join((run.entry or LevelEntry()).state)}".casefold() for run in evidence.levels]
    missing = [word for word in wanted if not any(word in text for text in found)]
    reason = f"states: {'; '.join(dict.fromkeys(found)) or 'none'}"
    return judged(not missing, reason, f"measure {', '.join(missing)} too")


@with_arguments
@scaled
def long_enough_outputs(evidence: ComplianceEvidence, tokens: int) -> RequirementOutcome:
    """Requests whose gaps count generated at least *tokens*; the procedure excludes and counts shorter ones."""
    remedy = f"--osl {tokens + 1} or more, with --ignore-eos"
    found = {run.name: answered_short(run, tokens) for run in evidence.levels}
    findings = document(evidence).findings
    recorded = [one.short for one in findings.levels] if isinstance(findings, ItlFindings) else []
    short, excluded = sum(counts[1] for counts in found.values()), sum(int(known(one) or 0) for one in recorded)
    if short > excluded:
        how = f"{excluded:,} were excluded" if recorded else "the number of excluded ones is not recorded"
        return false(f"{short:,} requests generated fewer than {tokens} tokens, and {how}", remedy)

    def judge_level(run: MeasuredRun) -> RequirementOutcome:
        ok, short = found[run.name]
        asked = int(run.measure["output_target"].min(initial=2**31 - 1))
        reason = f"{short:,} of {ok:,} requests generated fewer than {tokens} tokens; the smallest target is {asked:,}"
        return judged(asked > tokens and ok > short, reason, remedy)

    return each(evidence, evidence.levels, judge_level)


def answered_short(run: MeasuredRun, tokens: int) -> tuple[int, int]:
    """Numbers of successful requests in the window, and of those with fewer than *tokens* output tokens."""
    chosen = populations(run.run, window_of(run.run)).latency
    return int(chosen.sum()), int(np.count_nonzero(chosen & (count_tokens(run.run).output < tokens)))


@per_level
def watched_for_cascades(run: MeasuredRun) -> RequirementOutcome:
    """Sending stops when most of the last requests fail."""
    limit = run.document.config.load.stop_on_failures
    return judged(limit is not None, f"sending stops at a share of failures of {limit}", "run it as a procedure")


# Figures and reports


@per_run
def leading_noted(run: MeasuredRun) -> RequirementOutcome:
    """Events before the content are counted, in rows and in the difference between ttft and ttft_any."""
    stated = run.document.metric("ttft_any").n
    reason = f"{facts.leading_content_of(run):,} requests had other tokens before content; ttft_any has {stated}"
    return judged(bool(stated), reason, "measure with this version")


@per_run
def first_token_defined(run: MeasuredRun) -> RequirementOutcome:
    both = None not in (run.document.metric("ttft").n, run.document.metric("ttft_any").n)
    return judged(both, "ttft is to the first content, ttft_any to any token", "measure with this version")


@with_arguments
@per_run
def figures(run: MeasuredRun, name: str, *statistics: str) -> RequirementOutcome:
    metric = run.document.metric(name)
    gone = [f"{name}.{statistic}" for statistic in statistics if metric.statistic(statistic) is None]
    if gone and metric.n:
        return false(f"{', '.join(gone)} is missing", "measure again with this version")
    if gone:
        return false(f"nothing was measured: {', '.join(gone)}", "let requests succeed")
    return true(f"{name} has {', '.join(statistics)}")


@per_run
def count_and_duration(run: MeasuredRun) -> RequirementOutcome:
    values: dict[str, Number] = {
        "counts.planned": run.document.counts.planned,
        "window.seconds": run.document.window.seconds,
    }
    gone = [name for name, value in values.items() if value is None]
    reason = f"{', '.join(gone)} is missing" if gone else f"{', '.join(values)} are there"
    return judged(not gone, reason, "measure with this version")


@per_run
def refusals_counted(run: MeasuredRun) -> RequirementOutcome:
    """The number of refused requests is in run.json, as a metric and among the counts."""
    counted, rows = run.document.metric("refusals").value, run.document.counts.refused
    return judged(None not in (counted, rows), f"{counted} requests were refused", "measure again")


def tables_with(evidence: ComplianceEvidence, *columns: str) -> Iterator[FindingTable]:
    """Tables whose columns begin with *columns*, in their order, possibly with others in between."""
    for table in document(evidence).tables:
        titles = iter([column.casefold() for column in table.columns])
        if all(any(title.startswith(want.casefold()) for title in titles) for want in columns):
            yield table


def length_classes(evidence: ComplianceEvidence) -> RequirementOutcome:
    """TTFT by input length in classes that begin at the edges of the draft, where lengths vary."""
    different = {int(n) for run in evidence.runs for n in run.ok["input_target"][:1000]}
    if len(different) < 2:
        return inapplicable("all prompts have one length")
    table = next(tables_with(evidence, "Input Tokens"), None)
    if table is None:
        return false("no table of TTFT by input length", "run it as `fastllmload procedure ttft`")
    labels = [str(row[0]).replace(",", "") for row in table.rows if row]
    begins = [int(first[0]) for label in labels if (first := re.match(r"\d+", label))]
    fits = bool(begins) and set(begins) <= set(EDGES)
    return judged(fits, f"buckets: {', '.join(labels)}", "run it as `fastllmload procedure ttft`")


def ttft_table(evidence: ComplianceEvidence) -> RequirementOutcome:
    """procedure.json has a table with the percentiles of TTFT."""
    found = list(tables_with(evidence, "Metric", "Value"))
    for table in found:
        labels = iter([str(row[0]).casefold() for row in table.rows if row])
        if all(any(want in label for label in labels) for want in ("ttft p50", "ttft p99")):
            return true(f"table {table.title!r}")
    if found:
        return false(f"no row TTFT P50 or TTFT P99 in {found[0].title!r}", ENDED)
    return false("no table with the columns Metric, Value", ENDED)


def ttft_plot(evidence: ComplianceEvidence) -> RequirementOutcome:
    for plot in document(evidence).plots:
        label = f"{plot.id} {plot.title} {plot.kind}".casefold()
        if plot.series and ("cdf" in label or "hist" in label):
            return true(f"plot {plot.title!r}")
    return false("no such plot", ENDED)
