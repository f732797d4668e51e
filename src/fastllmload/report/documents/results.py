"""Builds the tables of one run.json: latency, throughput, success, failures, objectives, classes, client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastllmload.documents.certificate import Certificate, Percentiles, ScheduleLag
from fastllmload.documents.fields import WITHHELD, known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.classes import ClassFairness, JainIndex
from fastllmload.documents.run_parts.counts import TargetCounts
from fastllmload.documents.run_parts.objectives import ObjectiveResult
from fastllmload.records.error_texts import message_of
from fastllmload.report.blocks import Cell, Table
from fastllmload.report.documents.hosts import network_text
from fastllmload.report.text import tokens
from fastllmload.report.text.doubts import bound, unfinished_text
from fastllmload.report.text.numbers import (
    MILLISECONDS,
    NOT_KNOWN,
    SAMPLES_NEEDED,
    count,
    has_too_few_samples,
    milliseconds,
    percent,
    quantity,
    some,
)
from fastllmload.report.text.traffic import closed_class_text, mixes_loops, of_open_loops, unstreamed_answers
from fastllmload.report.text.verdict import busiest_share, headroom_text, p99_error

LATENCIES = {  # metric: label
    "ttft": "TTFT",
    "ttft_sched": "TTFT from t_sched",
    "ttft_any": tokens.LABELS["ttft_any"],
    "tpot": "TPOT",
    "tpot_any": tokens.LABELS["tpot_any"],
    "itl": "ITL",
    "tbc": "Time Between Chunks",
    "itl_b": "ITL (B)",
    "e2e": "End-to-End",
    "e2e_sched": "End-to-End from t_sched",
    "norm_latency": "Normalized latency",
    "jitter": "Jitter",
    "max_pause": "Longest pause",
}
STATISTICS = {
    "mean": "Mean", "min": "Min", "p50": "P50", "p75": "P75", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9",
    "max": "Max", "std": "Std dev",
}  # fmt: skip
SUMMARY = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
MARK = "*"
AT_LEAST = "\N{GREATER-THAN OR EQUAL TO}"


def latency_table(
    document: RunDocument, names: Sequence[str] = tuple(LATENCIES), statistics: Sequence[str] = SUMMARY, title: str = ""
) -> Table:
    """One row per latency that has values, in ms; a percentile of too few samples is marked."""
    names = tokens.headlines(document, names)
    present = [name for name in names if document.metric(name).n not in (None, 0)] or list(names[:1])
    rows = [[latency_label(document, name), *latency_row(document.metric(name), statistics)] for name in present]
    columns = ["ms", "n", "null", *(STATISTICS[name] for name in statistics)]
    return Table(title, columns, rows, [*success_note(document), *latency_notes(document, has_marks(rows))])


def has_marks(rows: Sequence[Sequence[object]]) -> bool:
    """Whether a cell is marked as of too few samples."""
    return any(str(cell).endswith(MARK) for row in rows for cell in row)


def latency_notes(document: RunDocument, marks: bool) -> list[str]:
    """The notes of every latency table, except the number of requests."""
    return [
        *unfinished_note(document),
        *unstreamed_note(document),
        *tokens.notes(document),
        *mix_note(document),
        *few_samples_note(marks),
    ]


def latency_label(document: RunDocument, name: str) -> str:
    return tokens.label(document, name, LATENCIES.get(name, name))


def latency_row(found: Metric, statistics: Sequence[str]) -> list[Cell]:
    cells = [marked(found, statistic) for statistic in statistics]
    return [count(found.n), count(found.n_null), *cells]


def marked(found: Metric, statistic: str) -> str:
    bounds = bound(found, statistic)
    if bounds is not None:
        return bounds.replace(">=", AT_LEAST)
    text = quantity(milliseconds(found, statistic))
    few = has_too_few_samples(found, statistic, SAMPLES_NEEDED.get(statistic, 0))
    return f"{text}{MARK}" if few and text != NOT_KNOWN else text


def success_note(document: RunDocument) -> list[str]:
    """The note of every latency table: the number of requests that it describes, and the success rate."""
    rate = percent(document.metric("success_rate").value)
    n, sent = count(document.counts.latency_population), count(document.counts.submitted_in_window)
    return [f"n: {n} ok of {sent} requests submitted in the window; success rate {rate}"]


def unfinished_note(document: RunDocument) -> list[str]:
    """Explains figures that are bounds."""
    text = unfinished_text(document)
    return [text.replace(">=", AT_LEAST)] if text is not None else []


def unstreamed_note(document: RunDocument) -> list[str]:
    """Answers that were not streamed have their first token at their end, and no gaps."""
    if unstreamed_answers(document) == "all":
        return [
            "Not streamed: TTFT is the end of the answer; ITL and TPOT need gaps between tokens and are not available."
        ]
    some = unstreamed_answers(document)
    return [f"{some} were not streamed: their TTFT is their end, and ITL and TPOT exclude them."] if some else []


def mix_note(document: RunDocument) -> list[str]:
    """That figures from the scheduled instant are of the open loops of a mix, and of how many requests."""
    if not mixes_loops(document):
        return []
    timed = count(document.metric("e2e_sched").n)
    return [
        f"Figures from the scheduled instant are of the {timed} requests of open loops; closed loops have no schedule."
    ]


def few_samples_note(marked: bool) -> list[str]:
    return [f"{MARK} fewer samples than needed (P99: 1,000; P99.9: 10,000)"] if marked else []


def interval_table(
    document: RunDocument, names: Sequence[str] = ("ttft", "ttft_any", "tpot", "tpot_any", "e2e")
) -> Table | None:
    """95 % intervals of P50 and P99, where the run has them."""
    rows: list[list[Cell]] = []
    for name in tokens.headlines(document, names):
        found = document.metric(name)
        pairs = [interval(found, statistic) or not_estimable(found, statistic) for statistic in ("p50", "p99")]
        if any(pair is not None for pair in pairs):
            rows.append([latency_label(document, name), *(NOT_KNOWN if pair is None else pair for pair in pairs)])
    columns = ["ms", "P50, 95 % interval", "P99, 95 % interval"]
    return Table("", columns, rows, ()) if rows else None


def not_estimable(found: Metric, statistic: str) -> str | None:
    """`not estimable (needs about 27,796 requests)`; None where the run has no such note."""
    why = found.why_not_estimable(statistic)
    if why is None:
        return None
    needed = why.needed
    return "not estimable" if needed is None else f"not estimable (needs about {count(needed)} {why.of})"


def interval(found: Metric, statistic: str) -> str | None:
    """`36.43 to 37.10`; the bounds of a figure that has only these; None without either."""
    if bound(found, statistic) is not None:
        return marked(found, statistic)
    ends, scale = found.interval(statistic), MILLISECONDS.get(found.unit, 1.0)
    if ends is None or ends == (None, None):
        return None
    low, high = ("(open)" if end is None else quantity(end * scale) for end in ends)
    return f"{low} to {high}"


THROUGHPUTS = {
    "output_tok_s": "Output (tok/s)",
    "req_s": "Requests (req/s)",
    "input_tok_s": "Input (tok/s)",
    "tok_per_gpu_s": "Output per GPU (tok/s/GPU)",
    "output_tok_s_makespan": "Output over the makespan (tok/s)",
    "req_s_makespan": "Requests over the makespan (req/s)",
    "failed_output_tok_s": "Output of failed requests (tok/s)",
    "tokens_in_flight": "Tokens in flight (mean)",
    "tok_s_per_dollar_hour": "Output per price of an hour (tok/s)",
    "tokens_per_dollar": "Tokens per unit of money",
    "power_w": "Power (W)",
    "tok_s_per_w": "Output per watt (tok/s/W)",
}
ALWAYS = ("output_tok_s", "req_s", "input_tok_s")


def throughput_table(document: RunDocument, title: str = "") -> Table:
    """Offered rate and the throughput of the target."""
    certificate, of = document.certificate or Certificate(), of_open_loops(document)
    rows: list[list[Cell]] = [
        [f"Offered, planned{of} (req/s)", quantity(certificate.planned_rate)],
        [f"Offered, sent{of} (req/s)", quantity(certificate.offered_rate)],
    ]
    for name, label in THROUGHPUTS.items():
        value = document.metric(name).value
        if (
            name in (ALWAYS if tokens.has_tokens(document) else ("req_s",))
            or known(value) is not None
            or value is WITHHELD
        ):
            rows.append([label, quantity(value)])
    return Table(title, ["Throughput", "Value"], rows)


NOT_OK = (
    "empty", "refused", "http_error", "rate_limited", "truncated", "timeout", "connection_error", "protocol_error",
    "cancelled", "stream_error", "host_lost", "not_sent", "in_flight",
)  # fmt: skip


def success_table(document: RunDocument, title: str = "") -> Table:
    """Requests planned, dispatched and ok, and each kind of failure that occurred."""
    counts = document.counts
    ended: list[list[Cell]] = [[name, count(many)] for name in NOT_OK if known(many := getattr(counts, name))]
    rows: list[list[Cell]] = [
        ["Planned", count(counts.planned)],
        ["Dispatched", count(counts.dispatched)],
        ["ok", count(counts.ok)],
        *ended,
        ["Failed", count(document.failed)],
        ["Success rate in the window", percent(document.metric("success_rate").value)],
        ["Refusals", count(document.metric("refusals").value)],
    ]
    return Table(title, ["Requests", "Number"], rows)


def failure_table(document: RunDocument, title: str = "") -> Table | None:
    """Failures by status, class and HTTP status, the most frequent first; None when nothing failed."""
    found = sorted((group for group in document.errors if group.count), key=lambda group: -(known(group.count) or 0))
    rows = [[*map(text_or_dash, (group.status, group.error, group.http_status)), count(group.count)] for group in found]
    return Table(title, ["Status", "Error", "HTTP", "Requests"], rows) if rows else None


def target_table(document: RunDocument, title: str = "") -> Table | None:
    """Results by URL; None with one URL, or when nothing failed."""
    rows: list[list[Cell]] = [
        [str(one.url), count(one.dispatched), count(one.ok), count(one.failed), _error_counts(one)]
        for one in document.by_target
    ]
    failed = any(some(one.failed) for one in document.by_target)
    return Table(title, ["URL", "Sent", "ok", "Failed", "Errors"], rows) if failed else None


def _error_counts(one: TargetCounts) -> str:
    """`connect_refused 7, http_status 503: 2`."""
    texts = [
        f"{group.error or group.status}"
        + ("" if group.http_status in (None, 200) else f" {group.http_status}:")
        + f" {count(group.count)}"
        for group in one.errors
    ]
    return ", ".join(texts) or "-"


def error_text_table(document: RunDocument, title: str = "") -> Table | None:
    """The server's error messages, the most frequent first; None without any."""
    found = document.error_texts
    rows: list[list[Cell]] = [
        [text_or_dash(each.http_status), text_or_dash(each.error), count(each.requests), message_of(str(each.text))]
        for each in found.texts
    ]
    notes = [f"{count(found.left_out)} more requests failed with other messages."] if known(found.left_out) else []
    return Table(title, ["HTTP", "Error", "Requests", "Message"], rows, notes) if rows else None


def text_or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def objective_table(document: RunDocument, title: str = "") -> Table | None:
    """Per objective: how many requests met it, and the excess of the others; None without objectives."""
    slo = document.slo
    if slo is None or not slo.objectives:
        return None
    note = (
        f"all objectives met: {count(slo.met)} of {count(slo.submitted)} requests ({percent(slo.slo_attainment)}); "
        f"request goodput {quantity(slo.request_goodput)} requests/s"
        + (f", token goodput {quantity(slo.token_goodput)} tokens/s" if tokens.has_tokens(document) else "")
    )
    bounds = slo.slo_attainment_bounds
    if bounds is not None:
        note += f"; {count(slo.unfinished)} did not end: attainment {percent(bounds[0])} to {percent(bounds[1])}"
    return Table(
        title,
        ["Objective", "Limit", "Met", "Missed", "Failed", "Attainment", "Median excess", "Worst excess"],
        [_objective_row(each) for each in slo.objectives],
        [note],
    )


def _objective_row(each: ObjectiveResult) -> list[Cell]:
    unit = "" if each.unit in (None, "share", "count") else f" {each.unit}"
    excess = each.excess
    over = [f"{quantity(value)}{unit}" if some(excess.n) else NOT_KNOWN for value in (excess.p50, excess.max)]
    found = known(each.limit)
    limit = quantity(each.limit) if found is None else f"{found:,.10g}{unit}"
    numbers = [count(many) for many in (each.met, each.missed, each.failed)]
    return [text_or_dash(each.objective), limit, *numbers, percent(each.attainment), *over]


def class_table(document: RunDocument, title: str = "") -> Table | None:
    """One row per request class, when the run had several."""
    if document.fairness is None or not document.fairness.classes:
        return None
    any_token: dict[str, Metric | None] = {}
    if tokens.reasoned(document):
        any_token = {name: one.ttft_any for name, one in (document.classes or {}).items()}
    rows = [_class_row(name, each, any_token) for name, each in document.fairness.classes.items()]
    columns = [
        "Class",
        "Submitted",
        "ok",
        "TTFT P50 (ms)",
        "TTFT P99 (ms)",
        "TPOT P50 (ms)",
        "TPOT P99 (ms)",
        *(f"TTFT {q} of any token (ms)" for q in ("P50", "P99") if any_token),
        "Starved",
    ]
    indices = (document.fairness.jain_index, document.fairness.jain_norm_latency)
    return Table(title, columns, rows, [*_jain(indices), *few_samples_note(has_marks(rows))])


def _class_row(name: str, each: ClassFairness, any_token: Mapping[str, Metric | None]) -> list[str]:
    found = [each.ttft, each.tpot, *([any_token.get(name) or Metric()] if any_token else [])]
    figures = [marked(one, q) for one in found for q in ("p50", "p99")]
    return [name, count(each.submitted), count(each.ok), *figures, percent(each.starvation_rate)]


def _jain(indices: Sequence[JainIndex]) -> list[str]:
    found = [
        f"Jain's index {quantity(index.value)} of {index.normalisation or 'requests'}"
        for index in indices
        if known(index.value) is not None
    ]
    return ["; ".join(found)] if found else []


def client_table(document: RunDocument, title: str = "") -> Table:
    """How well the load generator measured."""
    certificate = document.certificate or Certificate()
    lag, read = certificate.schedule_lag_us or ScheduleLag(), certificate.socket_to_user_us
    ttft, itl = (certificate.latency_error_bar_us.get(name, Percentiles()) for name in ("ttft", "itl"))
    figures: list[list[Cell]] = [
        [f"P99 of {LATENCIES.get(name, name)} is known within (us, share)", _within(certificate, name)]
        for name in certificate.figures
    ]
    of_tokens: list[list[Cell]] = [
        ["Stamp error of one request's TTFT, P99 over requests (us)", quantity(ttft.p99)],
        ["Stamp error of one gap, P99 over gaps (us)", quantity(itl.p99)],
        ["Tokens that arrived with the previous one", percent(certificate.batched_share)],
    ]
    of_slots: list[list[Cell]] = [
        [f"Slots of {name}", closed_class_text(one)] for name, one in certificate.closed_classes.items()
    ]
    rows: list[list[Cell]] = [
        ["Verdict", certificate.verdict or "not judged"],
        [
            f"Schedule lag{of_open_loops(document)} P50, P99, max (us)",
            ", ".join(map(quantity, (lag.p50, lag.p99, lag.max))),
        ],
        *of_slots,
        ["Socket-to-user delay P50, P99 (us)", ", ".join(map(quantity, (read.p50, read.p99)))],
        *(of_tokens[:2] if tokens.has_tokens(document) else ()),
        *figures,
        ["Least lead of the plan over the clock (s)", quantity(certificate.plan_lead_s)],
        ["Timestamps", certificate.timestamp_source or NOT_KNOWN],
        ["Events in reads of several segments", percent(certificate.coalesced_read_share)],
        *(of_tokens[2:] if tokens.has_tokens(document) else ()),
        ["Busiest worker (of a core)", percent(busiest_share(certificate))],
        ["Network: busiest second of the link", network_text(certificate)],
        ["Headroom", headroom_text(certificate)],
    ]
    return Table(title, ["Client", "Figure"], rows)


def _within(certificate: Certificate, name: str) -> str:
    """The error bound of a figure in us and as a share: `47.18, 0.1 %`."""
    found = p99_error(certificate, (name,))
    return quantity(None) if found is None else f"{quantity(found[0])}, {percent(found[1])}"
