"""Builds the tables of one run.json: latency, throughput, success, failures, objectives, classes, client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastllmload.records.error_texts import message_of
from fastllmload.report.terminal.summary import SAMPLES_NEEDED, part
from fastllmload.report.text import reasoning
from fastllmload.report.text.doubts import bound, reason_text, unfinished_text
from fastllmload.report.text.numbers import (
    NOT_KNOWN,
    WITHHELD,
    count,
    has_too_few_samples,
    number,
    percent,
    quantity,
    some,
)
from fastllmload.report.text.tables import Cell, Table
from fastllmload.report.text.traffic import traffic_texts, unstreamed_answers

Document = Mapping[str, Any]

LATENCIES = {  # metric: label
    "ttft": "TTFT",
    "ttft_sched": "TTFT from t_sched",
    "ttft_any": reasoning.LABELS["ttft_any"],
    "tpot": "TPOT",
    "tpot_any": reasoning.LABELS["tpot_any"],
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
SCALES = {"s": 1e3, "us": 1e-3, "ns": 1e-6}


def metric(document: Document, name: str) -> Mapping[str, Any]:
    """`metrics.NAME` of run.json, empty where it is missing."""
    found = part(document, "metrics", name)
    return found if isinstance(found, Mapping) else {}


def milliseconds(found: Mapping[str, Any], statistic: str) -> float | None:
    value = number(found.get(statistic))
    return None if value is None else value * SCALES.get(str(found.get("unit")), 1.0)


def latency_table(
    document: Document, names: Sequence[str] = tuple(LATENCIES), statistics: Sequence[str] = SUMMARY, title: str = ""
) -> Table:
    """One row per latency that has values, in ms; a percentile of too few samples is marked."""
    names = reasoning.headlines(document, names)
    present = [name for name in names if metric(document, name).get("n") not in (None, 0)] or list(names[:1])
    rows = [[latency_label(document, name), *latency_row(metric(document, name), statistics)] for name in present]
    few = any(str(cell).endswith(MARK) for row in rows for cell in row)
    columns = ["ms", "n", "null", *(STATISTICS[name] for name in statistics)]
    return Table(
        title,
        columns,
        rows,
        [
            *success_note(document),
            *unfinished_note(document),
            *unstreamed_note(document),
            *reasoning.notes(document),
            *few_samples_note(few),
        ],
    )


def latency_label(document: Document, name: str) -> str:
    return reasoning.label(document, name, LATENCIES.get(name, name))


def latency_row(found: Mapping[str, Any], statistics: Sequence[str]) -> list[Cell]:
    cells = [marked(found, statistic) for statistic in statistics]
    return [count(found.get("n")), count(found.get("n_null")), *cells]


def marked(found: Mapping[str, Any], statistic: str) -> str:
    known = bound(found, statistic)
    if known is not None:
        return known.replace(">=", AT_LEAST)
    text = quantity(milliseconds(found, statistic))
    few = has_too_few_samples(found, statistic, SAMPLES_NEEDED.get(statistic, 0))
    return f"{text}{MARK}" if few and text != NOT_KNOWN else text


def success_note(document: Document) -> list[str]:
    """The note of every latency table: the number of requests that it describes, and the success rate."""
    rate = percent(metric(document, "success_rate").get("value"))
    n = count(part(document, "counts", "latency_population"))
    sent = count(part(document, "counts", "submitted_in_window"))
    return [f"n: {n} ok of {sent} requests submitted in the window; success rate {rate}"]


def unfinished_note(document: Document) -> list[str]:
    """Explains figures that are bounds."""
    text = unfinished_text(document)
    return [text.replace(">=", AT_LEAST)] if text is not None else []


def unstreamed_note(document: Document) -> list[str]:
    """Answers that were not streamed have their first token at their end, and no gaps."""
    if unstreamed_answers(document) == "all":
        return [
            "Not streamed: TTFT is the end of the answer; ITL and TPOT need gaps between tokens and are not available."
        ]
    some = unstreamed_answers(document)
    return [f"{some} were not streamed: their TTFT is their end, and ITL and TPOT exclude them."] if some else []


def few_samples_note(marked: bool) -> list[str]:
    return [f"{MARK} fewer samples than needed (P99: 1,000; P99.9: 10,000)"] if marked else []


def interval_table(
    document: Document, names: Sequence[str] = ("ttft", "ttft_any", "tpot", "tpot_any", "e2e")
) -> Table | None:
    """95 % intervals of P50 and P99, where the run has them."""
    rows: list[list[Cell]] = []
    for name in reasoning.headlines(document, names):
        found = metric(document, name)
        pairs = [interval(found, statistic) or not_estimable(found, statistic) for statistic in ("p50", "p99")]
        if any(pair is not None for pair in pairs):
            rows.append([latency_label(document, name), *(NOT_KNOWN if pair is None else pair for pair in pairs)])
    columns = ["ms", "P50, 95 % interval", "P99, 95 % interval"]
    return Table("", columns, rows, ()) if rows else None


def not_estimable(found: Mapping[str, Any], statistic: str) -> str | None:
    """`not estimable (needs about 27,796 requests)`; None where the run has no such note."""
    reason = part(found, "not_estimable", statistic)
    if not isinstance(reason, Mapping):
        return None
    needed = reason.get("requests_needed")
    return "not estimable" if number(needed) is None else f"not estimable (needs about {count(needed)} requests)"


def interval(found: Mapping[str, Any], statistic: str) -> str | None:
    """`36.43 to 37.10`; the bounds of a figure that has only these; None without either."""
    if bound(found, statistic) is not None:
        return marked(found, statistic)
    ends = (found.get("ci95") or {}).get(statistic) if isinstance(found.get("ci95"), Mapping) else None
    if isinstance(ends, Mapping):
        ends = [ends.get("low"), ends.get("high")]
    if isinstance(ends, str):
        return ends
    if not isinstance(ends, Sequence) or len(ends) != 2 or (ends[0] is None and ends[1] is None):
        return None
    low, high = (quantity(milliseconds({**found, "end": end}, "end")) for end in ends)
    return (
        f"{low} to {high}"
        if NOT_KNOWN not in (low, high)
        else f"{low} to (open)"
        if low != NOT_KNOWN
        else f"(open) to {high}"
    )


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


def throughput_table(document: Document, title: str = "") -> Table:
    """Offered rate and the throughput of the target."""
    planned, offered = (part(document, "certificate", f"{name}_rate") for name in ("planned", "offered"))
    rows: list[list[Cell]] = [
        ["Offered, planned (req/s)", quantity(planned)],
        ["Offered, sent (req/s)", quantity(offered)],
    ]
    for name, label in THROUGHPUTS.items():
        value = metric(document, name).get("value")
        if name in ALWAYS or number(value) is not None or value == WITHHELD:
            rows.append([label, quantity(value)])
    return Table(title, ["Throughput", "Value"], rows)


NOT_OK = (
    "empty", "refused", "http_error", "rate_limited", "truncated", "timeout", "connection_error", "protocol_error",
    "cancelled", "stream_error", "not_sent", "in_flight",
)  # fmt: skip


def success_table(document: Document, title: str = "") -> Table:
    """Requests planned, dispatched and ok, and each kind of failure that occurred."""
    counts = part(document, "counts") or {}
    ended: list[list[Cell]] = [[name, count(counts[name])] for name in NOT_OK if number(counts.get(name))]
    rows: list[list[Cell]] = [
        ["Planned", count(counts.get("planned"))],
        ["Dispatched", count(counts.get("dispatched"))],
        ["ok", count(counts.get("ok"))],
        *ended,
        ["Failed", count(document.get("failed"))],
        ["Success rate in the window", percent(metric(document, "success_rate").get("value"))],
        ["Refusals", count(metric(document, "refusals").get("value"))],
    ]
    return Table(title, ["Requests", "Number"], rows)


def failure_table(document: Document, title: str = "") -> Table | None:
    """Failures by status, class and HTTP status, the most frequent first; None when nothing failed."""
    groups = document.get("errors")
    found = [group for group in groups if part(group, "count")] if isinstance(groups, list) else []
    rows = [
        [*(text_or_dash(part(group, key)) for key in ("status", "error", "http_status")), count(part(group, "count"))]
        for group in sorted(found, key=lambda group: -(number(part(group, "count")) or 0))
    ]  # fmt: skip
    return Table(title, ["Status", "Error", "HTTP", "Requests"], rows) if rows else None


def target_table(document: Document, title: str = "") -> Table | None:
    """Results by URL; None with one URL, or when nothing failed."""
    found = document.get("by_target")
    each = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    rows: list[list[Cell]] = [
        [str(one.get("url")), *(count(one.get(key)) for key in ("dispatched", "ok", "failed")), _error_counts(one)]
        for one in each
    ]
    failed = any(number(one.get("failed")) or one.get("failed") == WITHHELD for one in each)
    return Table(title, ["URL", "Sent", "ok", "Failed", "Errors"], rows) if failed else None


def _error_counts(one: Mapping[str, Any]) -> str:
    """`connect_refused 7, http_status 503: 2`."""
    texts = [
        f"{part(group, 'error') or part(group, 'status')}"
        + ("" if part(group, "http_status") in (None, 200) else f" {part(group, 'http_status')}:")
        + f" {count(part(group, 'count'))}"
        for group in one.get("errors") or ()
    ]
    return ", ".join(texts) or "-"


def error_text_table(document: Document, title: str = "") -> Table | None:
    """The server's error messages, the most frequent first; None without any."""
    found = part(document, "error_texts")
    texts = part(found, "texts")
    rows: list[list[Cell]] = [
        [text_or_dash(part(each, "http_status")), text_or_dash(part(each, "error")), count(part(each, "requests")),
         message_of(str(part(each, "text")))]
        for each in (texts if isinstance(texts, list) else ())
    ]  # fmt: skip
    others = number(part(found, "left_out"))
    notes = [f"{count(others)} more requests failed with other messages."] if others else []
    return Table(title, ["HTTP", "Error", "Requests", "Message"], rows, notes) if rows else None


def text_or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def objective_table(document: Document, title: str = "") -> Table | None:
    """Per objective: how many requests met it, and the excess of the others; None without objectives."""
    slo = part(document, "slo")
    rows = [_objective_row(each) for each in part(slo, "objectives") or ()]
    if not rows:
        return None
    attainment = percent(part(slo, "slo_attainment"))
    note = (
        f"all objectives met: {count(part(slo, 'met'))} of {count(part(slo, 'submitted'))} requests ({attainment}); "
        f"request goodput {quantity(part(slo, 'request_goodput'))} requests/s, "
        f"token goodput {quantity(part(slo, 'token_goodput'))} tokens/s"
    )
    bounds = part(slo, "slo_attainment_bounds")
    if isinstance(bounds, Sequence) and not isinstance(bounds, str):
        note += (
            f"; {count(part(slo, 'unfinished'))} did not end: attainment {percent(bounds[0])} to {percent(bounds[1])}"
        )
    return Table(
        title,
        ["Objective", "Limit", "Met", "Missed", "Failed", "Attainment", "Median excess", "Worst excess"],
        rows,
        [note],
    )


def _objective_row(each: Mapping[str, Any]) -> list[Cell]:
    unit = "" if each.get("unit") in (None, "share") else f" {each['unit']}"
    excess = each.get("excess") or {}
    over = [f"{quantity(excess.get(name))}{unit}" if some(excess.get("n")) else NOT_KNOWN for name in ("p50", "max")]
    known = number(each.get("limit"))
    limit = quantity(each.get("limit")) if known is None else f"{known:,.10g}{unit}"
    numbers = [count(each.get(name)) for name in ("met", "missed", "failed")]
    return [text_or_dash(each.get("objective")), limit, *numbers, percent(each.get("attainment")), *over]


def class_table(document: Document, title: str = "") -> Table | None:
    """One row per request class, when the run had several."""
    classes = part(document, "fairness", "classes")
    if not isinstance(classes, Mapping) or not classes:
        return None
    any_token: dict[str, Any] = {}
    if reasoning.reasoned(document):
        any_token = {str(name): part(document, "classes", str(name), "ttft_any") for name in classes}
    rows = [_class_row(str(name), each, any_token) for name, each in classes.items() if each]
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
    few = any(cell.endswith(MARK) for row in rows for cell in row)
    return Table(title, columns, rows, [*_jain(document), *few_samples_note(few)])


def _class_row(name: str, each: Mapping[str, Any], any_token: Mapping[str, Any]) -> list[str]:
    found = [each.get("ttft"), each.get("tpot"), *([any_token.get(name)] if any_token else [])]
    figures = [marked(one or {}, q) for one in found for q in ("p50", "p99")]
    return [name, count(each.get("submitted")), count(each.get("ok")), *figures, percent(each.get("starvation_rate"))]


def _jain(document: Document) -> list[str]:
    found = [
        f"Jain's index {quantity(index['value'])} of {index.get('normalisation') or 'requests'}"
        for name in ("jain_index", "jain_norm_latency")
        if isinstance(index := part(document, "fairness", name), Mapping) and number(index.get("value")) is not None
    ]
    return ["; ".join(found)] if found else []


def traffic_lines(document: Document) -> list[str]:
    """What only some runs have: classes, conversations, users who left. One text each."""
    return [" ".join(text.split()) for text in traffic_texts(document)]


def client_table(document: Document, title: str = "") -> Table:
    """How well the load generator measured."""
    certificate = part(document, "certificate") or {}
    lag, read = part(certificate, "schedule_lag_us") or {}, part(certificate, "socket_to_user_us") or {}
    bars = part(certificate, "latency_error_bar_us") or {}
    workers = part(certificate, "workers") or ()
    busiest = max((n for each in workers if (n := number(part(each, "cpu_share"))) is not None), default=None)
    figures: list[list[Cell]] = [
        [f"P99 of {LATENCIES.get(name, name)} is known within (us, share)", _within(part(found, "p99"))]
        for name, found in figures_judged(certificate).items()
    ]
    rows: list[list[Cell]] = [
        ["Verdict", str(certificate.get("verdict") or "not judged")],
        ["Schedule lag P50, P99, max (us)", ", ".join(quantity(lag.get(q)) for q in ("p50", "p99", "max"))],
        ["Socket-to-user delay P50, P99 (us)", ", ".join(quantity(read.get(q)) for q in ("p50", "p99"))],
        ["Stamp error of one request's TTFT, P99 over requests (us)", quantity(part(bars, "ttft", "p99"))],
        ["Stamp error of one gap, P99 over gaps (us)", quantity(part(bars, "itl", "p99"))],
        *figures,
        ["Least lead of the plan over the clock (s)", quantity(certificate.get("plan_lead_s"))],
        ["Timestamps", str(certificate.get("timestamp_source") or NOT_KNOWN)],
        ["Events in reads of several segments", percent(certificate.get("coalesced_read_share"))],
        ["Tokens that arrived with the previous one", percent(certificate.get("batched_share"))],
        ["Busiest worker (of a core)", percent(busiest)],
        ["Headroom", _headroom(certificate)],
    ]
    return Table(title, ["Client", "Figure"], rows)


def figures_judged(certificate: Mapping[str, Any]) -> Mapping[str, Any]:
    found = certificate.get("figures")
    return found if isinstance(found, Mapping) else {}


def _within(p99: object) -> str:
    """The error bound of a figure in us and as a share: `47.18, 0.1 %`."""
    value, share = number(part(p99, "value")), number(part(p99, "error_share"))
    return quantity(None) if value is None or share is None else f"{quantity(value * share * 1e3)}, {percent(share)}"


def _headroom(certificate: Mapping[str, Any]) -> str:
    found = certificate.get("headroom")
    factor = number(part(found, "headroom") if isinstance(found, Mapping) else found)
    return "n/a (run fastllmload calibrate)" if factor is None else f"{quantity(factor)} x this load"


def reasons(document: Document) -> Iterator[tuple[str, str]]:
    """(severity, sentence) of each reason of the certificate, the most severe first."""
    ranks = {"invalid": 0, "suspect": 1}
    found = part(document, "certificate", "reasons") or ()
    for reason in sorted(found, key=lambda reason: ranks.get(str(part(reason, "severity")), 2)):
        yield str(part(reason, "severity") or "note"), reason_text(reason)
