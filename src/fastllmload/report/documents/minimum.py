"""Renders the minimum report (IETF C.1), line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastllmload.report.documents import identity
from fastllmload.report.documents.maximum import SWEEPS, below, maximum
from fastllmload.report.documents.results import metric, milliseconds
from fastllmload.report.documents.subject import Subject
from fastllmload.report.redaction.document import notice
from fastllmload.report.terminal.outlet import one_screen_line
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.doubts import all_texts, bound
from fastllmload.report.text.numbers import NOT_KNOWN, WITHHELD, count, number, quantity
from fastllmload.report.text.reasoning import alone_text, reasoned, token_text

NOT_MEASURED = "not measured"
ELIGIBLE = {
    "throughput": "the system sustained (not saturated, steady) within the test's own objectives",
    "tradeoff": "the system sustained (not saturated, steady) within the test's own objectives",
    "capacity": "passed the test's own criteria",
}
LIMIT_MS = 500.0  # of "Throughput at P99 TTFT < 500ms"


def render(subject: Subject) -> str:
    """The complete report."""
    return "\n".join(map(one_screen_line, lines(subject))) + "\n"


def lines(subject: Subject) -> Iterator[str]:
    yield "=== LLM Benchmark Report (Minimum) ==="
    yield "System Identification:"
    yield f"- Model: {identity.model(subject)}"
    yield f"- Hardware: {identity.hardware(subject)}"
    yield f"- Software: {identity.software(subject)}"
    yield f"- SUT Boundary: {identity.boundary(subject)}"
    yield "Test Configuration:"
    yield f"- Workload: {identity.workload(subject)}"
    yield f"- Load Model: {identity.load_model(identity.run_document(subject))}"
    yield f"- Request Count: {request_count(subject)}"
    yield f"- Test Duration: {duration(subject)}"
    yield "Key Results:"
    yield from latencies(subject)
    yield f"- Max Throughput: {max_throughput(subject)}"
    yield f"- Throughput at P99 TTFT < 500ms: {constrained(subject)}"
    yield "Notes:"
    yield from (f"- {note}" for note in notes(subject))
    yield f"- Guardrails: {identity.guardrails(subject)}"
    yield "=== End Report ==="


def request_count(subject: Subject) -> str:
    """Requests dispatched in the measured phase; for a procedure, in its representative level."""
    if subject.is_procedure and subject.redacted:
        return WITHHELD
    return plain((identity.run_document(subject).get("counts") or {}).get("dispatched"))


def plain(value: object) -> str:
    """A count without thousands separators, as programs read these lines too."""
    return count(value).replace(",", "")


def duration(subject: Subject) -> str:
    document = identity.run_document(subject)
    asked = ((document.get("config") or {}).get("load") or {}).get("duration")
    found = number(asked) if number(asked) is not None else number(document.get("duration"))
    return NOT_KNOWN if found is None else f"{found:.4g} seconds"


def latencies(subject: Subject) -> Iterator[str]:
    document = identity.run_document(subject)
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT")):
        for statistic in ("p50", "p99"):
            found = metric(document, name)
            value = bound_in(found, statistic, "ms") or with_unit(milliseconds(found, statistic), "ms")
            yield f"- {label} {statistic.upper()}: {value}"


def population(subject: Subject) -> Iterator[str]:
    """The requests and tokens that TTFT and TPOT describe."""
    document = identity.run_document(subject)
    ttft = metric(document, "ttft")
    n = number(ttft.get("n"))
    if n is None and ttft.get("n") != WITHHELD:
        return
    those = "the" if n is None else f"the {plain(n)}"
    if not reasoned(document):
        yield f"TTFT is to the first content token; TTFT and TPOT are of {those} ok requests submitted in the window"
        return
    any_token = [
        f"{statistic.upper()} {bound_in(found, statistic, 'ms') or with_unit(milliseconds(found, statistic), 'ms')}"
        for found in (metric(document, "ttft_any"),)
        for statistic in ("p50", "p99")
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
    yield from (text for text in (token_text(document), alone_text(document)) if text is not None)


def bound_in(found: Mapping[str, object], statistic: str, unit: str) -> str | None:
    """The bounds of a figure that requests which did not end can change, with *unit*; None where none can."""
    known = bound(found, statistic)
    return known if known is None or known == WITHHELD else f"{known} {unit}"


def with_unit(value: object, unit: str) -> str:
    found = number(value)
    return (WITHHELD if value == WITHHELD else NOT_KNOWN) if found is None else f"{found:.2f} {unit}"


def max_throughput(subject: Subject) -> str:
    """The answer of a search, the best eligible level of a sweep, else the throughput of the only level."""
    if subject.redacted:
        return WITHHELD
    found = number(subject.finding("max_output_tok_s"))
    if found is None and subject.document.get("procedure") in SWEEPS:
        top = maximum(subject.document)
        return NOT_MEASURED if top is None else with_unit(top.get("output_tok_s"), "tok/s")
    value = found if found is not None else metric(identity.run_document(subject), "output_tok_s").get("value")
    return with_unit(value, "tok/s")


def constrained(subject: Subject) -> str:
    """The answer of a search with exactly that limit, else the best eligible load of a sweep that meets it; not measured by
    a single run.
    """
    if subject.redacted:
        return WITHHELD
    limits = subject.finding("limits")
    if isinstance(limits, Mapping) and number(limits.get("ttft")) == LIMIT_MS and len(limits) == 1:
        found = number(subject.finding("max_output_tok_s"))
        if found is not None:
            return with_unit(found, "tok/s")
    best = below(subject.document, LIMIT_MS)
    several = len(subject.document.get("levels") or ()) > 1
    return f"{with_unit(best, 'tok/s')} (from sweep)" if best is not None and several else NOT_MEASURED


def notes(subject: Subject) -> Iterator[str]:
    if subject.is_procedure:
        yield from scope(subject)
    else:
        yield "TTFT, TPOT and Max Throughput are those of the one load level of this run; it did not search for a maximum"
    yield from population(subject)
    yield from all_texts(identity.run_document(subject))
    found = deviations(subject)
    yield from found if found else ["no deviations from the methodology are known"]
    yield f"Success rate: {quantity(success(subject))}%" if success(subject) is not None else "Success rate: n/a"
    redaction = notice(subject.document)
    if redaction is not None:
        yield redaction


def scope(subject: Subject) -> Iterator[str]:
    """The level that the figures of a procedure are of, and the levels that are eligible for the maximum."""
    name, level = subject.document.get("procedure"), subject.level
    if level is None:
        yield f"Test {name}: no level finished"
        return
    levels = () if subject.redacted else subject.document.get("levels") or ()
    ended = [n for one in levels for key in ("completed", "failed") if (n := number(one.get(key))) is not None]
    of_all = f", one of {len(levels)} levels with {plain(sum(ended))} requests in all" if len(levels) > 1 else ""
    yield (
        f"Test {name}; Load Model, Request Count, Test Duration, TTFT and TPOT are those of {level_name(level)}{of_all}"
    )
    if subject.redacted:
        return
    if name not in SWEEPS:
        yield "Max Throughput is that of this level; the test did not search for a maximum"
    elif maximum(subject.document) is not None or number(subject.finding("max_output_tok_s")) is not None:
        yield f"throughputs are of levels that {ELIGIBLE[name]}"
    else:
        yield f"Max Throughput is not available: no level is known that {ELIGIBLE[name]}"


def level_name(level: Subject) -> str:
    return (
        "the level at the maximum" if level.redacted else f"the level in {level.folder.parent.name}/{level.folder.name}"
    )


def success(subject: Subject) -> float | None:
    rate = number(metric(identity.run_document(subject), "success_rate").get("value"))
    return None if rate is None else 100 * rate
