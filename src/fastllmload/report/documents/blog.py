"""Renders the table of the blog "LLM Inference Performance Benchmarking from Scratch": Mean, Min, Max, P99, P90, P75.

Metrics are defined as in the blog (docs/metric-definitions.md): latencies start just before the request, rates are over
the makespan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.report.documents import identity
from fastllmload.report.documents.results import metric, success_note
from fastllmload.report.documents.subject import Subject
from fastllmload.report.redaction.document import notice
from fastllmload.report.text.deviations import headlines
from fastllmload.report.text.doubts import all_texts, bound
from fastllmload.report.text.numbers import NOT_KNOWN, WITHHELD, count, number, part
from fastllmload.report.text.reasoning import reasoned
from fastllmload.report.text.tables import Table, text

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


def render(subject: Subject) -> str:
    """The headlines and the table."""
    document = identity.run_document(subject)
    rows = [[label, *(cell(found, key) for key in STATISTICS)] for label, found in figures(subject, document)]
    notes = [
        *success_note(document),
        populations_note(document),
        *NOTES,
        *reasoning_note(document),
        *all_texts(document),
    ]
    table = Table(TITLE, ["Metric", *STATISTICS.values()], rows, notes)
    redaction = notice(subject.document)
    return "\n".join([*headlines(subject), *([redaction] if redaction else []), *text(table)]) + "\n"


def populations_note(document: Mapping[str, Any]) -> str:
    """The populations of latencies and throughputs, which differ because the blog has no measurement window."""
    ok = count(part(document, "counts", "ok"))
    return (
        "latencies and lengths are of these n requests; throughputs are single values, of all "
        f"{ok} ok requests of the measure phase over its makespan, the ramp included"
    )


def reasoning_note(document: Mapping[str, Any]) -> list[str]:
    """The blog does not define reasoning; its first token is the first answer token here."""
    if not reasoned(document):
        return []
    first, pause = (two_decimals(metric(document, name).get("mean")) for name in ("ttft_any", "tpot_any"))
    return [
        "answers reason: Time to First Token and Inter-Token Latency are of the answer; the mean from the last byte sent "
        f"to the first token of any kind is {first} ms, the mean gap of all tokens {pause} ms"
    ]


def figures(subject: Subject, document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(label, distribution) of each row; a single number is repeated in every column."""
    lengths = token_lengths(subject)
    for name, label in ROWS.items():
        found = lengths.get(name) or metric(document, name)
        yield label, dict.fromkeys(STATISTICS, found["value"]) if "value" in found else found


def token_lengths(subject: Subject) -> dict[str, dict[str, Any]]:
    """Input and output tokens of the requests whose latencies are reported."""
    run = subject.run.intact
    chosen = populations(run, window_of(run)).latency
    tokens = count_tokens(run)
    return {
        "input_tokens": distribution(tokens.input[chosen].astype(np.float64), "tokens"),
        "output_tokens": distribution(tokens.output[chosen].astype(np.float64), "tokens"),
    }


def cell(found: Mapping[str, Any], statistic: str) -> str:
    """The figure, or its bounds where requests that did not end can change it."""
    return bound(found, statistic) or two_decimals(found.get(statistic))


def two_decimals(value: object) -> str:
    """*value* with two decimals, as in the blog."""
    found = number(value)
    return (WITHHELD if value == WITHHELD else NOT_KNOWN) if found is None else f"{found:.2f}"
