"""What a reader must know before the numbers: deviations from the methodology, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report.documents.identity import run_document, simulated
from fastllmload.report.documents.results import metric
from fastllmload.report.documents.subject import Subject
from fastllmload.report.terminal.summary import SAMPLES_NEEDED, part
from fastllmload.report.text.numbers import WITHHELD, count, number, percent, rests_on_too_few, some
from fastllmload.report.text.traffic import came_whole

SIMULATED = "SIMULATED ENGINE: the target was fastllmload's own simulator, not a server"

QUICK = "QUICK: durations and counts are scaled down; this does not conform to the draft"


def loud(subject: Subject) -> list[str]:
    """What stands above every form of a report, whatever else it leaves out."""
    document = subject.document
    status = document.get("status")
    found = [SIMULATED] if simulated(subject) else []
    if document.get("quick"):
        found.append(QUICK)
    if status != "done":
        found.append(f"INCOMPLETE ({status or 'no status'}): what was measured before the end")
    return found


def deviations(subject: Subject) -> list[str]:
    """Each once: those that compliance names, those of the document, and what the run itself shows."""
    document = subject.document
    found = [str(text) for text in part(document, "compliance", "deviations") or ()]
    if subject.is_procedure:
        found += _of_procedure(document)
        again = [text for text in found if text.startswith("--quick")][1:]  # one reason is enough
        found = [text for text in found if text not in again]
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
    """Of a run; a procedure warms up before its levels, and says so itself."""
    said = part(document, "plan", "warmup", "deviation")
    if said is not None:
        yield str(said)
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
        yield f"{percent(rate)} of the requests succeeded; those that failed are in no latency"


def _of_tokens(document: Mapping[str, Any]) -> Iterator[str]:
    told = part(document, "counts", "output_tokens_source", "estimate")
    estimated = number(told)
    if estimated or told == WITHHELD:
        yield f"{count(told)} output token counts are estimated from bytes"
    whole = came_whole(document)
    if whole:
        yield f"{'answers' if whole == 'all' else whole} were not streamed: there is no time to first token"
    option = part(document, "metrics", "share_single", "itl_option")
    if option in ("A", "B") and any(some(part(document, "metrics", name, "n")) for name in ("tbc", "itl_b")):
        yield f"ITL option {option} (IETF B.2.1): chunks carry several tokens"


def _few_samples(document: Mapping[str, Any]) -> Iterator[str]:
    found = metric(document, "ttft")
    if rests_on_too_few(found, "p99", SAMPLES_NEEDED["p99"]):
        yield f"P99 of TTFT and TPOT rest on {count(found.get('n'))} samples, {SAMPLES_NEEDED['p99']:,} are needed"
