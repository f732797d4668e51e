"""The table of the blog "LLM Inference Performance Benchmarking from Scratch": Mean, Min, Max, P99, P90, P75.

Its definitions, under our names (docs/seeds.md): latencies count from just before the request, rates over the makespan.
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
from fastllmload.report.text.deviations import loud
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
    """The table and what it is about."""
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
    said = notice(subject.document)
    return "\n".join([*loud(subject), *([said] if said else []), *text(table)]) + "\n"


def populations_note(document: Mapping[str, Any]) -> str:
    """The throughputs are of another population than the latencies, as the blog has no window."""
    ok = count(part(document, "counts", "ok"))
    return (
        "latencies and lengths are of these n requests; throughputs are one number each, of all "
        f"{ok} ok requests of the measure phase over its makespan, the ramp included"
    )


def reasoning_note(document: Mapping[str, Any]) -> list[str]:
    """The blog knows no reasoning: its first token is that of the answer here."""
    if not reasoned(document):
        return []
    first, pause = (shown(metric(document, name).get("mean")) for name in ("ttft_any", "tpot_any"))
    return [
        "answers reason: Time to First Token and Inter-Token Latency are of the answer; the mean from the last byte sent "
        f"to the first token of any kind is {first} ms, the mean gap of all tokens {pause} ms"
    ]


def figures(subject: Subject, document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(label, distribution) of each row; a single number stands in every column."""
    lengths = token_lengths(subject)
    for name, label in ROWS.items():
        found = lengths.get(name) or metric(document, name)
        yield label, dict.fromkeys(STATISTICS, found["value"]) if "value" in found else found


def token_lengths(subject: Subject) -> dict[str, dict[str, Any]]:
    """Input and output tokens of the requests whose latencies are reported."""
    run = subject.run.whole
    mine = populations(run, window_of(run)).latency
    tokens = count_tokens(run)
    return {
        "input_tokens": distribution(tokens.input[mine].astype(np.float64), "tokens"),
        "output_tokens": distribution(tokens.output[mine].astype(np.float64), "tokens"),
    }


def cell(found: Mapping[str, Any], statistic: str) -> str:
    """The figure, or what is known of it where requests that did not end can move it."""
    return bound(found, statistic) or shown(found.get(statistic))


def shown(value: object) -> str:
    """Two digits, as the blog prints them."""
    found = number(value)
    return (WITHHELD if value == WITHHELD else NOT_KNOWN) if found is None else f"{found:.2f}"
