"""Deviations from the methodology, as sentences, and the headlines that every report repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report.documents.identity import run_document, simulated
from fastllmload.report.documents.results import metric
from fastllmload.report.documents.subject import Subject
from fastllmload.report.terminal.summary import SAMPLES_NEEDED, part
from fastllmload.report.text.numbers import WITHHELD, count, has_too_few_samples, number, percent, some
from fastllmload.report.text.traffic import unstreamed_answers

SIMULATED = "SIMULATED ENGINE: the target was fastllmload's own simulator, not a server"

QUICK = "QUICK: durations and counts are scaled down; this does not conform to the draft"


def headlines(subject: Subject) -> list[str]:
    """The headlines at the top of every form of a report, also the shortest."""
    document = subject.document
    status = document.get("status")
    found = [SIMULATED] if simulated(subject) else []
    if document.get("quick"):
        found.append(QUICK)
    if status != "done":
        found.append(f"INCOMPLETE ({status or 'no status'}): what was measured before the end")
    return found


def deviations(subject: Subject) -> list[str]:
    """All deviations without duplicates: from the compliance verdict, the document and the figures of the run."""
    document = subject.document
    found = [str(text) for text in part(document, "compliance", "deviations") or ()]
    if subject.is_procedure:
        found += _of_procedure(document)
        repeated = [text for text in found if text.startswith("--quick")][1:]  # one reason is enough
        found = [text for text in found if text not in repeated]
    else:
        found += _of_warmup(document)
    found += list(_of_run(run_document(subject)))
    if not simulated(subject):
        return list(dict.fromkeys(found))
    return [SIMULATED, *dict.fromkeys(text for text in found if "simulated engine" not in text)]


def _of_procedure(document: Mapping[str, Any]) -> Iterator[str]:
    if document.get("status") != "done":
        yield f"INCOMPLETE ({document.get('status') or 'no status'}): what was found before the procedure ended"
    named = [str(text) for text in document.get("deviations") or ()]
    if document.get("quick") and not any("quick" in text for text in named):
        yield "quick: durations are scaled down, so the report does not conform"
    yield from named


def _of_warmup(document: Mapping[str, Any]) -> Iterator[str]:
    """For a run only; a procedure warms up before its levels and reports it itself."""
    deviation = part(document, "plan", "warmup", "deviation")
    if deviation is not None:
        yield str(deviation)
    elif not any(phase.get("name") == "warmup" for phase in document.get("phases") or ()):
        yield "no warm-up phase (IETF 4.5)"


def _of_run(document: Mapping[str, Any]) -> Iterator[str]:
    if not document:
        return
    if document.get("status") != "done":
        yield f"INCOMPLETE ({document.get('status') or 'no status'}): what was measured before the run ended"
    yield from (str(text) for text in part(document, "plan", "deviations") or ())
    verdict = part(document, "certificate", "verdict")
    if verdict is not None and verdict != "valid":
        yield f"the client's own measurement is {verdict}: see the reasons of its certificate"
    yield from _of_tokens(document)
    yield from _few_samples(document)
    rate = number(metric(document, "success_rate").get("value"))
    if rate is not None and rate < 1.0:
        yield f"{percent(rate)} of the requests succeeded; latencies do not include those that failed"


def _of_tokens(document: Mapping[str, Any]) -> Iterator[str]:
    estimated = part(document, "counts", "output_tokens_source", "estimate")
    if number(estimated) or estimated == WITHHELD:
        yield f"{count(estimated)} output token counts are estimated from bytes"
    unstreamed = unstreamed_answers(document)
    if unstreamed:
        which = "answers" if unstreamed == "all" else unstreamed
        # The wording of compliance.deviations, whose sentence would else be repeated
        yield f"{which} were not streamed: there is no time to first token"  # prose: allow, shared wording
    option = part(document, "metrics", "share_single", "itl_option")
    if option in ("A", "B") and any(some(part(document, "metrics", name, "n")) for name in ("tbc", "itl_b")):
        yield f"ITL option {option} (IETF B.2.1): chunks carry several tokens"


def _few_samples(document: Mapping[str, Any]) -> Iterator[str]:
    found = metric(document, "ttft")
    if has_too_few_samples(found, "p99", SAMPLES_NEEDED["p99"]):
        yield f"P99 of TTFT and TPOT rest on {count(found.get('n'))} samples, {SAMPLES_NEEDED['p99']:,} are needed"
