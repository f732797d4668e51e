"""The methodology's minimum report (IETF C.1), line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report import identity
from fastllmload.report.deviations import deviations
from fastllmload.report.figures import NOT_KNOWN, WITHHELD, count, number, quantity
from fastllmload.report.results import metric, milliseconds
from fastllmload.report.subject import Subject, client_limited

NOT_MEASURED = "not measured"
SWEEPS = ("throughput", "tradeoff", "capacity")  # tests whose levels differ in nothing but their load
LIMIT_MS = 500.0  # of "Throughput at P99 TTFT < 500ms"


def render(subject: Subject) -> str:
    """The whole report."""
    return "\n".join(lines(subject)) + "\n"


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
    """Dispatched in the measured phase, of a procedure in all its levels."""
    if not subject.is_procedure:
        return plain((subject.document.get("counts") or {}).get("dispatched"))
    if subject.redacted:
        return WITHHELD
    ended = [level.get(name) for level in subject.document.get("levels") or () for name in ("completed", "failed")]
    known = [n for value in ended if (n := number(value)) is not None]
    one = (identity.run_document(subject).get("counts") or {}).get("dispatched")
    return plain(sum(known) if known else one)


def plain(value: object) -> str:
    """A number without thousands apart: these lines are read by programs too."""
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
            value = milliseconds(metric(document, name), statistic)
            yield f"- {label} {statistic.upper()}: {with_unit(value, 'ms')}"


def with_unit(value: object, unit: str) -> str:
    found = number(value)
    return (WITHHELD if value == WITHHELD else NOT_KNOWN) if found is None else f"{found:.2f} {unit}"


def max_throughput(subject: Subject) -> str:
    """What a search found, else that of the one level there is."""
    if subject.redacted:
        return WITHHELD
    found = number(subject.finding("max_output_tok_s"))
    value = found if found is not None else metric(identity.run_document(subject), "output_tok_s").get("value")
    return with_unit(value, "tok/s")


def constrained(subject: Subject) -> str:
    """A search under that very limit, else the best load of a sweep that meets it and that the system sustained; a single
    run measured neither. Of a load with several runs the median counts (the lower of two), as for the maximum.
    """
    if subject.redacted:
        return WITHHELD
    limits = subject.finding("limits")
    if isinstance(limits, Mapping) and number(limits.get("ttft")) == LIMIT_MS and len(limits) == 1:
        return with_unit(subject.finding("max_output_tok_s"), "tok/s")
    levels = subject.document.get("levels") or () if subject.document.get("procedure") in SWEEPS else ()
    met: dict[Any, list[float]] = {}
    for each in levels:
        if (throughput := _meeting(each)) is not None:
            met.setdefault(each.get("load"), []).append(throughput)
    best = max((sorted(runs)[(len(runs) - 1) // 2] for runs in met.values()), default=None)
    return f"{with_unit(best, 'tok/s')} (from sweep)" if best is not None and len(levels) > 1 else NOT_MEASURED


def _meeting(level: Mapping[str, Any]) -> float | None:
    """Output tokens/s of a level below the limit that the system sustained and on which the client was no limit."""
    p99 = number(level.get("ttft_p99_ms"))
    sound = p99 is not None and p99 < LIMIT_MS and level.get("saturated") is not True and not client_limited(level)
    return number(level.get("output_tok_s")) if sound else None


def notes(subject: Subject) -> Iterator[str]:
    if subject.is_procedure:
        test = f"Test {subject.document.get('procedure')}"
        level = subject.level
        yield (
            f"{test}: no level is finished"
            if level is None
            else f"{test}; TTFT and TPOT are those of {level_name(level)}"
        )
    else:
        yield "TTFT, TPOT and Max Throughput are those of the one load level of this run; no maximum was searched for"
    found = deviations(subject)
    yield from found if found else ["no deviations from the methodology are known"]
    yield f"Success rate: {quantity(success(subject))}%" if success(subject) is not None else "Success rate: n/a"
    if subject.redacted:
        yield "withheld: capacity limits and memory thresholds (IETF 7.1)"


def level_name(level: Subject) -> str:
    return (
        "the level at the maximum" if level.redacted else f"the level in {level.folder.parent.name}/{level.folder.name}"
    )


def success(subject: Subject) -> float | None:
    rate = number(metric(identity.run_document(subject), "success_rate").get("value"))
    return None if rate is None else 100 * rate
