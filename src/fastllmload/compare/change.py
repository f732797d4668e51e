"""The change of a figure between two sides: difference, interval, test and effect size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

SIGNIFICANT = 0.05
NOTEWORTHY = 0.01  # relative difference
LEAST_P = 1e-300

Pair = tuple[float, float]  # of base and new; or the ends of an interval


@dataclass(frozen=True)
class Change:
    """*difference* is in the figure's unit (new - base), *relative* is new / base - 1; both with 95 % intervals.

    *p* is two-sided, *p_holm* is adjusted for all compared figures. *effect*: Hedges' g over runs, or the probability
    that a request of the new side takes longer than one of the base (*effect_kind*). *why_not*: why the interval is missing;
    *lacking*: which side needs how many requests for one. The differences are set in that case too. *pairs*: number of
    paired requests; None where requests were not paired. *clocks*: how far below and above the true difference may lie,
    since events' times are known within bounds only; the interval and *p* allow for it.
    """

    difference: float | None
    relative: float | None
    interval: Pair | None = None
    relative_interval: Pair | None = None
    test: str | None = None
    p: float | None = None
    p_holm: float | None = None
    effect: float | None = None
    effect_kind: str | None = None
    why_not: str | None = None
    lacking: tuple[str, int] | None = None
    pairs: int | None = None
    clocks: Pair | None = None

    @property
    def shown(self) -> bool:
        """The claim rule (spec/procedures 3.4): p below 0.05 after Holm, and an interval without 0."""
        p = self.p if self.p_holm is None else self.p_holm
        return p is not None and p < SIGNIFICANT and self.excludes_zero

    @property
    def excludes_zero(self) -> bool:
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def open_by_clocks(self) -> bool:
        """Whether the difference is noteworthy, but within the bounds of the events' times."""
        if self.clocks is None or self.difference is None or self.relative is None:
            return False
        return abs(self.relative) >= NOTEWORTHY and abs(self.difference) <= self.clocks[self.difference < 0]

    def measured_within(self, below: float, above: float, base: float) -> Change:
        """The change, where the true difference may lie up to *below* lower and *above* higher (in the figure's unit). The
        interval is widened by both, and p is that of a difference nearer to 0 by as much (normal limit: conservative).
        """
        if self.interval is None or self.difference is None:
            return replace(self, clocks=(below, above))
        ends, relative = (self.interval[0] - below, self.interval[1] + above), self.relative_interval
        if relative is not None and base > 0:
            relative = relative[0] - below / base, relative[1] + above / base
        p = self.p if self.p is None else _p_nearer(self.p, self.difference, below if self.difference > 0 else above)
        return replace(self, interval=ends, relative_interval=relative, p=p, clocks=(below, above))

    def adjusted(self, p_holm: float) -> Change:
        return replace(self, p_holm=p_holm)


def _p_nearer(p: float, difference: float, by: float) -> float:
    """p of a *difference* moved towards 0 *by* an amount."""
    ratio, normal = (1 - by / abs(difference) if difference else 0.0), NormalDist()
    return 2 * normal.cdf(ratio * normal.inv_cdf(max(p, LEAST_P) / 2)) if ratio > 0 else 1.0


def undecided(base: float | None, new: float | None, why_not: str, lacking: tuple[str, int] | None = None) -> Change:
    return Change(*plain(base, new), why_not=why_not, lacking=lacking)


def plain(base: float | None, new: float | None) -> tuple[float | None, float | None]:
    """(difference, relative); relative is None for a base of 0."""
    if base is None or new is None:
        return None, None
    return new - base, None if base == 0 else new / base - 1


def scaled(ends: Pair, by: float) -> Pair | None:
    """Relative interval of an absolute one; None for a base that is not positive."""
    return (ends[0] / by, ends[1] / by) if by > 0 else None
