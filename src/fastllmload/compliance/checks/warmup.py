"""Checks the warm-up, its verification, and its absence before a cold start (IETF 4.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastllmload.compliance.checks.runs import each, per_run
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun, Rows, rows_of
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true
from fastllmload.documents.experiment import Probe, WarmUpEntry
from fastllmload.documents.fields import known
from fastllmload.metrics.levels.prefix_cache import prefix_tokens
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run

REQUESTS, TOKENS = 100, 10_000
PAIRS, VARIATION = 3, 0.10
FOUND = 0.5  # of the shared tokens; less than 1, as servers cache full blocks only
FILL = "measure with `fastllmload procedure prefix-cache`, which fills the cache with the measured prefixes first"
PROBES = "run it as `fastllmload procedure`, which sends probes"
WARM = "leave out --warmup 0: the test then warms up, and sends probes before and after"
LONGER = "leave out --warmup, which is 100 requests and 10,000 output tokens by default"


@per_run
def loaded(run: MeasuredRun) -> RequirementOutcome:
    """A request was answered before the measurement, so the model was loaded."""
    probe = known(run.document.target.probe_s)
    if probe is not None:
        return true(f"a request was answered in {probe:.3g} s before the run")
    warm = bool((run.warmup["status"] == layout.OK).any())
    reason = "the warm-up succeeded" if warm else "nothing was answered before the measured requests"
    return judged(warm, reason, "wait until the server answers, and leave the warm-up in")


def enough(evidence: ComplianceEvidence) -> RequirementOutcome:
    """100 successful requests and 10,000 output tokens before the first measured one, in every warm-up of a test: after
    a restart the earlier ones do not count.
    """
    if evidence.procedure is None:
        return each(evidence, evidence.runs, lambda run: amount(*answered(run.run, layout.WARMUP)))
    done = warm_ups(evidence)
    found = [amount(*answered_in(evidence, one, number, len(done))) for number, one in enumerate(done, 1)]
    return next((outcome for outcome in found if not outcome.holds), found[-1])


def warm_ups(evidence: ComplianceEvidence) -> tuple[WarmUpEntry, ...]:
    """Entries of the warm-ups in procedure.json; one for all where it does not list them singly."""
    if evidence.procedure is None:
        return (WarmUpEntry(),)
    return evidence.procedure.warmups or (evidence.procedure.warmup or WarmUpEntry(),)


def answered_in(evidence: ComplianceEvidence, done: WarmUpEntry, number: int, of: int) -> tuple[int, int, str]:
    """Successful requests and output tokens of one warm-up, at most those in the rows of its runs, and its name."""
    recorded = int(known(done.requests) or 0), int(known(done.tokens) or 0)
    runs = [run for run in evidence.warmups if not done.folders or run.directory.name in done.folders]
    counted = [answered(run, layout.MEASURE) for run in runs]
    which = f"warm-up {number} of {of}" if of > 1 else "the warm-up"
    if not counted:  # their folders are missing
        return *recorded, which
    requests, tokens = (min(most, sum(part)) for most, part in zip(recorded, zip(*counted, strict=True), strict=True))
    return requests, tokens, which


def answered(run: Run, phase: int) -> tuple[int, int]:
    """Successful requests of a phase and their output tokens."""
    ok = (run.rows["phase"] == phase) & (run.rows["status"] == layout.OK)
    return int(ok.sum()), int(np.maximum(count_tokens(run).output[ok], 0).sum())


def amount(requests: int, tokens: int, which: str = "the warm-up") -> RequirementOutcome:
    reason = f"{which} had {requests:,} successful requests and {tokens:,} output tokens"
    return judged(requests >= REQUESTS and tokens >= TOKENS, reason, LONGER)


def drained(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Nothing of a warm-up was in flight when measuring began."""
    spans = [span(rows_of(run, layout.MEASURE)) for run in evidence.warmups]

    def judge(run: MeasuredRun) -> RequirementOutcome:
        began = span(run.measure)[0]
        before = [begin_end for begin_end in (*spans, span(run.warmup)) if begin_end[0] and begin_end[0] < began]
        if not before or not began:
            return inapplicable("there was no warm-up")
        pause = (began - max(end for _, end in before)) / 1e6
        reason = f"the warm-up was over {pause:,.1f} ms before the first measured request"
        return judged(pause >= 0, reason, "measure again")

    return each(evidence, evidence.runs, judge)


def span(rows: Rows) -> tuple[int, int]:
    """First dispatch and last end in ns; zeros where nothing was sent."""
    sent = rows.where(rows["t_dispatch"] > 0)
    return (int(sent["t_dispatch"].min()), int(sent["t_end"].max())) if len(sent) else (0, 0)


@per_run
def prefixes_cached(run: MeasuredRun) -> RequirementOutcome:
    """Warm prefix cache: the server found the shared part of every measured prompt, also of the first per prefix.

    The requests sent before are not evidence: a warm-up has other prefixes, and a server may have evicted them.
    """
    shared, cached = prefix_tokens(run.run, run.ok["request"]), run.ok["cached_tokens"]
    sharing = shared > 0
    if not sharing.any():
        return false("the measured prompts have no known shared part, so the cache could not be filled", FILL)
    unknown = int(np.count_nonzero(sharing & (cached < 0)))
    if unknown:
        of = f"{unknown:,} requests with a shared prefix the server does not report its cached tokens"
        return false(f"the warm-up sends other prefixes, and for {of}", FILL)
    missed = int(np.count_nonzero(sharing & (cached < FOUND * shared)))
    reason = f"{missed:,} of {int(sharing.sum()):,} requests with a shared prefix did not find it in the cache"
    return judged(not missed, reason, FILL)


def probed(evidence: ComplianceEvidence) -> RequirementOutcome:
    counts = [(int(one.probe_before is not None), len(one.probes)) for one in warm_ups(evidence)]
    before, after = min(counts, key=lambda pair: (min(pair), *pair))
    reason = f"{before} probe before and {after} after the warm-up"
    return judged(before > 0 and after > 0, reason, with_probes(evidence))


def with_probes(evidence: ComplianceEvidence) -> str:
    """Remedy for missing probes, which a procedure sends with its warm-up."""
    if evidence.procedure is None:
        return PROBES
    if evidence.procedure.parameters.run.load.warmup_requests == 0 or evidence.procedure.warmup is None:
        return WARM
    return "leave out --quick, which sends fewer" if evidence.procedure.quick else "run it again, in another folder"


def stable(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Probes after each warm-up differ by less than 10% from one to the next, three times in a row."""
    series = [one.probes for one in warm_ups(evidence)]
    fewest = min(map(len, series))
    if fewest <= PAIRS:
        return false(f"{fewest} probes after the warm-up are too few", with_probes(evidence))
    worst = max(map(steadiest, series))
    reason = f"the steadiest {PAIRS + 1} probes in a row differ by at most {worst:.1%}"
    return judged(worst < VARIATION, reason, "warm up for longer, on an idle system")


def steadiest(probes: Sequence[Probe]) -> float:
    """Largest change over PAIRS consecutive pairs, at the place where it is smallest."""
    return min(max(change(probes[k + j], probes[k + j + 1]) for j in range(PAIRS)) for k in range(len(probes) - PAIRS))


def change(a: Probe, b: Probe) -> float:
    """The larger relative change of TTFT and end-to-end latency from one probe to the next."""
    pairs = ((known(a.ttft_ms) or 0.0, known(b.ttft_ms) or 0.0), (known(a.e2e_ms) or 0.0, known(b.e2e_ms) or 0.0))
    return max(abs(after - before) / before if before > 0 else math.inf for before, after in pairs)


def skipped(evidence: ComplianceEvidence) -> RequirementOutcome:
    done = (None if evidence.procedure is None else evidence.procedure.warmup) or WarmUpEntry()
    probes = len(done.probes) + (done.probe_before is not None)

    def judge(run: MeasuredRun) -> RequirementOutcome:
        sent = len(run.warmup) + probes + sum(len(warm.rows) for warm in evidence.warmups)
        return judged(not sent, f"{sent:,} requests came before the measured ones", "give --warmup 0")

    return each(evidence, evidence.runs, judge)


def cold_marked(evidence: ComplianceEvidence) -> RequirementOutcome:
    by_tester = evidence.declared.get("cold_start") == "yes"
    in_run = evidence.first(lambda document: document.declarations.get("cold_start"))
    by_procedure = evidence.procedure is not None and evidence.procedure.cold_start is not None
    reason = "run.json marks the start as cold"
    return judged((by_tester and in_run == "yes") or by_procedure, reason, "--declare cold_start=yes with the run")


def warmup_reported(evidence: ComplianceEvidence) -> RequirementOutcome:
    """The document describes the warm-up: its requests, tokens and probes."""
    if evidence.procedure is None:
        planned = evidence.first(lambda document: document.plan.warmup.requests)
        return judged(planned is not None, "run.json describes the warm-up", "measure again")
    done = evidence.procedure.warmup
    described = done is not None and None not in (done.requests, done.tokens, done.rounds)
    return judged(described, f"the warm-up is {'' if described else 'not '}described", WARM)
