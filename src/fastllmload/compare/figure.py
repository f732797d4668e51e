"""Resolves names of figures to compare, such as `p99_ttft_ms`, `output_tok_s`, `success_rate`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.classes import ClassResult, PartResult
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
CLASS, MODEL, BACKEND = "class", "model", "backend"
LATENCIES_OF = {
    CLASS: ("ttft", "ttft_sched", "tpot", "itl", "e2e", "e2e_sched"),
    MODEL: ("ttft", "tpot", "itl", "e2e"),
    BACKEND: ("ttft", "tpot", "itl", "e2e"),
}
RATES = {"req_s": "requests/s", "output_tok_s": "tokens/s", "success_rate": "share"}
RATES_OF = {
    CLASS: RATES | {"input_tok_s": "tokens/s"},
    MODEL: RATES | {"slo_attainment": "share"},
    BACKEND: RATES | {"slo_attainment": "share"},
}
PARTS = 10  # of each kind with figures among the standard ones
OF_REASONING = tuple(f"{statistic}_{metric}_ms" for metric in ("ttft_any", "tpot_any") for statistic in ("p50", "p99"))


@dataclass(frozen=True)
class TrafficPart:
    """The requests of one class, of one model or adapter, or of one server of a router."""

    kind: str
    name: str
    of_class: str | None = None  # of a model: in which class; None: in all

    @property
    def prefix(self) -> str:
        """Of the names of its figures: `chat/`, `model:sql/`, `chat/model:sql/`, `backend:10.0.0.3:8000/`."""
        head = "" if self.of_class is None else f"{self.of_class}/"
        return f"{self.name}/" if self.kind == CLASS else f"{head}{self.kind}:{self.name}/"

    def result(self, document: RunDocument) -> ClassResult | PartResult | None:
        """Its figures in a run; None where the run does not have it."""
        if self.kind == CLASS:
            return (document.classes or {}).get(self.name)
        found = results_of(document, self.kind, self.of_class)
        return next((one for one in found if one.name == self.name), None)


def results_of(document: RunDocument, kind: str, of_class: str | None = None) -> Sequence[PartResult]:
    """Of models, or of backends, those with the most requests first."""
    if kind == MODEL:
        of_classes = document.classes or {}
        found = document.models if of_class is None else of_classes[of_class].models if of_class in of_classes else ()
        return sorted(found, key=lambda one: -(known(one.sent) or 0))
    return () if document.backends is None else document.backends.each


@dataclass(frozen=True)
class ComparedFigure:
    """*name* as printed; *metric*: its entry of `metrics`; *statistic*: None where the entry is a single number.

    *scale*: factor from the entry's unit to that of the name (a metric in s requested in ms: 1000). *part*: the requests
    whose entry it is; None: all.
    """

    name: str
    metric: str
    statistic: str | None
    unit: str
    scale: float = 1.0
    part: TrafficPart | None = None

    @property
    def level(self) -> float | None:
        """Share of the values below the percentile; None for a mean or a single number."""
        return LEVELS.get(self.statistic or "")

    @property
    def higher_is_better(self) -> bool:
        return HIGHER_IS_BETTER.search(self.metric) is not None

    @property
    def observed(self) -> str:
        """What gives one value each: sessions, or requests."""
        return "sessions" if self.metric.startswith("session") else "requests"

    @property
    def is_share(self) -> bool:
        """Whether differences are printed in points, as relative changes of a failure rate are misleading."""
        return self.unit == "share"

    def entry(self, document: RunDocument) -> Metric | None:
        return entry_of(document, self.metric) if self.part is None else entry_of_part(document, self, self.part)

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
        part are as far from its value as those of all requests.
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


def entry_of_part(document: RunDocument, figure: ComparedFigure, part: TrafficPart) -> Metric | None:
    """The entry of a part of the traffic as a metric; None where the run has no such part."""
    result = part.result(document)
    names = GAPS if figure.metric == "itl" else (figure.metric,)
    entries = [getattr(result, name, None) for name in names]
    found = next((one for one in entries if isinstance(one, Metric) and one.n), entries[0])
    return found if isinstance(found, Metric) or found is None else Metric(value=found, unit=figure.unit)


def gaps_of(document: RunDocument) -> str:
    """`itl`, `tbc` or `itl_b`: which kind the run's gaps are, by how the server delivered tokens."""
    return document.metric("share_single").pooled_as or "itl"


def has_gaps(document: RunDocument) -> bool:
    """Whether the run has any gap; answers that are all reasoning have none."""
    return bool(document.metric(gaps_of(document)).n)


def figure_of(name: str, document: RunDocument) -> ComparedFigure:
    """The figure *name* of the run *document*. InputError for an unknown name, with similar ones."""
    of_part, slash, rest = name.rpartition("/")
    if slash:
        return figure_of_part(name, of_part, rest, document)
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


def part_of(of_part: str, name: str, document: RunDocument) -> TrafficPart:
    """The part of the traffic that `chat`, `model:NAME`, `chat/model:NAME` or `backend:NAME` names in a figure, *name*.
    InputError for one that the run lacks.
    """
    head, _, model = of_part.partition(f"/{MODEL}:")
    kind, colon, rest = of_part.partition(":")
    if model and head in (document.classes or {}):
        part = TrafficPart(MODEL, model, head)
    else:
        part = TrafficPart(kind, rest) if colon and kind in (MODEL, BACKEND) else TrafficPart(CLASS, of_part)
    if part.result(document) is not None:
        return part
    have = (
        (document.classes or {})
        if part.kind == CLASS
        else [one.name for one in results_of(document, part.kind, part.of_class)]
    )
    kinds = {CLASS: "classes", MODEL: "models", BACKEND: "backends"}[part.kind]
    listed = ", ".join([str(each) for each in have][:PARTS])
    more = f" and {len(have) - PARTS} more" if len(have) > PARTS else ""
    has = f"their {kinds} are {listed}{more}" if have else f"they have no {kinds}"
    raise InputError("figure-unknown", f"{name!r} is not a figure of these runs: {has}")


def figure_of_part(name: str, of_part: str, rest: str, document: RunDocument) -> ComparedFigure:
    """The figure *rest* of a part of the run *document*. InputError for a part or a figure that it does not have."""
    part = part_of(of_part, name, document)
    rates, latencies = RATES_OF[part.kind], LATENCIES_OF[part.kind]
    metric = OTHER_NAMES.get(rest, rest)
    if metric in rates:
        return ComparedFigure(name, metric, None, rates[metric], part=part)
    statistic, metric, unit = parsed(rest)  # type: ignore[assignment]
    if statistic is None or metric not in latencies or unit == "s":
        raise InputError(
            "figure-unknown",
            f"{name!r} is not a figure of a {part.kind}; write {part.prefix}p99_e2e_ms or another statistic of "
            f"{', '.join(latencies)}, or {', '.join(rates)}",
        )
    return ComparedFigure(name, metric, STATISTICS[statistic], "ms", part=part)


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


def slots_of_a_mix(documents: Sequence[RunDocument]) -> list[str]:
    """The closed classes of runs of several classes."""
    plans = [one.plan.description for one in documents if len(one.plan.description.classes) > 1]
    return list(dict.fromkeys(str(plan.classes[number].name) for plan in plans for number in plan.closed_classes))


def weighed_otherwise(figure: ComparedFigure, documents: Sequence[RunDocument]) -> str | None:
    """Why a latency or a share of several classes together does not show what changed for a request: a closed class sends
    fewer requests the longer they take, so its share of all of them changes. None where it does.
    """
    part, closed = figure.part, slots_of_a_mix(documents)
    if not closed or (figure.statistic is None and not figure.is_share):
        return None
    of_sessions = {str(one.name) for each in documents for one in each.plan.description.classes if one.has_sessions}
    if figure.observed == "sessions" and len(of_sessions) < 2:
        return None
    if part is not None and (part.kind == CLASS or part.of_class is not None):
        return None
    return (
        f"requests of {', '.join(closed)} (closed) are another share of all on each side; see the figures of each class"
    )


def mix_notes(documents: Sequence[RunDocument]) -> Iterator[str]:
    """That runs with closed classes are compared by class."""
    closed = slots_of_a_mix(documents)
    if closed:
        yield (
            f"latencies and shares are compared by class: {', '.join(closed)} (closed) sends fewer requests where they take "
            "longer, so that all requests together are another mix on each side"
        )


def names_of_parts(document: RunDocument) -> list[str]:
    """P50 and P99 of TTFT, or of E2E where answers are not tokens, of each class of the run (not of a data set), each model,
    by class where one asks several, and each backend; none of backends where their header may not name any. In a mix with a
    closed class all latencies of each class, and its share of successes, as those of all together are not comparable.
    """
    classes = [(name, one) for name, one in (document.classes or {}).items() if one.endpoint_type is not None]
    named: list[tuple[TrafficPart, ClassResult | PartResult]] = [
        (TrafficPart(CLASS, name), one) for name, one in classes[:PARTS]
    ]
    with_models: list[str | None] = [name for name, one in classes[:PARTS] if one.models]
    for of_class in with_models or [None]:
        named += [
            (TrafficPart(MODEL, str(one.name), of_class), one) for one in results_of(document, MODEL, of_class)[:PARTS]
        ]
    if document.backends is not None and document.backends.caveat is None:
        named += [
            (TrafficPart(BACKEND, one.name), one) for one in document.backends.each[:PARTS] if one.name is not None
        ]
    closed = bool(slots_of_a_mix([document]))
    found = []
    for part, one in named:
        first = "ttft" if one.ttft.n else "e2e"
        by_class = closed and part.kind == CLASS
        metrics = dict.fromkeys((first, "tpot", "itl", "e2e")) if by_class and one.ttft.n else (first,)
        found += [f"{part.prefix}{statistic}_{metric}_ms" for metric in metrics for statistic in ("p50", "p99")]
        found += [f"{part.prefix}success_rate"] if by_class else []
    return found


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
    figures += [figure_of(name, documents[0]) for name in names_of_parts(documents[0])]
    if len({document.config.output.goodput for document in documents}) > 1:  # goodput of other objectives is another
        figures = [figure for figure in figures if figure.metric not in ("request_goodput", "session_goodput")]
    figures = [one for one in figures if weighed_otherwise(one, documents) is None]
    return [figure for figure in figures if all(figure.value(document) is not None for document in documents)]
