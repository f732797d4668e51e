"""Finds operating points among tested load levels (spec/metrics 6.4, 6.6, 7.1; IETF 5.2.2.3, 5.3.4).

All functions take one item per level, in any order; levels are sorted by offered load. NaN is a missing figure of a level.
They return an offered load (or a throughput) of a tested level, never an interpolated one; None where no level has the
property.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastllmload.arrays import Floats

Figures = Sequence[float] | Floats

KNEE_FACTOR = 2.0  # IETF 5.3.4
ATTAINMENT = 0.9  # as in DistServe and most later papers
FLUID_REQUESTS = 0.99  # that must be fluid, failed ones included (etalon's fluid token generation rate)


def ascending(offered: Figures, *columns: Figures) -> list[Floats]:
    """*offered* and *columns* sorted by offered load, without levels that lack one of the figures."""
    table = np.array([offered, *columns], np.float64)
    table = table[:, ~np.isnan(table).any(axis=0)]
    return list(table[:, np.argsort(table[0], kind="stable")])


def knee_point(offered: Figures, ttft_p99: Figures) -> float | None:
    """Lowest load above that of the least TTFT P99 whose TTFT P99 is more than twice as high.

    Levels below the minimum are left out, because a cold first level is not a knee.
    """
    load, latency = ascending(offered, ttft_p99)
    if len(load) == 0:
        return None
    least = int(np.argmin(latency))
    beyond = np.flatnonzero(latency[least + 1 :] > KNEE_FACTOR * latency[least])
    return float(load[least + 1 + beyond[0]]) if len(beyond) else None


def saturation_point(offered: Figures, achieved: Figures) -> float | None:
    """First load whose achieved throughput is below that of the level before it."""
    load, throughput = ascending(offered, achieved)
    falls = np.flatnonzero(np.diff(throughput) < 0)
    return float(load[falls[0] + 1]) if len(falls) else None


def peak_level(offered: Figures, achieved: Figures) -> float | None:
    """The load with the highest achieved throughput; the lowest of several."""
    load, throughput = ascending(offered, achieved)
    return float(load[np.argmax(throughput)]) if len(load) else None


def optimal_point(offered: Figures, achieved: Figures, meets_slo: Sequence[bool] | None) -> float | None:
    """Load with the highest achieved throughput among those that meet the SLO; None without an SLO (None)."""
    if meets_slo is None:
        return None
    mask = np.asarray(meets_slo, np.bool_)
    return peak_level(np.asarray(offered, np.float64)[mask], np.asarray(achieved, np.float64)[mask])


def slo_capacity(offered: Figures, attainment: Figures, least: float = ATTAINMENT) -> float | None:
    """Highest tested load with a SLO attainment of at least *least* (DistServe's goodput)."""
    load, share = ascending(offered, attainment)
    met = load[share >= least]
    return float(met[-1]) if len(met) else None


def fluid_token_generation_rate(
    output_tok_s: Figures, fluid_shares: Figures, least: float = FLUID_REQUESTS
) -> float | None:
    """Highest output tokens/s among levels where at least 99% of the requests are fluid (etalon's sentence)."""
    return slo_capacity(output_tok_s, fluid_shares, least)
