"""Resolves names of figures to compare, such as `p99_ttft_ms`, `output_tok_s`, `success_rate`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError

STATISTICS = {"mean": "mean", "median": "p50", **{name: name for name in ("p50", "p75", "p90", "p95", "p99", "p999")}}
LEVELS = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
OTHER_NAMES = {
    "e2el": "e2e", "output_throughput": "output_tok_s", "request_throughput": "req_s", "total_input_tok_s": "input_tok_s"
}  # fmt: skip
GAPS = ("itl", "itl_b", "tbc")  # one of them has values, by how the server delivered
HIGHER_IS_BETTER = re.compile(
    r"tok_s|req_s|sessions_s|goodput|per_gpu|per_dollar|per_j$|acceptance|success|completion|fluidity|attainment|benefit"
)
STANDARD = (
    *(f"{statistic}_{metric}_ms" for metric in ("ttft", "tpot", "itl", "e2e") for statistic in ("p50", "p99")),
    "output_tok_s",
    "req_s",
    "success_rate",
)
LATENCY_COUNT = 8  # of STANDARD, before the rates
OF_SESSIONS = (
    "p50_session_makespan_ms", "p99_session_makespan_ms", "p50_session_first_action_ms", "sessions_s",
    "session_goodput",
)  # fmt: skip
OF_OTHER_TOOLS = ("p50_total_duration_ms", "p99_total_duration_ms", "output_tok_s_makespan", "req_s_makespan")
LATENCIES_OF_CLASS = ("ttft", "ttft_sched", "tpot", "e2e", "e2e_sched")
RATES_OF_CLASS = {
    "req_s": "requests/s", "output_tok_s": "tokens/s", "input_tok_s": "tokens/s", "success_rate": "share"
}  # fmt: skip
CLASSES = 10  # with figures among the standard ones
OF_REASONING = tuple(f"{statistic}_{metric}_ms" for metric in ("ttft_any", "tpot_any") for statistic in ("p50", "p99"))


@dataclass(frozen=True)
class ComparedFigure:
    """*name* as printed; *metric*: its entry of `metrics`; *statistic*: None where the entry is a single number.

    *scale*: factor from the entry's unit to that of the name (a metric in s requested in ms: 1000). *of_class*: the class of
    traffic whose entry it is; None: of all requests.
    """

    name: str
    metric: str
    statistic: str | None
    unit: str
    scale: float = 1.0
    of_class: str | None = None

    @property
    def level(self) -> float | None:
        """Share of the values below the percentile; None for a mean or a single number."""
        return LEVELS.get(self.statistic or "")

    @property
    def higher_is_better(self) -> bool:
        return HIGHER_IS_BETTER.search(self.metric) is not None

    @property
    def is_share(self) -> bool:
        """Whether differences are printed in points, as relative changes of a failure rate are misleading."""
        return self.unit == "share"

    def entry(self, document: RunDocument) -> Metric | None:
        return entry_of(document, self.metric) if self.of_class is None else entry_of_class(document, self)

    def value(self, document: RunDocument) -> float | None:
        """The figure's value in a run; None where the run has none."""
        entry = self.entry(document)
        found = None if entry is None else known(entry.statistic(self.statistic or "value"))
        return None if found is None else found * self.scale

    def at_least(self, document: RunDocument) -> float | None:
        """Lower bound where requests that did not end could change the value; None where they could not."""
        entry = self.entry(document)
        low = None if entry is None else entry.at_least(self.statistic or "")
        return None if low is None else low * self.scale

    def clocks(self, document: RunDocument) -> tuple[float, float] | None:
        """How far below and above the true value may lie, given the bounds of events' times; None if not known. Those of a
        class are as far from its value as those of all requests.
        """
        entry = entry_of(document, self.metric)
        value = None if entry is None else known(entry.statistic(self.statistic or "value"))
        value = None if value is None else value * self.scale
        low, high = (None, None) if entry is None else map(known, entry.bounds.get(self.statistic or "", (None, None)))
        if value is None or low is None or high is None:
            return None
        return max(value - low * self.scale, 0.0), max(high * self.scale - value, 0.0)

    def interval(self, document: RunDocument) -> tuple[float, float] | None:
        """The figure's 95 % interval within that run."""
        entry = self.entry(document)
        low, high = (None if entry is None else entry.interval(self.statistic or "value")) or (None, None)
        return None if low is None or high is None else (low * self.scale, high * self.scale)


def entry_of(document: RunDocument, metric: str) -> Metric | None:
    """Entry of *metric*; `itl` means the gaps by whichever option the run used, as in the flat keys."""
    if metric == "request_goodput":
        return Metric(value=document.request_goodput, unit="requests/s")
    return (document.metrics or {}).get(gaps_of(document) if metric == "itl" else metric)


def entry_of_class(document: RunDocument, figure: ComparedFigure) -> Metric | None:
    """The entry of a class of the run as a metric; None where the run has no such class."""
    found = getattr((document.classes or {}).get(figure.of_class or ""), figure.metric, None)
    return found if isinstance(found, Metric) or found is None else Metric(value=found, unit=figure.unit)


def gaps_of(document: RunDocument) -> str:
    """`itl`, `tbc` or `itl_b`: which kind the run's gaps are, by how the server delivered tokens."""
    return document.metric("share_single").pooled_as or "itl"


def has_gaps(document: RunDocument) -> bool:
    """Whether the run has any gap; answers that are all reasoning have none."""
    return bool(document.metric(gaps_of(document)).n)


def figure_of(name: str, document: RunDocument) -> ComparedFigure:
    """The figure *name* of the run *document*. InputError for an unknown name, with similar ones."""
    of_class, slash, rest = name.rpartition("/")
    if slash:
        return figure_of_class(name, of_class, rest, document)
    scalar = OTHER_NAMES.get(name, name)
    entry = entry_of(document, scalar)
    if entry is not None and not entry.is_distribution:
        return ComparedFigure(scalar, scalar, None, entry.unit)
    statistic, metric, unit = parsed(name)
    found = entry_of(document, metric) if metric is not None else None
    if statistic is None or metric is None or found is None or not found.is_distribution:
        near = difflib.get_close_matches(name, known_names(document), 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"such as {', '.join(STANDARD[:3])}, output_tok_s"
        raise InputError("figure-unknown", f"{name!r} is not a figure of these runs; {hint}")
    scale = {("s", "ms"): 1e3, ("ms", "s"): 1e-3}.get((found.unit, unit or found.unit), 1.0)
    return ComparedFigure(name, metric, STATISTICS[statistic], unit or found.unit, scale)


def figure_of_class(name: str, of_class: str, rest: str, document: RunDocument) -> ComparedFigure:
    """The figure *rest* of a class of the run *document*. InputError for a class or a figure that it does not have."""
    classes = document.classes or {}
    if of_class not in classes:
        has = f"its classes are {', '.join(classes)}" if classes else "it has no classes"
        raise InputError("figure-unknown", f"{name!r} is not a figure of these runs: {has}")
    metric = OTHER_NAMES.get(rest, rest)
    if metric in RATES_OF_CLASS:
        return ComparedFigure(name, metric, None, RATES_OF_CLASS[metric], of_class=of_class)
    statistic, metric, unit = parsed(rest)  # type: ignore[assignment]
    if statistic is None or metric not in LATENCIES_OF_CLASS or unit == "s":
        raise InputError(
            "figure-unknown",
            f"{name!r} is not a figure of a class; write {of_class}/p99_e2e_ms or another statistic of "
            f"{', '.join(LATENCIES_OF_CLASS)}, or {', '.join(RATES_OF_CLASS)}",
        )
    return ComparedFigure(name, metric, STATISTICS[statistic], "ms", of_class=of_class)


def parsed(name: str) -> tuple[str | None, str | None, str | None]:
    """(statistic, metric, unit) of `p99_ttft_ms`."""
    match = re.fullmatch(r"(mean|median|p50|p75|p90|p95|p99|p999)_(.+?)(?:_(ms|s))?", name)
    if match is None:
        return None, None, None
    statistic, metric, unit = match.groups()
    if unit == "s" and metric.endswith(("_tok", "_per")):  # p50_decode_tok_s is in tokens/s
        metric, unit = f"{metric}_s", None
    return statistic, OTHER_NAMES.get(metric, metric), unit


def known_names(document: RunDocument) -> list[str]:
    """All names that `figure_of` accepts for the run *document*."""
    metrics = {name: metric for name, metric in (document.metrics or {}).items() if metric is not None}
    values = {name for name, metric in metrics.items() if not metric.is_distribution}
    names = ["request_goodput", *(name for name, ours in OTHER_NAMES.items() if ours in values)]
    for name, metric in metrics.items():
        end = "_ms" if metric.unit == "ms" else ""
        names += [name] if name in values else [f"{statistic}_{name}{end}" for statistic in STATISTICS]
    if any(gaps in metrics for gaps in GAPS):
        names += [f"{statistic}_itl_ms" for statistic in STATISTICS]
    return names


def names_of_classes(document: RunDocument) -> list[str]:
    """Of each class of the run P50 and P99 of TTFT, or of E2E where its answers are not tokens; not of a data set's."""
    found = [(name, one) for name, one in (document.classes or {}).items() if one.endpoint_type is not None]
    return [
        f"{name}/{statistic}_{'ttft' if one.ttft.n else 'e2e'}_ms"
        for name, one in found[:CLASSES]
        for statistic in ("p50", "p99")
    ]


def standard_figures(documents: list[RunDocument], foreign: bool = False) -> list[ComparedFigure]:
    """The STANDARD figures that every run has, those of any token if a run has reasoning, and goodput if objectives were
    set. *foreign*: also those that result files of other tools have instead.
    """
    have = known_names(documents[0])
    more = OF_REASONING if foreign or any(document.counts.reasoned for document in documents) else ()
    names = (
        *STANDARD[:LATENCY_COUNT], *more, *(OF_OTHER_TOOLS if foreign else ()), *STANDARD[LATENCY_COUNT:], "request_goodput",
        *OF_SESSIONS,
    )  # fmt: skip
    figures = [figure_of(name, documents[0]) for name in names if name in have]
    figures += [figure_of(name, documents[0]) for name in names_of_classes(documents[0])]
    if len({document.config.output.goodput for document in documents}) > 1:  # goodput of other objectives is another
        figures = [figure for figure in figures if figure.metric not in ("request_goodput", "session_goodput")]
    return [figure for figure in figures if all(figure.value(document) is not None for document in documents)]
