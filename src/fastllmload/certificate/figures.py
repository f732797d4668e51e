"""Computes how far each headline figure may lie from the truth, and its verdict.

The bounds of a figure (`metrics.<name>.bounds` in run.json) are that figure computed from all lower and from all upper
bounds of its values (`metrics.run.bounds`). One rule applies to all: an error of at most 2 % of the figure, or 100 us, is
valid; of at most 10 %, or 500 us, suspect; a larger one invalid.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastllmload.documents.certificate import FigureVerdict, StatisticBounds
from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument

VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"
SEVERITIES = (VALID, SUSPECT, INVALID)
LIMITS = ((0.02, 0.1, VALID), (0.10, 0.5, SUSPECT))  # share of the figure, and ms: the larger one applies
STATISTICS = ("p50", "p99")
GAPS = ("itl", "tbc", "itl_b")  # the one that the run pooled
OF_REASONING = ("ttft_any", "tpot_any")  # for runs with reasoning or with an objective on them
LATENCIES = ("ttft", "ttft_sched", "ttft_any", "tpot", "tpot_any", *GAPS, "e2e", "e2e_sched")
NAMES = {
    "ttft": "TTFT",
    "ttft_sched": "TTFT from the scheduled instant",
    "ttft_any": "TTFT (any token)",
    "tpot": "TPOT",
    "tpot_any": "TPOT (all tokens)",
    "itl": "ITL",
    "tbc": "time between chunks",
    "itl_b": "ITL",
    "e2e": "E2E latency",
    "e2e_sched": "E2E latency from the scheduled instant",
}


@dataclass(frozen=True)
class FigureBound:
    """A statistic of a metric in ms: as stated, and the bounds between which the true one lies."""

    metric: str
    statistic: str
    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The largest possible distance of the true figure from the stated one, in ms."""
        return max(self.value - self.low, self.high - self.value, 0.0)

    @property
    def share(self) -> float:
        """The same as a share of the figure."""
        return self.error / self.value if self.value > 0 else 0.0

    @property
    def severity(self) -> str:
        return next((name for share, ms, name in LIMITS if self.error <= max(share * self.value, ms)), INVALID)

    @property
    def limit(self) -> float:
        """The largest limit in ms that the error exceeds; where it exceeds none, the smallest limit."""
        limits = [max(share * self.value, ms) for share, ms, _ in LIMITS]
        exceeded = [limit for limit in limits if self.error > limit]
        return exceeded[-1] if exceeded else limits[0]


def headline_figures(document: RunDocument) -> tuple[FigureBound, ...]:
    """P50 and P99 of the headline metrics of a run.json: TTFT, TPOT, ITL and E2E, from the submission and from the scheduled
    instant, and those that include reasoning where answers have some.
    """
    named, found = {name.rpartition("/")[2] for name, _ in document.config.output.goodput}, []
    for name in LATENCIES:
        if name in OF_REASONING and not document.counts.reasoned and name not in named:
            continue
        metric = document.metric(name)
        for statistic in STATISTICS:
            low, high = (known(each) for each in metric.bounds.get(statistic) or (None, None))
            value = known(metric.statistic(statistic))
            if low is not None and high is not None and value is not None:
                found.append(FigureBound(name, statistic, value, low, high))
    return tuple(found)


def worst_by_metric(figures: tuple[FigureBound, ...]) -> dict[str, FigureBound]:
    """The figure with the worst severity of each metric; among equals the one with the largest share of error."""
    worst: dict[str, FigureBound] = {}
    for figure in figures:
        known = worst.get(figure.metric)
        if known is None or rank(figure) > rank(known):
            worst[figure.metric] = figure
    return worst


def rank(figure: FigureBound) -> tuple[int, float]:
    return SEVERITIES.index(figure.severity), figure.share


def describe_figures(figures: tuple[FigureBound, ...]) -> dict[str, FigureVerdict]:
    """`certificate.figures`: by metric its verdict, and by statistic the value, its bounds and the error as a share."""
    bounds = {
        (one.metric, one.statistic): StatisticBounds(value=one.value, low=one.low, high=one.high, error_share=one.share)
        for one in figures
    }
    return {
        name: FigureVerdict(verdict=worst.severity, p50=bounds.get((name, "p50")), p99=bounds.get((name, "p99")))
        for name, worst in worst_by_metric(figures).items()
    }


def sentence(figure: FigureBound) -> str:
    """The sentence that states a figure, its bounds and its error."""
    name = NAMES[figure.metric]
    where = f"P{figure.statistic[1:]} of {name} is {ms(figure.value)} and may be "
    ends = [f"as low as {ms(figure.low)}"] if figure.value - figure.low >= figure.error / 2 else []
    ends += [f"as high as {ms(figure.high)}"] if figure.high - figure.value >= figure.error / 2 else []
    away = f" ({100 * figure.share:.3g} % away)" if figure.value > 0 else ""
    return f"{where}{' or '.join(ends)}{away}"


def ms(value: float) -> str:
    return f"{value:,.4g} ms" if value < 1000 else f"{value:,.0f} ms"
