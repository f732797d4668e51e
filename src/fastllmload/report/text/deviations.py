"""Deviations from the methodology, as sentences, and the headlines that every report repeats."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import WITHHELD, known
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.documents.run import RunDocument
from fastllmload.report.documents.identity import simulated
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.numbers import SAMPLES_NEEDED, count, has_too_few_samples, percent, some
from fastllmload.report.text.tokens import has_tokens
from fastllmload.report.text.traffic import unstreamed_answers
from fastllmload.report.text.verdict import QUICK, SIMULATED, Headline, incomplete, special_states


def headlines(subject: Subject) -> list[Headline]:
    """At the top of every form of a report, also the shortest."""
    found = [SIMULATED] if simulated(subject) else []
    if subject.procedure is not None and subject.procedure.quick:
        found.append(QUICK)
    found += [*incomplete(subject.document), *special_states(subject.run_document)]
    withheld = subject.document.withheld
    return found if withheld is None else [*found, Headline("withheld (IETF 7.1)", withheld)]


def deviations(subject: Subject) -> list[str]:
    """All deviations without duplicates: from the compliance verdict, the document and the figures of the run."""
    judged, procedure, run = subject.document.compliance, subject.procedure, subject.run_document
    found = [] if judged is None else list(judged.deviations)
    if procedure is not None:
        found += _of_procedure(procedure)
        repeated = [text for text in found if text.startswith("--quick")][1:]  # one reason is enough
        found = [text for text in found if text not in repeated]
    elif run is not None:
        found += _of_warmup(run)
    if run is not None:
        found += _of_run(run)
    if not simulated(subject):
        return list(dict.fromkeys(found))
    return [str(SIMULATED), *dict.fromkeys(text for text in found if "simulated engine" not in text)]


def _of_procedure(document: ProcedureDocument) -> Iterator[str]:
    yield from map(str, incomplete(document))
    if document.quick and not any("quick" in text for text in document.deviations):
        yield "quick: durations are scaled down, so the report does not conform"
    yield from document.deviations


def _of_warmup(document: RunDocument) -> Iterator[str]:
    """For a run only; a procedure warms up before its levels and reports it itself."""
    deviation = document.plan.warmup.deviation
    if deviation is not None:
        yield deviation
    elif document.phase("warmup") is None:
        yield "no warm-up phase (IETF 4.5)"


def _of_run(document: RunDocument) -> Iterator[str]:
    yield from map(str, incomplete(document))
    yield from document.plan.deviations
    certificate = document.certificate or Certificate()
    if certificate.verdict is not None and certificate.verdict != "valid":
        yield f"the client's own measurement is {certificate.verdict}: see the reasons of its certificate"
    if certificate.generator_limited and document.compliance is None:
        yield "the client may have been the limit: this run does not show saturation of the target"
    yield from _of_tokens(document)
    yield from _few_samples(document)
    rate = known(document.metric("success_rate").value)
    if rate is not None and rate < 1.0:
        yield f"{percent(rate)} of the requests succeeded; latencies do not include those that failed"


def _of_tokens(document: RunDocument) -> Iterator[str]:
    estimated = document.counts.output_tokens_source.get("estimate")
    if known(estimated) or estimated is WITHHELD:
        yield f"{count(estimated)} output token counts are estimated from bytes"
    unstreamed = unstreamed_answers(document)
    if unstreamed:
        which = "answers" if unstreamed == "all" else unstreamed
        # The wording of compliance.deviations, whose sentence would else be repeated
        yield f"{which} were not streamed: there is no time to first token"  # prose: allow, shared wording
    option = document.metric("share_single").itl_option
    if option in ("A", "B") and any(some(document.metric(name).n) for name in ("tbc", "itl_b")):
        yield f"ITL option {option} (IETF B.2.1): chunks carry several tokens"


def _few_samples(document: RunDocument) -> Iterator[str]:
    found = document.metric("ttft" if has_tokens(document) else "e2e")
    which = "TTFT and TPOT" if has_tokens(document) else "E2E"
    if has_too_few_samples(found, "p99", SAMPLES_NEEDED["p99"]):
        yield f"P99 of {which} rest on {count(found.n)} samples, {SAMPLES_NEEDED['p99']:,} are needed"
