"""What a result file of another tool says, in terms of this project: metrics by our definitions, and where theirs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers
from fastllmload.compare.figure import GAPS, ComparedFigure
from fastllmload.documents.metric import Distribution, Metric, Value
from fastllmload.documents.run import RunDocument, Tool
from fastllmload.documents.run_parts.counts import Counts
from fastllmload.documents.run_parts.target import TargetFacts
from fastllmload.metrics.distribution.summary import distribution, without_nulls
from fastllmload.metrics.tokens.itl import DIRECT_ABOVE, NAMES
from fastllmload.records.run import DONE
from fastllmload.statistics.interval import Sample

NS_PER_S = 1e9
NO_VALUES = np.empty(0)
# How tools define figures alike: rates, the start of a request, and what to compare in place of a rate of ours.
WITH_DRAIN = "of all successful requests over the time from the first request to the last answer, drain included"
FROM = "from before the request is written, not from its last byte"
RATES_WITHOUT = {
    "output_tok_s": "its rate includes the drain: compare output_tok_s_makespan",
    "req_s": "its rate includes the drain: compare req_s_makespan",
}


@dataclass(frozen=True)
class ForeignRequests:
    """The requests of a file, in order of sending. *ok*: of all of them, which succeeded; the others are of those only:
    *latencies* by our metric in ns, NaN for null; *gaps* between chunks in ns, request k has `gaps[first[k]:first[k + 1]]`;
    *output_tokens*.
    """

    ok: Mask
    latencies: Mapping[str, Floats]
    output_tokens: Numbers
    gaps: Floats = field(default_factory=lambda: NO_VALUES)
    first: Numbers | None = None

    @property
    def gaps_name(self) -> str:
        """`itl` where nearly every chunk has one token, by the rule for our own runs; else `tbc`."""
        if self.first is None:
            return NAMES["A"]
        sizes = np.diff(self.first)
        streamed = self.output_tokens > 0
        chunks, tokens = int((sizes + 1)[streamed].sum()), int(self.output_tokens[streamed].sum())
        return NAMES["direct"] if chunks > 0 and 1 - abs(tokens - chunks) / chunks > DIRECT_ABOVE else NAMES["A"]

    def has(self, figure: ComparedFigure) -> bool:
        """Whether the figure is computed from values of each request, or of which of them succeeded."""
        if figure.metric in GAPS:
            return self.first is not None
        return figure.statistic is None or figure.metric in self.latencies

    def metrics(self) -> dict[str, Metric]:
        found: dict[str, Metric] = {name: distribution(values, "ms") for name, values in self.latencies.items()}
        if self.first is not None:
            found[self.gaps_name] = distribution(self.gaps, "ms", first=self.first)
        return found


@dataclass(frozen=True)
class ForeignResult:
    """A result file. *metrics*: its summaries, replaced by those of *requests* where the file has them.

    *theirs*: by our metric, the name of theirs and in what its definition differs; *without*: why our metrics that one would
    look for are missing; *advice*: what to do for values of each request. *load*: `10 requests/s`, as far as known.
    """

    tool: str
    theirs: Mapping[str, str]
    without: Mapping[str, str]
    advice: str
    version: str | None = None
    model: str | None = None
    completed: int | None = None
    failed: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None
    load: str | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    requests: ForeignRequests | None = None
    notes: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """` (...)`: what would give an interval."""
        return f" ({self.advice}, or compare several runs)" if self.advice else ""

    def document(self) -> RunDocument:
        """The figures as a run's document; everything that the file does not say is missing in it."""
        of_requests = self.requests.metrics() if self.requests is not None else {}
        gaps = next((name for name in GAPS if name in of_requests), NAMES["A"])
        sent = None if self.completed is None or self.failed is None else self.completed + self.failed
        found: dict[str, Metric | None] = {
            **{name: each for name, each in self.metrics.items() if name not in GAPS or gaps not in of_requests},
            **of_requests,
            "share_single": Value(unit="share", pooled_as=gaps),
        }
        if sent and self.completed is not None:
            found["success_rate"] = Value(unit="share", value=self.completed / sent)
        return RunDocument(
            status=DONE,
            tool=Tool(name=self.tool, version=self.version),
            target=TargetFacts(model=self.model),
            metrics=found,
            counts=Counts(
                ok=self.completed, failed=self.failed, input_tokens=self.input_tokens, output_tokens=self.output_tokens
            ),
            duration=self.seconds,
            completed=self.completed,
            failed=self.failed,
            total_input_tokens=self.input_tokens,
            total_output_tokens=self.output_tokens,
        )


class ForeignSeries:
    """The series of a result file with values of each request."""

    def __init__(self, requests: ForeignRequests, name: str) -> None:
        self.given, self.name = requests, name

    @property
    def latencies(self) -> Mapping[str, Floats]:
        return self.given.latencies

    def sample(self, figure: ComparedFigure) -> Sample | None:
        first = self.given.first if figure.metric in GAPS else None
        values = self.given.gaps if first is not None else without_nulls(self.latencies.get(figure.metric, NO_VALUES))
        return Sample(values, np.sort(values), first) if len(values) else None

    def requests(self, figure: ComparedFigure) -> Numbers:
        """None: the requests of another tool have no number in a plan."""
        return np.empty(0, np.int64)

    def successes(self, figure: ComparedFigure) -> Mask:
        return self.given.ok

    def rates(self, figure: ComparedFigure) -> None:
        """None: a file has no window, whose parts would show how a rate varies."""


def summary(
    found: Mapping[str, Any], names: Mapping[str, str], scale: float = 1.0, n: int | None = None
) -> Metric | None:
    """A distribution in ms from the statistics of a file: *names* has our name of each of theirs. None without a median,
    and of no values, for which tools write zeros.
    """
    values = {ours: float(value) * scale for theirs, ours in names.items() if is_number(value := found.get(theirs))}
    return None if "p50" not in values or not any(values.values()) else replace(Distribution(unit="ms", n=n), **values)


def rate(value: Any, unit: str) -> Metric | None:
    return Value(unit=unit, value=float(value)) if is_number(value) else None


def known_only(metrics: Mapping[str, Metric | None]) -> dict[str, Metric]:
    return {name: each for name, each in metrics.items() if each is not None}


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_number(value: Any) -> int | None:
    return round(value) if is_number(value) else None


def load_text(rate: object, in_flight: object) -> str:
    """`10 requests/s, at most 8 in flight`, `8 in flight`, `all at once`, from a rate ("inf": at once) and a limit."""
    finite = is_number(rate) and rate != float("inf")
    if not finite:
        return f"{in_flight} in flight" if in_flight else "all at once"
    return f"{rate:g} requests/s" + (f", at most {in_flight} in flight" if in_flight else "")
