"""How far each headline figure may lie from the truth, and what that makes of the verdict.

A figure's bounds are in run.json (`metrics.<name>.bounds`): that figure of all lower and of all upper ends of what it is
made of (`metrics.run.bounds`). The rule is one for all: an error of at most 2 % of the figure, or 100 us, is valid; of at
most 10 %, or 500 us, suspect; of more, invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastllmload.metrics.objectives.objective import asked_of

VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"
SEVERITIES = (VALID, SUSPECT, INVALID)
LIMITS = ((0.02, 0.1, VALID), (0.10, 0.5, SUSPECT))  # share of the figure, or ms: whichever is larger
STATISTICS = ("p50", "p99")
GAPS = ("itl", "tbc", "itl_b")  # of these the one that was pooled
OF_REASONING = ("ttft_any", "tpot_any")  # of runs with reasoning, and of those with an objective on them
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
    """A statistic of a metric in ms: as stated, and the ends between which the true one lies."""

    metric: str
    statistic: str
    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far the true figure may be away, in ms."""
        return max(self.value - self.low, self.high - self.value, 0.0)

    @property
    def share(self) -> float:
        """The same as a share of the figure."""
        return self.error / self.value if self.value > 0 else 0.0

    @property
    def severity(self) -> str:
        """VALID, SUSPECT or INVALID by the rule."""
        return next((name for share, ms, name in LIMITS if self.error <= max(share * self.value, ms)), INVALID)

    @property
    def limit(self) -> float:
        """The error in ms that it passed, or may have: the next one below its own."""
        passed = [max(share * self.value, ms) for share, ms, _ in LIMITS if self.error > max(share * self.value, ms)]
        return passed[-1] if passed else max(LIMITS[0][0] * self.value, LIMITS[0][1])


def headlines_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics of a run.json whose figures decide on its verdict."""
    asked = {name.rpartition("/")[2] for name, _ in asked_of(document)}
    reasoned = bool((document.get("counts") or {}).get("reasoned"))
    return tuple(name for name in LATENCIES if name not in OF_REASONING or reasoned or name in asked)


def headline_figures(document: Mapping[str, Any]) -> tuple[FigureBound, ...]:
    """P50 and P99 of TTFT, TPOT, ITL and E2E, from the submission and from the scheduled instant, of a run.json; with the
    reasoning too, where answers have some.
    """
    metrics = document.get("metrics") or {}
    found = []
    for name in headlines_of(document):
        metric = metrics.get(name) or {}
        for statistic in STATISTICS:
            ends, value = (metric.get("bounds") or {}).get(statistic), metric.get(statistic)
            if ends is not None and value is not None:
                found.append(FigureBound(name, statistic, float(value), float(ends[0]), float(ends[1])))
    return tuple(found)


def worst_by_metric(figures: tuple[FigureBound, ...]) -> dict[str, FigureBound]:
    """Of each metric the figure with the worst severity, and of those the one that is least certain."""
    worst: dict[str, FigureBound] = {}
    for figure in figures:
        held = worst.get(figure.metric)
        if held is None or rank(figure) > rank(held):
            worst[figure.metric] = figure
    return worst


def rank(figure: FigureBound) -> tuple[int, float]:
    return SEVERITIES.index(figure.severity), figure.share


def described(figures: tuple[FigureBound, ...]) -> dict[str, dict[str, Any]]:
    """`certificate.figures`: by metric its verdict, and by statistic the value, its ends and the error as a share."""
    worst = worst_by_metric(figures)
    return {
        name: {
            "verdict": worst[name].severity,
            **{
                one.statistic: {"value": one.value, "low": one.low, "high": one.high, "error_share": one.share}
                for one in figures
                if one.metric == name
            },
        }
        for name in worst
    }


def sentence(figure: FigureBound) -> str:
    """What is uncertain, in the unit of the figure."""
    name = NAMES[figure.metric]
    where = f"P{figure.statistic[1:]} of {name} is {ms(figure.value)} and may be "
    ends = [f"as low as {ms(figure.low)}"] if figure.value - figure.low >= figure.error / 2 else []
    ends += [f"as high as {ms(figure.high)}"] if figure.high - figure.value >= figure.error / 2 else []
    away = f" ({100 * figure.share:.3g} % away)" if figure.value > 0 else ""
    return f"{where}{' or '.join(ends)}{away}"


def ms(value: float) -> str:
    return f"{value:,.4g} ms" if value < 1000 else f"{value:,.0f} ms"
