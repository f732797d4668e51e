"""Compares sides with several runs. The run is the unit (spec/procedures 3.4): requests of one run are not independent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastllmload.compare.change import Change, Pair, plain, scaled, undecided
from fastllmload.compare.figure import ComparedFigure
from fastllmload.compare.side import Side
from fastllmload.compare.workload import same_plan
from fastllmload.errors import InputError
from fastllmload.statistics.student import t_quantile, t_two_sided
from fastllmload.statistics.two_samples import Difference, hedges_g, mann_whitney, paired_t, welch

ROUNDING = 1e-9  # relative error of a float
TESTS = ("auto", "welch", "paired", "mann-whitney")
LEAST_RUNS = 3  # below it the spread between runs is hardly known (spec/procedures 3)


def pairs_of(base: Side, new: Side) -> list[int] | None:
    """Position in *new* of the run with the same plan as each run of *base*; None unless they pair one to one."""
    if len(base.runs) != len(new.runs) or len(base.runs) < 2:
        return None
    partners = [[k for k, y in enumerate(new.runs) if same_plan(x, y)] for x in base.runs]
    if any(len(found) != 1 for found in partners) or len({found[0] for found in partners}) != len(partners):
        return None
    return [found[0] for found in partners]


def chosen_test(asked: str, base: Side, new: Side) -> str:
    """The test for "auto": one run against several, paired by arrival seed where possible, else Welch."""
    if 1 in (len(base.runs), len(new.runs)):
        return "one against several"
    pairs = pairs_of(base, new)
    if asked == "paired" and pairs is None:
        raise InputError(
            "pairs-missing",
            f"--test paired needs each run of {base.name} to have one run of {new.name} with the same plan; "
            "give both sides the same seeds and repetitions, or use --test welch",
        )
    return asked if asked != "auto" else "paired" if pairs is not None else "welch"


def change_between(base: Sequence[float], new: Sequence[float], test: str, pairs: Sequence[int] | None) -> Change:
    """The change, from one value per run; *test* is a result of `chosen_test`."""
    middle = float(np.mean(base)), float(np.mean(new))
    if test == "one against several":
        return _one_against_several(base, new, middle)
    partners = [new[k] for k in pairs] if test == "paired" and pairs is not None else None
    if partners is not None and not alike(base, partners):
        found, p = paired_t(base, partners), None
    else:
        found = welch(base, new)
        p = mann_whitney(base, new) if test == "mann-whitney" else None
    return _change(found, middle, p, hedges_g(base, new), "Mann-Whitney" if p is not None else found.test)


def alike(base: Sequence[float], partners: Sequence[float]) -> bool:
    """Whether all pairs differ by the same amount other than 0, such as one request at the edge of the window. Such
    differences contain no information on the variation between runs.
    """
    gaps = np.subtract(partners, base)
    return bool(gaps.any() and np.ptp(gaps) <= ROUNDING * float(np.abs([*base, *partners]).max()))


def without_variation(figure: ComparedFigure, base: Sequence[float], new: Sequence[float]) -> str | None:
    """Why runs do not show how a rate varies: each side counted the same in all of them, so that the difference may be one
    request or session more at the end of a window. None where they do.
    """
    if figure.statistic is not None or not figure.unit.endswith("/s") or base[0] == new[0]:
        return None
    fixed = len(set(base)) == len(set(new)) == 1 and max(len(base), len(new)) > 1
    return (
        "all runs of a side counted the same, which does not show how the rate varies: measure longer"
        if fixed
        else None
    )


def _change(found: Difference, middle: Pair, p: float | None, effect: float | None, test: str) -> Change:
    ends = (found.low, found.high)
    p = found.p if p is None else p
    return Change(*plain(*middle), ends, scaled(ends, middle[0]), test, p, None, effect, "hedges_g")


def _one_against_several(base: Sequence[float], new: Sequence[float], middle: Pair) -> Change:
    """Test of one run against the distribution of several runs (Crawford and Howell 1998)."""
    several = np.asarray(new if len(base) == 1 else base, np.float64)
    if len(several) < LEAST_RUNS:
        return undecided(*middle, f"one run against {len(several)}: give at least {LEAST_RUNS} runs on one side")
    df, spread = len(several) - 1, float(several.std(ddof=1))
    error, difference = spread * math.sqrt(1 + 1 / len(several)), middle[1] - middle[0]
    half = t_quantile(0.975, df) * error
    p = t_two_sided(difference / error, df) if error > 0 else float(difference == 0)
    ends = (difference - half, difference + half)
    effect = difference / spread if spread > 0 else None
    test = "one run against several"
    return Change(*plain(*middle), ends, scaled(ends, middle[0]), test, p, None, effect, "standard_deviations")
