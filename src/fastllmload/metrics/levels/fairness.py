"""Computes how evenly requests and request classes were served (IETF 5.6.4; spec/metrics 7.4, 7.5)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Floats, Numbers
from fastllmload.documents.procedure import ByStatistic
from fastllmload.documents.run_parts.classes import ClassFairness, Fairness, JainIndex
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.objectives.objective import class_name
from fastllmload.metrics.request.durations import NULL, committed, to_float, ttft
from fastllmload.metrics.request.tpot import norm_latency, spaced, tpot
from fastllmload.metrics.run.window import Populations
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.records.run import Run

UNFAIR_BELOW = 0.9  # IETF 5.6.4
STARVED_ABOVE = 5  # times the median wait of the class


def jain_index(x: Floats) -> float | None:
    """(sum x)^2 / (n sum x^2) over the values that are not NaN, in [1/n, 1]; None without a value other than 0.

    Scale-free: it shows that values are even, not that they are low.
    """
    known = x[~np.isnan(x)]
    largest = float(np.max(np.abs(known), initial=0.0))
    if largest == 0:
        return None
    shares = known / largest  # squares of very small or large values would leave the range of a float
    return float(shares.sum() ** 2 / (len(shares) * (shares * shares).sum()))


def normalised(ttft: Floats, request_class: npt.NDArray[np.integer], isolated_p50: dict[int, float]) -> Floats:
    """ttft / P50 of the isolated TTFT of the request's class, in the same unit; NaN for a class without that figure."""
    base = np.full(len(ttft), np.nan)
    for number, p50 in isolated_p50.items():
        base[request_class == number] = p50 if p50 > 0 else np.nan
    shares: Floats = ttft / base
    return shares


def starvation_rate(wait_ns: Numbers, ended_ns: Numbers) -> float | None:
    """Share of one class's requests that waited more than 5 times its median wait; None without a median.

    *wait_ns*: TTFT, NULL for a request without a first token; the median is over the others. *ended_ns*: submission to
    end, NULL for one that was never submitted: a request without a first token is starved if that is too long,
    and always counts in the denominator.
    """
    served = wait_ns != NULL
    middle = percentile(np.sort(wait_ns[served]), 0.5)
    if middle is None:
        return None
    waited = np.where(served, wait_ns, ended_ns)
    return float(np.count_nonzero((waited != NULL) & (waited > STARVED_ABOVE * middle)) / len(waited))


def fairness_block(
    run: Run, chosen: Populations, tokens: TokenCounts, isolated_p50_ms: Mapping[int, float] | None = None
) -> Fairness | None:
    """`fairness` of run.json; None with fewer than two request classes.

    *isolated_p50_ms*: median TTFT of each class in a run of its own, by class number. A single run has none of them,
    so its `jain_index` is null; `jain_norm_latency` needs no other run.
    """
    numbers = np.unique(run.rows["request_class"][chosen.submitted]).tolist()
    if len(numbers) < 2:
        return None
    served = run.rows[chosen.latency]
    by_class = normalised(to_float(ttft(served), 1e6), served["request_class"], dict(isolated_p50_ms or {}))
    by_tokens = to_float(norm_latency(served, tokens.output[chosen.latency]), 1e6)
    return Fairness(
        jain_index=judged(by_class, "ttft / isolated median ttft of the class"),
        jain_norm_latency=judged(by_tokens, "e2e / output tokens"),
        unfair_below=UNFAIR_BELOW,
        starved_above_medians=STARVED_ABOVE,
        classes={class_name(n, run.document): one_class(run, chosen, tokens, n) for n in numbers},
    )


def judged(x: Floats, normalisation: str) -> JainIndex:
    """Jain's index of *x* with its verdict; both None without a value."""
    index = jain_index(x)
    return JainIndex(
        value=index,
        n=int((~np.isnan(x)).sum()),
        normalisation=normalisation,
        significantly_unfair=None if index is None else index < UNFAIR_BELOW,
    )


def one_class(run: Run, chosen: Populations, tokens: TokenCounts, number: int) -> ClassFairness:
    """Figures of one class: latencies of its successful requests, starvation among all submitted ones."""
    mine = run.rows["request_class"] == number
    submitted, kept = run.rows[chosen.submitted & mine], chosen.latency & mine
    served = run.rows[kept]
    ended = np.where(submitted["t_end"] > 0, submitted["t_end"] - committed(submitted), NULL)
    return ClassFairness(
        submitted=len(submitted),
        ok=len(served),
        starvation_rate=starvation_rate(ttft(submitted), ended),
        ttft=distribution(ttft(served), "ms"),
        tpot=distribution(tpot(served, spaced(run, tokens.timed)[kept]), "ms"),
    )


def ratio(mixed: float | None, isolated: float | None) -> float | None:
    """mixed / isolated; None without either, or for an isolated latency of 0."""
    return None if mixed is None or isolated is None or isolated == 0 else mixed / isolated


def latency_inflation(mixed: ByStatistic, isolated: ByStatistic) -> ByStatistic:
    """Mixed / isolated TTFT of one class."""
    return ByStatistic(
        p50=ratio(mixed.p50, isolated.p50),
        p95=ratio(mixed.p95, isolated.p95),
        p99=ratio(mixed.p99, isolated.p99),
        mean=ratio(mixed.mean, isolated.mean),
    )
