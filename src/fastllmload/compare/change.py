"""How a figure changed from one side to the other: the difference, its interval, its test, its effect size."""

from __future__ import annotations

from dataclasses import dataclass, replace

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Change:
    """*difference* is in the figure's unit (new - base), *relative* is new / base - 1; both with 95 % intervals.

    *p* is two-sided, *p_holm* allows for all the figures that were compared. *effect*: Hedges' g over runs, or the
    chance that a request of the new side takes longer than one of the base (*effect_kind*). *why_not* says why there is
    no interval, *lacking* which side needs how many requests for one; the differences stand even then. *pairs*: how many
    requests were compared with themselves; None where requests were not paired.
    """

    difference: float | None
    relative: float | None
    interval: tuple[float, float] | None = None
    relative_interval: tuple[float, float] | None = None
    test: str | None = None
    p: float | None = None
    p_holm: float | None = None
    effect: float | None = None
    effect_kind: str | None = None
    why_not: str | None = None
    lacking: tuple[str, int] | None = None
    pairs: int | None = None

    @property
    def shown(self) -> bool:
        """The claim rule (procedures 3.4): p below 0.05 after Holm, and an interval without 0."""
        p = self.p if self.p_holm is None else self.p_holm
        return p is not None and p < SIGNIFICANT and self.excludes_zero

    @property
    def excludes_zero(self) -> bool:
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def adjusted(self, p_holm: float) -> Change:
        """The same among other tests."""
        return replace(self, p_holm=p_holm)


def undecided(base: float | None, new: float | None, why_not: str, lacking: tuple[str, int] | None = None) -> Change:
    """A difference without an interval."""
    return Change(*plain(base, new), why_not=why_not, lacking=lacking)


def plain(base: float | None, new: float | None) -> tuple[float | None, float | None]:
    """(difference, relative); relative is None for a base of 0."""
    if base is None or new is None:
        return None, None
    return new - base, None if base == 0 else new / base - 1


def scaled(ends: tuple[float, float], by: float) -> tuple[float, float] | None:
    """Relative interval of an absolute one; None for a base that is not positive."""
    return (ends[0] / by, ends[1] / by) if by > 0 else None
