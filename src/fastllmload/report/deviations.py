"""What a reader must know before the numbers: deviations from the methodology, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report.figures import count, number, percent
from fastllmload.report.identity import run_document, simulated
from fastllmload.report.results import metric
from fastllmload.report.subject import Subject
from fastllmload.report.summary import SAMPLES_NEEDED, part

SIMULATED = "SIMULATED ENGINE: the target was fastllmload's own simulator, not a server"


def deviations(subject: Subject) -> list[str]:
    """Each once: those that compliance names, those of the document, and what the run itself shows."""
    document = subject.document
    found = [SIMULATED] if simulated(subject) else []
    found += [str(text) for text in part(document, "compliance", "deviations") or ()]
    if subject.is_procedure:
        found += _of_procedure(document)
    found += list(_of_run(run_document(subject)))
    return list(dict.fromkeys(found))


def _of_procedure(document: Mapping[str, Any]) -> Iterator[str]:
    if document.get("status") != "done":
        yield f"INCOMPLETE ({document.get('status') or 'no status'}): what was found before the procedure ended"
    if document.get("quick"):
        yield "quick: durations are scaled down, so the report does not conform"
    yield from (str(text) for text in document.get("deviations") or ())


def _of_run(document: Mapping[str, Any]) -> Iterator[str]:
    if not document:
        return
    if document.get("status") != "done":
        yield f"INCOMPLETE ({document.get('status') or 'no status'}): what was measured before the run ended"
    warmup = part(document, "plan", "warmup", "deviation")
    if warmup is not None:
        yield str(warmup)
    yield from (str(text) for text in part(document, "plan", "deviations") or ())
    if not any(phase.get("name") == "warmup" for phase in document.get("phases") or ()):
        yield "no warm-up phase (IETF 4.5)"
    verdict = part(document, "certificate", "verdict")
    if verdict is not None and verdict != "valid":
        yield f"the client's own measurement is {verdict}: see the reasons of its certificate"
    yield from _of_tokens(document)
    yield from _few_samples(document)
    rate = number(metric(document, "success_rate").get("value"))
    if rate is not None and rate < 1.0:
        yield f"{percent(rate)} of the requests succeeded; those that failed are in no latency"


def _of_tokens(document: Mapping[str, Any]) -> Iterator[str]:
    estimated = number(part(document, "counts", "output_tokens_source", "estimate"))
    if estimated:
        yield f"{count(estimated)} output token counts are estimated from bytes"
    if part(document, "plan", "description", "streaming") is False:
        yield "answers were not streamed: there is no time to first token"
    option = part(document, "metrics", "share_single", "itl_option")
    if option in ("A", "B"):
        yield f"ITL option {option} (IETF B.2.1): chunks carry several tokens"


def _few_samples(document: Mapping[str, Any]) -> Iterator[str]:
    samples = number(metric(document, "ttft").get("n"))
    if samples is not None and samples < SAMPLES_NEEDED["p99"]:
        yield f"P99 of TTFT and TPOT rest on {count(samples)} samples, {SAMPLES_NEEDED['p99']:,} are needed"
