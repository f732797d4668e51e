"""Latencies of a pair of runs over the calls, or sessions, that both have measured.

A session is a sequence. Where calls take longer, a run is less far into its sessions when sending ends: it has fewer late
calls, whose prompts are longer, and fewer long sessions have ended. The calls that both runs have are the same each way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastllmload.compare.comparison import series_of
from fastllmload.compare.figure import ComparedFigure
from fastllmload.compare.paired import common_units, own
from fastllmload.compare.series import ValueSeries
from fastllmload.compare.side import Side

Values = tuple[float | None, ...]


def has_sessions(sides: Sequence[Side]) -> bool:
    return all(document.sessions is not None for side in sides for document in side.documents)


def over_common_calls(
    figures: Sequence[ComparedFigure], direct: Side, through: Side
) -> dict[ComparedFigure, tuple[Values, Values]]:
    """The values of each run of both ways, for figures that are computed from one value a call or session. Run k of one way
    and run k of the other are a pair; None where they have none in common.
    """
    by_pair = []
    for each in zip(direct.runs, through.runs, strict=True):
        series = [series_of(Side("", (run,))) for run in each]
        totals = {figure: [figure.value(run.document) for run in each] for figure in figures}
        by_pair.append({figure: of_pair(figure, series, totals[figure]) for figure in figures})
    found = {}
    for figure in figures:
        values = [each[figure] for each in by_pair]
        if None not in values:
            x, y = zip(*filter(None, values), strict=True)
            found[figure] = x, y
    return found


def of_pair(
    figure: ComparedFigure, series: Sequence[ValueSeries | None], totals: Sequence[float | None]
) -> tuple[float | None, float | None] | None:
    """The figure both ways, in its unit, over what both runs have; None where it is not computed from such values. *totals*:
    over all that each run has.
    """
    samples = [None if each is None else each.sample(figure) for each in series]
    a, b = samples
    if figure.statistic is None or a is None or b is None or None in totals:
        return None
    numbers = [each.requests(figure) for each in series if each is not None]
    if any(len(np.unique(each)) < len(each) for each in numbers):
        return None
    found = common_units(a, b, *numbers)
    if found.n == 0:
        return None, None
    ours, theirs = (
        scaled(own(part, figure.level), own(every, figure.level), total)
        for part, every, total in ((found.a, a, totals[0]), (found.b, b, totals[1]))
    )
    return ours, theirs


def scaled(part: float, every: float, total: float | None) -> float | None:
    """*part* in the unit of *total*, which is *every* in another unit."""
    return total if total is None or every == 0 else part * total / every
