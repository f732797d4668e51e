"""The minimum report (IETF C.1)."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.metric import Metric
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.report.blocks import Block, Heading, Items
from fastllmload.report.documents import identity
from fastllmload.report.documents.maximum import SWEEPS, below, maximum
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.doubts import all_texts, bound
from fastllmload.report.text.numbers import (
    NOT_KNOWN,
    count,
    milliseconds,
    quantity,
    redaction_notice,
    two_decimals,
)
from fastllmload.report.text.tokens import alone_text, mixture_text, reasoned, token_text

NOT_MEASURED = "not measured"
ELIGIBLE = {
    "throughput": "the system sustained (not saturated, steady) within the test's own objectives",
    "tradeoff": "the system sustained (not saturated, steady) within the test's own objectives",
    "capacity": "passed the test's own criteria",
}
LIMIT_MS = 500.0  # of "Throughput at P99 TTFT < 500ms"


def blocks(subject: Subject) -> Iterator[Block]:
    """Headings and lines of the draft's template, in its order."""
    yield Heading("LLM Benchmark Report (Minimum)", 1)
    yield Heading("System Identification")
    yield Items(
        [
            f"Model: {identity.model(subject)}",
            f"Hardware: {identity.hardware(subject)}",
            f"Software: {identity.software(subject)}",
            f"SUT Boundary: {identity.boundary(subject)}",
        ]
    )
    yield Heading("Test Configuration")
    yield Items(
        [
            f"Workload: {identity.workload(subject)}",
            f"Load Model: {identity.load_model(identity.run_document(subject))}",
            f"Request Count: {request_count(subject)}",
            f"Test Duration: {duration(subject)}",
        ]
    )
    yield Heading("Key Results")
    yield Items(
        [
            *latencies(subject),
            f"Max Throughput: {max_throughput(subject)}",
            f"Throughput at P99 TTFT < 500ms: {constrained(subject)}",
        ]
    )
    yield Heading("Notes")
    yield Items([*notes(subject), f"Guardrails: {identity.guardrails(subject)}"])
    yield Heading("End Report", 1)


def request_count(subject: Subject) -> str:
    """Requests dispatched in the measured phase; for a procedure, in its representative level."""
    if subject.is_procedure and subject.redacted:
        return WITHHELD.value
    return plain(identity.run_document(subject).counts.dispatched)


def plain(value: Number) -> str:
    """A count without thousands separators, as programs read these lines too."""
    return count(value).replace(",", "")


def duration(subject: Subject) -> str:
    document = identity.run_document(subject)
    asked = document.config.load.duration
    found = known(document.duration) if asked is None else asked
    return NOT_KNOWN if found is None else f"{found:.4g} seconds"


def latencies(subject: Subject) -> Iterator[str]:
    document = identity.run_document(subject)
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT")):
        for statistic in ("p50", "p99"):
            yield f"{label} {statistic.upper()}: {latency(document.metric(name), statistic)}"


def population(subject: Subject) -> Iterator[str]:
    """The requests and tokens that TTFT and TPOT describe."""
    document = identity.run_document(subject)
    ttft = document.metric("ttft")
    n = known(ttft.n)
    if n is None and ttft.n is not WITHHELD:
        return
    mixture = mixture_text(document)
    if mixture is not None:
        yield mixture
    those = "the" if n is None else f"the {plain(n)}"
    if not reasoned(document):
        yield f"TTFT is to the first content token; TTFT and TPOT are of {those} ok requests submitted in the window"
        return
    any_token = [
        f"{statistic.upper()} {latency(document.metric('ttft_any'), statistic)}" for statistic in ("p50", "p99")
    ]
    to_any_token = f"to the first token of any kind, reasoning included: {', '.join(any_token)}"
    of_answer = (
        f"TTFT is to the first answer token, TPOT of the answer tokens, of {those} ok requests with an answer submitted"
    )
    yield (
        f"no answer token arrived, so TTFT and TPOT are not available; {to_any_token}"
        if n == 0
        else f"{of_answer} in the window; {to_any_token}"
    )
    yield from (more for more in (token_text(document), alone_text(document)) if more is not None)


def latency(found: Metric, statistic: str) -> str:
    """A figure in ms, or its bounds where requests that did not end can change it."""
    bounds = bound(found, statistic)
    if bounds is None:
        return two_decimals(milliseconds(found, statistic), "ms")
    return bounds if bounds == WITHHELD.value else f"{bounds} ms"


def max_throughput(subject: Subject) -> str:
    """The answer of a search, the best eligible level of a sweep, else the throughput of the only level."""
    if subject.redacted:
        return WITHHELD.value
    found = known(subject.finding("max_output_tok_s"))
    if found is None and subject.procedure is not None and subject.procedure.procedure in SWEEPS:
        top = maximum(subject.procedure)
        return NOT_MEASURED if top is None else two_decimals(top.output_tok_s, "tok/s")
    value = found if found is not None else identity.run_document(subject).metric("output_tok_s").value
    return two_decimals(value, "tok/s")


def constrained(subject: Subject) -> str:
    """The answer of a search with exactly that limit, else the best eligible load of a sweep that meets it; not measured by
    a single run.
    """
    if subject.redacted:
        return WITHHELD.value
    if subject.procedure is None:
        return NOT_MEASURED
    if subject.finding("limits") == {"ttft": LIMIT_MS}:
        found = known(subject.finding("max_output_tok_s"))
        if found is not None:
            return two_decimals(found, "tok/s")
    best = below(subject.procedure, LIMIT_MS)
    several = len(subject.procedure.levels) > 1
    return f"{two_decimals(best, 'tok/s')} (from sweep)" if best is not None and several else NOT_MEASURED


def notes(subject: Subject) -> Iterator[str]:
    if subject.procedure is not None:
        yield from scope(subject, subject.procedure)
    else:
        yield "TTFT, TPOT and Max Throughput are those of the one load level of this run; it did not search for a maximum"
    yield from population(subject)
    yield from all_texts(identity.run_document(subject))
    found = deviations(subject)
    yield from found if found else ["no deviations from the methodology are known"]
    rate = known(identity.run_document(subject).metric("success_rate").value)
    yield "Success rate: n/a" if rate is None else f"Success rate: {quantity(100 * rate)}%"
    redaction = redaction_notice(subject.document.withheld)
    if redaction is not None:
        yield redaction


def scope(subject: Subject, procedure: ProcedureDocument) -> Iterator[str]:
    """The level that the figures of a procedure are of, and the levels that are eligible for the maximum."""
    name, level = procedure.procedure, subject.level
    if level is None:
        yield f"Test {name}: no level finished"
        return
    levels = () if subject.redacted else procedure.levels
    ended = [n for one in levels for many in (one.completed, one.failed) if (n := known(many)) is not None]
    of_all = f", one of {len(levels)} levels with {plain(sum(ended))} requests in all" if len(levels) > 1 else ""
    yield (
        f"Test {name}; Load Model, Request Count, Test Duration, TTFT and TPOT are those of {level_name(level)}{of_all}"
    )
    if subject.redacted:
        return
    if name not in SWEEPS:
        yield "Max Throughput is that of this level; the test did not search for a maximum"
    elif maximum(procedure) is not None or known(subject.finding("max_output_tok_s")) is not None:
        yield f"throughputs are of levels that {ELIGIBLE[name]}"
    else:
        yield f"Max Throughput is not available: no level is known that {ELIGIBLE[name]}"


def level_name(level: Subject) -> str:
    return (
        "the level at the maximum" if level.redacted else f"the level in {level.folder.parent.name}/{level.folder.name}"
    )
