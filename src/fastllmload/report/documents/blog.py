"""Renders the table of the blog "LLM Inference Performance Benchmarking from Scratch": Mean, Min, Max, P99, P90, P75.

Metrics are defined as in the blog (docs/metric-definitions.md): latencies start just before the request, rates are over
the makespan.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.report.blocks import Block, Paragraph, Table
from fastllmload.report.documents import identity
from fastllmload.report.documents.results import success_note
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import headlines
from fastllmload.report.text.doubts import all_texts, bound
from fastllmload.report.text.numbers import count, two_decimals
from fastllmload.report.text.tokens import reasoned

TITLE = "Benchmark Statistics"
STATISTICS = {"mean": "Mean", "min": "Min", "max": "Max", "p99": "P99", "p90": "P90", "p75": "P75"}
ROWS = {
    "ttft_dispatch": "Time to First Token (ms)",
    "e2e_dispatch": "Request Latency (ms)",
    "tpot": "Inter-Token Latency (ms)",
    "request_tok_s_dispatch": "Per-Request Output Token Throughput (tokens/s)",
    "input_tokens": "Input Sequence Length (tokens)",
    "output_tokens": "Output Sequence Length (tokens)",
    "output_tok_s_makespan": "Output Token Throughput (tokens/s)",
    "req_s_makespan": "Request Throughput (req/s)",
}
NOTES = (
    "Inter-Token Latency is one mean per request here (our tpot)",
    "input and output lengths are the server's counts where it gives them",
)


def blocks(subject: Subject) -> Iterator[Block]:
    """The headlines and the table."""
    document = identity.run_document(subject)
    yield from (Paragraph(str(headline)) for headline in headlines(subject))
    rows = [[label, *(cell(found, key) for key in STATISTICS)] for label, found in figures(subject, document)]
    notes = [
        *success_note(document),
        populations_note(document),
        *NOTES,
        *reasoning_note(document),
        *all_texts(document),
    ]
    yield Table(TITLE, ["Metric", *STATISTICS.values()], rows, notes)


def populations_note(document: RunDocument) -> str:
    """The populations of latencies and throughputs, which differ because the blog has no measurement window."""
    ok = count(document.counts.ok)
    return (
        "latencies and lengths are of these n requests; throughputs are single values, of all "
        f"{ok} ok requests of the measure phase over its makespan, the ramp included"
    )


def reasoning_note(document: RunDocument) -> list[str]:
    """The blog does not define reasoning; its first token is the first answer token here."""
    if not reasoned(document):
        return []
    first, pause = (two_decimals(document.metric(name).mean) for name in ("ttft_any", "tpot_any"))
    return [
        "answers reason: Time to First Token and Inter-Token Latency are of the answer; the mean from the last byte sent "
        f"to the first token of any kind is {first} ms, the mean gap of all tokens {pause} ms"
    ]


def figures(subject: Subject, document: RunDocument) -> Iterator[tuple[str, Metric]]:
    """(label, figures) of each row."""
    lengths = token_lengths(subject)
    for name, label in ROWS.items():
        yield label, lengths.get(name) or document.metric(name)


def token_lengths(subject: Subject) -> dict[str, Metric]:
    """Input and output tokens of the requests whose latencies are reported."""
    run = subject.run.intact
    chosen = populations(run, window_of(run)).latency
    tokens = count_tokens(run)
    return {
        "input_tokens": distribution(tokens.input[chosen].astype(np.float64), "tokens"),
        "output_tokens": distribution(tokens.output[chosen].astype(np.float64), "tokens"),
    }


def cell(found: Metric, statistic: str) -> str:
    """The figure, or its bounds where requests that did not end can change it; a single value is the same for each."""
    return bound(found, statistic) or two_decimals(found.statistic(statistic) if found.value is None else found.value)
