"""The table of the headline latencies, for the terminal and for the page."""

from __future__ import annotations

from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.report.blocks import Stacked, Table
from fastllmload.report.documents.results import AT_LEAST, has_marks, latency_notes, marked, success_note
from fastllmload.report.text.doubts import bound
from fastllmload.report.text.numbers import count, quantity
from fastllmload.report.text.tokens import gap_name, has_tokens, headlines, reasoned

COLUMNS = {"mean": "mean", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9", "max": "max"}
LATENCIES = ("ttft", "ttft_sched", "ttft_any", "tpot", "tpot_any", "itl", "e2e", "e2e_sched")
LABELS = {
    "ttft": ("Time to first token", "from submission"),
    "ttft_sched": ("Time to first token", "from the scheduled instant"),
    "ttft_any": ("Time to first token of any kind", "from submission, reasoning included"),
    "tpot": ("Per output token", "one value per request"),
    "tpot_any": ("Per token of any kind", "reasoning included, one value per request"),
    "itl": ("Between tokens", "pooled over all requests"),
    "itl_b": ("Between tokens", "those of one chunk arrive together"),
    "tbc": ("Between chunks", "a chunk may carry several tokens"),
    "e2e": ("End to end", "from submission to the last token"),
    "e2e_sched": ("End to end", "from the scheduled instant"),
}
OF_ANSWER = {  # where answers reason
    "ttft": "Time to first answer token",
    "ttft_sched": "Time to first answer token",
    "tpot": "Per answer token",
    "itl": "Between answer tokens",
    "itl_b": "Between answer tokens",
    "tbc": "Between answer chunks",
}
PERCENTILES = ("p50", "p90", "p95", "p99", "p999")
CELL = 8  # characters of a narrow cell


def headline_table(document: RunDocument) -> Table:
    """One row per latency, in ms; below each value its 95 % interval, or how many requests one needs."""
    names = headline_names(document)
    rows = [[name_cell(document, name), *figure_cells(document.metric(name))] for name in names]
    if not document.metric("ttft").n and not document.metric("e2e").n:
        notes = ["No request submitted in the window succeeded, so latencies are not available."]
    else:
        needs = any(document.metric(name).not_estimable for name in names)
        more = ", or how many requests like these one needs" if needs else ""
        notes = [f"Below each value: its 95 % confidence interval{more}."]
        notes += latency_notes(document, has_marks([[cell.text for cell in row] for row in rows]))
    if gap_name(document) == "tbc":
        notes.append("The server sent several tokens in a chunk, so gaps are those between chunks.")
    return Table("", ["ms", "n", *COLUMNS.values()], rows, [*success_note(document), *notes])


def headline_names(document: RunDocument) -> list[str]:
    titled = [name for name, metric in (document.metrics or {}).items() if metric is not None and metric.title]
    return [*(gap_name(document, name) for name in headlines(document, LATENCIES)), *titled]


def name_cell(document: RunDocument, name: str) -> Stacked:
    metric = document.metric(name)
    if metric.title:
        unit = "" if metric.unit == "ms" else f" ({metric.unit})"
        return Stacked(metric.title, f"one value per request{unit}", f"{name}{unit}")
    label, meaning = LABELS[name]
    if not has_tokens(document):
        meaning = meaning.replace("the last token", "the end of the answer")
    return Stacked(OF_ANSWER.get(name, label) if reasoned(document) else label, meaning, name)


def figure_cells(metric: Metric) -> list[Stacked]:
    """n, and the number of requests without a value; each statistic."""
    nulls = known(metric.n_null)
    return [
        Stacked(count(metric.n), f"{nulls:,.0f} without" if nulls else ""),
        *(figure_cell(metric, column) for column in COLUMNS),
    ]


def figure_cell(metric: Metric, column: str) -> Stacked:
    """A value with its interval. Bounds that are too long for a narrow cell are reduced to the lower one."""
    text = marked(metric, column)
    short = text.replace(AT_LEAST, ">=")
    if len(short) > CELL:
        short = f">={text.partition('-')[0]}"
    return Stacked(text, "" if bound(metric, column) is not None else interval(metric, column), short)


def interval(metric: Metric, column: str) -> str:
    """`26.97-29.38` or `needs 1,736`; empty where the column or the value has none."""
    ends, missing = metric.interval(column), metric.why_not_estimable(column)
    if metric.statistic(column) is None or (column not in PERCENTILES and ends is None and missing is None):
        return ""
    if ends is None or ends == (None, None):
        needed = None if missing is None else missing.needed
        return "not estimable" if needed is None else f"needs {needed:,.0f}"
    low, high = (None if end is None else quantity(end) for end in ends)
    if low is None or high is None:
        return f"≥ {low}" if high is None else f"≤ {high}"
    return f"{low}\N{EN DASH}{high}"
