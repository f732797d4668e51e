"""Checks the levels, durations, loads, phases and hooks of a test (IETF 5.1 to 5.10)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, inapplicable, judged, true
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens

NEAR = 0.02  # of a fraction of the load
FILL_US = 50_000.0  # most between the first and last request that fill a closed loop
PER_SLOT = 100


@check
def lasted(evidence: ComplianceEvidence, /, seconds: float, state: str = "") -> RequirementOutcome:
    """Every level (of a *state*, where given) sent requests for at least *seconds*, the ramp included."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if state and state not in f"{run.name} {(run.entry or {}).get('state')}":
            return inapplicable(f"no level is called {state}")
        length = run.seconds
        if length is None:
            return false("its duration is not known", "let it run to its end")
        return judged(
            length >= seconds - 0.5, f"it lasted {length:,.1f} s, asked are {seconds:g} s", f"--duration {seconds:g}"
        )

    return each(evidence, judge, levels=True)


@check
def window_after_ramp(evidence: ComplianceEvidence, /, share: float) -> RequirementOutcome:
    """The window of a level that is bounded by time begins after the first *share* of it."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        phase = run.run.phase("measure")
        if phase is None or phase.bound != "duration":
            return inapplicable("the level is bounded by a count")
        return judged(
            phase.ramp_share >= share, f"the first {phase.ramp_share:.0%} are left out", f"--ramp-share {share:g}"
        )

    return each(evidence, judge, levels=True)


@check
def level_count(evidence: ComplianceEvidence, /, least: int) -> RequirementOutcome:
    """At least *least* different loads were measured."""
    loads = {(run.entry or {}).get("load") for run in evidence.levels}
    return judged(len(loads) >= least, f"{len(loads)} loads were measured", f"measure at least {least}")


@check
def ascending(evidence: ComplianceEvidence, /, by: str = "load") -> RequirementOutcome:
    """Levels were measured in the order of their load, or of their prompts' length."""
    if by == "load":
        values = [float((run.entry or {}).get("load") or 0.0) for run in evidence.levels]
    else:
        values = [float(np.median(run.measure["input_target"])) if len(run.measure) else 0.0 for run in evidence.levels]
    return judged(values == sorted(values), f"order: {', '.join(f'{value:g}' for value in values)}", "run it again")


@check
def parameter(evidence: ComplianceEvidence, /, names: list[str], words: str = "") -> RequirementOutcome:
    """One of *names* has a value in the parameters or findings of the procedure, at any depth."""
    value = find(evidence.asked("parameters"), names)
    if value is None:
        value = find(evidence.asked("findings"), names)
    reason = f"{names[0]} is {value}" if value is not None else f"{' or '.join(names)} is not among the parameters"
    return judged(
        value is not None, reason, words or f"give it as an option of `fastllmload procedure {evidence.test}`"
    )


def find(document: Any, names: list[str]) -> Any:
    """The first value with one of *names* that is not None, depth first."""
    if isinstance(document, list):
        return next((value for part in document if (value := find(part, names)) is not None), None)
    if not isinstance(document, dict):
        return None
    for name in names:
        if document.get(name) is not None:
            return document[name]
    return find(list(document.values()), names)


@check
def range_given(evidence: ComplianceEvidence, /, loop: str) -> RequirementOutcome:
    """A search has a least and a greatest load, the first below the second."""
    kind = "rate" if loop == "open" else "concurrency"
    low = find(evidence.asked("parameters"), [f"{kind}_min", f"min_{kind}", "least", "lo", "minimum", "initial"])
    high = find(evidence.asked("parameters"), [f"{kind}_max", f"max_{kind}", "most", "hi", "maximum"])
    given = isinstance(low, int | float) and isinstance(high, int | float) and low < high
    return judged(given, f"the {kind} was searched from {low} to {high}", "--min and --max")


@check
def step_given(evidence: ComplianceEvidence, /, loop: str) -> RequirementOutcome:
    """A search has a resolution above 0."""
    kind = "rate" if loop == "open" else "concurrency"
    step = find(evidence.asked("parameters"), [f"{kind}_step", f"step_{kind}", "step", "increment"])
    return judged(isinstance(step, int | float) and step > 0, f"the step is {step}", "--step")


def capacity(evidence: ComplianceEvidence) -> float | None:
    """Requests/s that shares of a load refer to; None where none was found or declared."""
    found = evidence.asked("findings.capacity.req_s")
    return float(found) if isinstance(found, int | float) and found > 0 else None


def fraction_of(evidence: ComplianceEvidence, run: MeasuredRun) -> float | None:
    """Load of a level as a fraction of the reference load."""
    entry, reference = run.entry or {}, capacity(evidence)
    recorded = entry.get("share_of_capacity")
    if isinstance(recorded, int | float):
        return float(recorded)
    load = entry.get("load")
    return float(load) / reference if reference is not None and isinstance(load, int | float) else None


@check
def fractions(evidence: ComplianceEvidence, /, wanted: list[float]) -> RequirementOutcome:
    """There are levels at these shares of the reference load."""
    found = sorted({round(f, 3) for run in evidence.levels if (f := fraction_of(evidence, run)) is not None})
    same = len(found) >= len(wanted) and all(any(abs(f - want) <= NEAR for f in found) for want in wanted)
    shares = ", ".join(f"{f:g}" for f in found) or "not recorded"
    return judged(same, f"shares of the reference load: {shares}", f"measure at {', '.join(f'{f:g}' for f in wanted)}")


@check
def fraction_within(evidence: ComplianceEvidence, /, least: float, most: float) -> RequirementOutcome:
    """The mixed level's share of the reference load lies in [least, most]."""
    mixed = [run for run in evidence.levels if "isolated" not in run.name]
    found = [f for run in mixed if (f := fraction_of(evidence, run)) is not None]
    inside = bool(found) and all(least - NEAR <= f <= most + NEAR for f in found)
    shares = ", ".join(f"{f:.3g}" for f in found) or "not recorded"
    return judged(inside, f"the load is {shares} of the saturation load", f"measure at {least:g} to {most:g} of it")


@check
def spans_to_saturation(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The lowest load is at most a tenth of the capacity, and a level was saturated."""
    found = sorted(f for run in evidence.levels if (f := fraction_of(evidence, run)) is not None)
    saturated = any((run.entry or {}).get("saturated") for run in evidence.levels)
    start = f"from {found[0]:.3g} of the capacity" if found else "of no known share of a capacity"
    return judged(
        bool(found) and found[0] <= 0.1 * (1 + NEAR) and saturated,
        f"loads {start}; {'a' if saturated else 'no'} level was saturated",
        "measure from 10% of the capacity up to saturation",
    )


@check
def states(evidence: ComplianceEvidence, /, wanted: list[str]) -> RequirementOutcome:
    """Levels were measured in each of these states of the system, which are words in their name or state."""
    found = [f"{run.name} {' '.join((run.entry or {}).get('state') or ())}".casefold() for run in evidence.levels]
    missing = [word for word in wanted if not any(word in text for text in found)]
    reason = f"states: {'; '.join(dict.fromkeys(found)) or 'none'}"
    return judged(not missing, reason, f"measure {', '.join(missing)} too")


@check
def step_done(evidence: ComplianceEvidence, /, words: list[str]) -> RequirementOutcome:
    """A change of the system by a hook or an operator is recorded with its time and status."""
    for step in evidence.asked("steps") or ():
        if any(word in str(step.get("name", "")) for word in words):
            how = str(step.get("how", ""))
            record = f"{step.get('name')} by {how} at {step.get('at_utc')}, status {step.get('status')}"
            if step.get("status"):
                return false(record, "let the hook succeed")
            return RequirementOutcome(DECLARED, record) if how == "operator" else true(record)
    return false(f"no step {' or '.join(words)} is recorded", f"--hook {words[0]}=COMMAND")


@check
def same_sequence(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Runs at the same load had the same requests at the same instants, in every state of the system."""
    digests: dict[Any, set[Any]] = {}
    for run in evidence.levels:
        digests.setdefault((run.entry or {}).get("load"), set()).add(run.get("plan.digest"))
    unequal = [load for load, found in digests.items() if len(found) > 1]
    return judged(
        not unequal, f"plans of equal loads are {'different' if unequal else 'equal'}", "use one seed for all"
    )


@check
def requests_per_level(evidence: ComplianceEvidence, /, least: int) -> RequirementOutcome:
    """Every level has at least *least* successful requests."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        return judged(len(run.ok) >= least, f"{len(run.ok):,} requests succeeded, asked are {least:,}", f"-n {least}")

    return each(evidence, judge, levels=True)


@check
def gaps_enough(evidence: ComplianceEvidence, /, requests: int, gaps: int) -> RequirementOutcome:
    """Every level has at least *requests* successful requests and *gaps* gaps."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        name = run.get("metrics.share_single.pooled_as")
        n, ok = int(run.get(f"metrics.{name}.n") or 0), len(run.ok)
        return judged(n >= gaps and ok >= requests, f"{ok:,} requests with {n:,} gaps", f"-n {requests} or more")

    return each(evidence, judge, levels=True)


@check
def long_enough_outputs(evidence: ComplianceEvidence, /, tokens: int) -> RequirementOutcome:
    """Requests whose gaps count generated at least *tokens*; the procedure excludes and counts shorter ones."""
    found = [(run, answered_short(run, tokens)) for run in evidence.levels]
    recorded, short = values_of(evidence.asked("findings"), "short"), sum(counts[1] for _, counts in found)
    excluded = sum(value for value in recorded if isinstance(value, int))
    remedy = f"--osl {tokens + 1} or more, with --ignore-eos"
    if short > excluded:
        how = f"{excluded:,} were excluded" if recorded else "the number of excluded ones is not recorded"
        return false(f"{short:,} requests generated fewer than {tokens} tokens, and {how}", remedy)

    def judge(run: MeasuredRun) -> RequirementOutcome:
        ok, short = next(counts for one, counts in found if one is run)
        asked = int(run.measure["output_target"].min(initial=2**31 - 1))
        return judged(
            asked > tokens and ok > short,
            f"{short:,} of {ok:,} requests generated fewer than {tokens} tokens; the smallest target is {asked:,}",
            remedy,
        )

    return each(evidence, judge, levels=True)


def answered_short(run: MeasuredRun, tokens: int) -> tuple[int, int]:
    """Numbers of successful requests in the window, and of those with fewer than *tokens* output tokens."""
    chosen = populations(run.run, window_of(run.run)).latency
    return int(chosen.sum()), int(np.count_nonzero(chosen & (count_tokens(run.run).output < tokens)))


def values_of(document: Any, name: str) -> list[Any]:
    """Every value under *name*, at any depth."""
    if isinstance(document, list):
        return [value for part in document for value in values_of(part, name)]
    if not isinstance(document, dict):
        return []
    here = [document[name]] if name in document else []
    return [*here, *(value for part in document.values() for value in values_of(part, name))]


@check
def filled_at_once(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The requests that fill a closed loop were sent at the same time."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        spread = run.get("certificate.schedule_lag_us.first_fill_us")
        spread = run.get("certificate.first_fill_us") if spread is None else spread
        if spread is None:
            return inapplicable("the load is an open loop")
        return judged(
            float(spread) <= FILL_US, f"the first requests were sent within {float(spread):,.0f} us", "more workers"
        )

    return each(evidence, judge, levels=True)


@check
def slots_used(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every level lasted 60 s and 100 completions per slot, whichever is longer."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        slots = int(run.get("config.load.concurrency") or 0)
        length = run.seconds or 0.0
        done = len(run.ok)
        return judged(
            length >= 59.5 and done >= PER_SLOT * slots,
            f"{done:,} completions of {slots:,} slots in {length:,.1f} s",
            "let each level last 60 s and 100 completions per slot",
        )

    return each(evidence, judge, levels=True)


@check
def closed_at_most(evidence: ComplianceEvidence, /, slots: int) -> RequirementOutcome:
    """Every level is a closed loop with at most *slots* slots."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = run.get("config.load.concurrency")
        return judged(found is not None and 1 <= int(found) <= slots, f"the concurrency is {found}", f"-c 1 to {slots}")

    return each(evidence, judge, levels=True)


@check
def lengths_hit(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every prompt of a level has the level's length within 1% or 8 tokens."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        lengths = run.measure["input_target"].astype(np.int64)
        if not len(lengths):
            return inapplicable("no request was planned")
        middle = float(np.median(lengths))
        off = float(np.abs(lengths - middle).max())
        return judged(
            off <= max(8.0, 0.01 * middle), f"prompts of {middle:,.0f} tokens, off by {off:,.0f}", "run it again"
        )

    return each(evidence, judge, levels=True)


@check
def oversubscribed(evidence: ComplianceEvidence, /, least: float) -> RequirementOutcome:
    """There are levels above the capacity, and none below *least* of it."""
    found = [f for run in evidence.levels if (f := fraction_of(evidence, run)) is not None]
    above = [f for f in found if f > 1.0]
    return judged(
        bool(above) and min(found) >= least,
        f"levels: {', '.join(f'{f:g}' for f in found) or 'none'}",
        "add levels above 1",
    )


@check
def failures_counted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Failed requests are counted by their class at every level."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        failed, classes = run.get("counts.failed"), run.get("errors")
        return judged(failed is not None and classes is not None, f"{failed} requests failed", "measure again")

    return each(evidence, judge, levels=True)


@check
def watched_for_cascades(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Sending stops when most of the last requests fail."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        limit = run.get("config.load.stop_on_failures")
        return judged(limit is not None, f"sending stops at a share of failures of {limit}", "run it as a procedure")

    return each(evidence, judge, levels=True)


@check
def starts_at(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """The first level has the load in the parameter *name*."""
    asked = find(evidence.asked("parameters"), [name])
    first = (evidence.levels[0].entry or {}).get("load") if evidence.levels else None
    return judged(
        asked is not None and first == asked, f"the first level was at {first}, {name} is {asked}", "run it again"
    )


@check
def entries(evidence: ComplianceEvidence, /, names: list[str]) -> RequirementOutcome:
    """Every level's entry in procedure.json has one of *names*."""
    missing = [run.name for run in evidence.levels if not any(name in (run.entry or {}) for name in names)]
    found = bool(evidence.levels) and not missing
    reason = f"{names[0]} is {'recorded' if found else 'missing at ' + ', '.join(missing[:3])}"
    return judged(found, reason, "let it run to its end")


@check
def is_test(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """The procedure is this test, it finished, and no level is missing or unlisted."""
    status = evidence.asked("status")
    complete = evidence.test == name and status == "done" and not evidence.absent and not evidence.strays
    missing = (f"{', '.join(evidence.absent)} is missing",) if evidence.absent else ()
    reason = "; ".join((f"the test {evidence.test} ended as {status}", *missing, *evidence.strays))
    return judged(complete, reason, "start it again: it continues where it stopped")
