"""asiai's block (ASIAI-M1 to M8): median tok/s, mean and pooled spread, power, throttling, metadata.

Prompt types are the run's request classes. An Ollama server's own figures come first; all others are the client's,
counted from t_submit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fastllmload.documents.fields import WITHHELD, known
from fastllmload.documents.metric import Metric, WithUnfinished
from fastllmload.documents.redaction import OF_LOAD
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.telemetry import TelemetryFacts
from fastllmload.errors import RunFolderError
from fastllmload.metrics.levels.asiai import PooledSpread, ProtocolBlock, from_rows, protocol
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records.integrity import ROWS
from fastllmload.records.run import RowNames
from fastllmload.report.blocks import Block, Facts, Heading, Paragraph, Table
from fastllmload.report.documents import identity
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import headlines
from fastllmload.report.text.doubts import bound, doubt_texts
from fastllmload.report.text.numbers import NOT_KNOWN, count, quantity, some
from fastllmload.report.text.tokens import reasoned

LEAST_RUNS = 3  # per prompt type, required by asiai's protocol
SERVER_DURATIONS = (
    ("server_ttft", "TTFT", "prompt_eval_duration"),
    ("server_eval_duration", "Generation", "eval_duration"),
    ("server_total_duration", "Total duration", "total_duration"),
)


def blocks(subject: Subject) -> Iterator[Block]:
    document = identity.run_document(subject)
    found = figures(subject)
    yield from map(Paragraph, [*map(str, headlines(subject)), *doubt_texts(document)])
    if document.metric("e2e").unfinished_bounds:
        cut = document.metric("e2e").with_unfinished or WithUnfinished()
        yield Paragraph(
            f"{count(cut.n_unfinished)} of {count(cut.n)} requests did not end: figures with >= are lower bounds, which "
            "count each of them with the time it had waited; all other figures, also those of prompt types, are of the "
            "requests that did end"
        )
    yield from map(Paragraph, reasoning_note(document))
    yield Paragraph(f"asiai bench: {identity.model(subject)}, engine {identity.software(subject)}")
    if some(document.metric("server_gen_tok_s").n):
        yield Heading("Reported by the server")
        yield Facts(list(server_facts(document)))
        yield Heading("Measured by the client")
    yield Facts([*rate_facts(found, document), *duration_facts(found, document), *run_facts(found), *metadata(subject)])
    yield by_type(found, hidden=counts_withheld(document))


def reasoning_note(document: RunDocument) -> list[str]:
    """asiai does not define reasoning; a rate of all its tokens needs the time from the first of them."""
    if not reasoned(document):
        return []
    return [
        "answers reason: TTFT is to the first answer token, the median to the first token of any kind is "
        f"{quantity(document.metric('ttft_any').p50)} ms; tok/s and Generation are of all tokens, from the first of any kind"
    ]


def duration_facts(found: ProtocolBlock, document: RunDocument) -> Iterator[tuple[str, str]]:
    """Medians and means in ms, or their bounds where requests that did not end can change them."""
    for times, label, same in (
        (found.ttft_ms, "TTFT", "ttft"),
        (found.gen_duration_ms, "Generation", None),
        (found.total_duration_ms, "Total duration", "e2e"),
    ):
        bounded = Metric() if same is None else document.metric(same)
        shown = ((bound(bounded, "p50"), times.median), (bound(bounded, "mean"), times.mean))
        median, mean = (bounds or quantity(figure) for bounds, figure in shown)
        yield label, f"{median} ms median, {mean} ms mean"


def run_facts(found: ProtocolBlock) -> Iterator[tuple[str, str]]:
    yield "Tokens", f"{count(found.tokens)} in {count(found.n_runs)} runs, {count(found.n_failed)} failed"
    yield "Power", _power(found)
    yield "Thermal", _thermal(found)


def figures(subject: Subject) -> ProtocolBlock:
    """The numbers, from the run's rows."""
    run, document = subject.run, identity.run_document(subject)
    damage = run.lost(ROWS)
    if damage is not None:
        raise RunFolderError("run-file-damaged", f"{damage}; all figures of --as asiai are computed from it")
    chosen = populations(run, window_of(run)).submitted
    rows, output, names = run.rows[chosen], count_tokens(run).output[chosen], RowNames(run.document)
    classes = rows["request_class"]
    labels = names.class_names(int(classes.max(initial=0)))
    several = len(np.unique(classes)) > 1
    groups = {
        str(labels[number_]) if several else "all": from_rows(rows[classes == number_], output[classes == number_])
        for number_ in np.unique(classes).tolist()
    }
    found = protocol(groups, power_w=known(document.metric("power_w").value), throttled=throttled(document))
    return without_counts(found) if counts_withheld(document) else found


def counts_withheld(document: RunDocument) -> bool:
    return document.withheld == OF_LOAD


def without_counts(found: ProtocolBlock) -> ProtocolBlock:
    """Without numbers of tokens and runs: with the duration, which is public, they give the throughput."""
    return replace(
        found,
        tokens=WITHHELD if found.tokens else 0,
        n_runs=WITHHELD if found.n_runs else 0,
        n_failed=WITHHELD if found.n_failed else 0,
        n_degenerate=WITHHELD if found.n_degenerate else 0,
    )


def throttled(document: RunDocument) -> bool | None:
    """Whether a sensor reported that GPUs or this host were throttled in the window; None without such a sensor."""
    telemetry = document.telemetry or TelemetryFacts()
    names = [series.name or "" for series in telemetry.series]
    if not any(name.endswith((".throttle_reasons", ".thermal_throttles")) for name in names):
        return None
    return any("throttled" in warning or "slowed down" in warning for warning in telemetry.warnings)


def rate_facts(found: ProtocolBlock, document: RunDocument) -> Iterator[tuple[str, str]]:
    rate = found.gen_tok_s
    label = rate.stability or "no spread: fewer than 2 runs of each prompt type"
    yield "tok/s", f"{quantity(rate.median)} median, {quantity(rate.mean)} mean"
    yield "Spread", f"\N{PLUS-MINUS SIGN} {quantity(rate.pooled_std)} (pooled), CV {_cv(rate)}, {label}"
    if found.n_degenerate:
        yield "Left out", f"{count(found.n_degenerate)} runs below 10 ms of generation"
    fewest = min((len(each.runs_tok_s) for each in found.by_prompt_type.values()), default=0)
    if fewest < LEAST_RUNS:
        runs = WITHHELD.value if counts_withheld(document) else fewest
        yield "Too few runs", f"a prompt type has {runs} runs, the protocol requires {LEAST_RUNS}"


def _cv(rate: PooledSpread) -> str:
    return NOT_KNOWN if rate.cv_percent is None else f"{rate.cv_percent:.1f} %"


def _power(found: ProtocolBlock) -> str:
    if found.power_w is None:
        return "not measured (no sensor)"
    return f"{quantity(found.power_w)} W, {quantity(found.tok_s_per_w)} tok/s per W"


def _thermal(found: ProtocolBlock) -> str:
    if found.throttled is None:
        return "not measured"
    return "WARNING: throttled during the runs" if found.throttled else "not throttled"


def server_facts(document: RunDocument) -> Iterator[tuple[str, str]]:
    """The figures that an Ollama server reports, from which asiai takes these metrics (ASIAI-M1 to M5); never pooled with
    the client's.
    """
    rate = document.metric("server_gen_tok_s")
    yield "tok/s", f"{quantity(rate.p50)} median, {quantity(rate.mean)} mean, eval_count / eval_duration"
    for name, label, field in SERVER_DURATIONS:
        times = document.metric(name)
        yield label, f"{quantity(times.p50)} ms median, {quantity(times.mean)} ms mean, {field}"


def metadata(subject: Subject) -> Iterator[tuple[str, str]]:
    declared, environment = identity.declared(subject), identity.run_document(subject).environment
    yield "engine_version", identity.software(subject)
    yield "model_format", declared.get("sut.model.format", identity.UNDECLARED)
    yield "model_quantization", declared.get("sut.model.quantization", identity.UNDECLARED)
    yield "hw_chip", declared.get("sut.hardware.accelerator") or environment.cpu or NOT_KNOWN
    yield "os_version", declared.get("software.os") or environment.kernel or NOT_KNOWN


def by_type(found: ProtocolBlock, hidden: bool) -> Table:
    """One row per prompt type; *hidden*: without counts."""
    rows = []
    for name, each in found.by_prompt_type.items():
        rate, failed = each.gen_tok_s, each.runs_tok_s.count(None)
        rows.append(
            [
                name,
                WITHHELD if hidden else len(each.runs_tok_s),
                WITHHELD if hidden and failed else failed,
                rate.median,
                rate.mean,
                rate.pooled_std,
                each.ttft_ms.median,
            ]
        )
    columns = ["Prompt type", "Runs", "Failed", "tok/s median", "Mean", "Std dev", "TTFT median (ms)"]
    return Table("", columns, rows)
