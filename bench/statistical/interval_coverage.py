"""How often the intervals of statistics/interval.py cover the truth, on dependent data whose truth is known.

M/M/1 sojourn times (load 0.3 to 0.9), AR(1) (Gaussian, and its exponential), and independent values. One line per
process, size and figure: share of runs that got an interval, share of those that cover, and of all runs the share that
was misled (got an interval that does not cover). Next to it is the textbook interval: it takes requests for independent.

    python bench/statistical/interval_coverage.py [--runs 500] [--sizes 1000,5000,20000] [--only mm1]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fastllmload.statistics.interval import ConfidenceInterval, Sample, intervals

Floats = npt.NDArray[np.float64]
LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def binomial_quantile(n: int, p: float, share: float) -> int:
    """Smallest k with P(Binomial(n, p) <= k) >= *share*, from the masses within 12 standard deviations of the mean."""
    half = 12 * math.sqrt(n * p * (1 - p)) + 40
    low, high = max(0, math.floor(n * p - half)), min(n, math.ceil(n * p + half))
    k = np.arange(low, high, dtype=np.float64)
    steps = np.log((n - k) / (k + 1)) + math.log(p / (1 - p))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    cumulated = np.cumsum(np.exp(logs - logs.max()))
    return low + int(np.searchsorted(cumulated, share * cumulated[-1]))


def textbook(ordered: Floats, q: float) -> tuple[float | None, float | None]:
    """Order statistics that enclose the q-quantile of an ascending sample with 95 %; None: open (spec/metrics 2)."""
    n = len(ordered)
    low, high = max(1, binomial_quantile(n, q, 0.025)), binomial_quantile(n, q, 0.975) + 1
    return float(ordered[low - 1]), float(ordered[high - 1]) if high <= n else None


@dataclass(frozen=True)
class Process:
    """*draw*(rng, n) gives one run; *quantile*(q) and *mean* are true."""

    name: str
    draw: Callable[[np.random.Generator, int], Floats]
    quantile: Callable[[float], float]
    mean: float


def sojourns(rng: np.random.Generator, n: int, load: float) -> Floats:
    """Sojourn times of an M/M/1 queue in its steady state from the first customer on; service rate 1."""
    service, gaps = rng.exponential(1, n), rng.exponential(1 / load, n)
    begun = rng.exponential(1 / (1 - load)) if rng.random() < load else 0.0
    walk = begun + np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    return walk - np.minimum(np.minimum.accumulate(walk), 0) + service


def autoregressive(rng: np.random.Generator, n: int, phi: float) -> Floats:
    """AR(1) with standard normal values: x_k = phi x_{k-1} + noise, in blocks whose powers of phi do not vanish."""
    noise = rng.standard_normal(n) * math.sqrt(1 - phi * phi)
    out, before, block = np.empty(n), rng.standard_normal(), max(1, int(-20 / math.log(phi)))
    powers = phi ** np.arange(1, block + 1)
    for start in range(0, n, block):
        part = noise[start : start + block]
        scale = powers[: len(part)]
        out[start : start + block] = scale * (before + np.cumsum(part / scale))
        before = out[start + len(part) - 1]
    return out


def mm1(load: float) -> Process:
    return Process(
        f"M/M/1 {load}", partial(sojourns, load=load), lambda q: -math.log(1 - q) / (1 - load), 1 / (1 - load)
    )


def processes() -> Iterator[Process]:
    normal = NormalDist().inv_cdf
    yield from (mm1(load) for load in (0.3, 0.5, 0.7, 0.9))
    for phi in (0.5, 0.9):
        yield Process(f"AR(1) {phi}", partial(autoregressive, phi=phi), normal, 0.0)
    yield Process(
        "exp AR(1) 0.9",
        lambda rng, n: np.exp(autoregressive(rng, n, 0.9)),
        lambda q: math.exp(normal(q)),
        math.exp(0.5),
    )
    yield Process("iid exponential", lambda rng, n: rng.exponential(1, n), lambda q: -math.log(1 - q), 1.0)
    yield Process("iid log-normal", lambda rng, n: rng.lognormal(0, 1, n), lambda q: math.exp(normal(q)), math.exp(0.5))


@dataclass
class Tally:
    """Of that many runs: *issued* got an interval, *covered* got one that holds the truth, *naive* by the textbook."""

    runs: int = 0
    issued: int = 0
    covered: int = 0
    naive: int = 0

    @property
    def coverage(self) -> float | None:
        """Among the runs that got an interval."""
        return self.covered / self.issued if self.issued else None

    @property
    def misled(self) -> float:
        """Share of all runs whose interval does not hold the truth."""
        return (self.issued - self.covered) / self.runs


def simulate(process: Process, n: int, runs: int, seed: int = 1) -> dict[str, Tally]:
    """Tallies of every level and of the mean."""
    rng = np.random.default_rng(seed)
    tallies = {name: Tally() for name in (*LEVELS, "mean")}
    truth = {**{name: process.quantile(q) for name, q in LEVELS.items()}, "mean": process.mean}
    for _ in range(runs):
        values = process.draw(rng, n)
        ordered = np.sort(values)
        for name, found in intervals(Sample(values, ordered), LEVELS).items():
            tally = tallies[name]
            tally.runs += 1
            if isinstance(found, ConfidenceInterval):
                tally.issued += 1
                tally.covered += found.low <= truth[name] <= found.high
            if name in LEVELS:
                low, high = textbook(ordered, LEVELS[name])
                tally.naive += low is not None and low <= truth[name] and (high is None or truth[name] <= high)
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--sizes", default="1000,5000,20000")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    print(
        "| process | n | figure | got an interval | cover | misled | textbook covers |\n|---|---|---|---|---|---|---|"
    )
    for process in processes():
        if asked.only.lower() not in process.name.lower():
            continue
        for n in map(int, asked.sizes.split(",")):
            for name, tally in simulate(process, n, asked.runs).items():
                cover = "-" if tally.coverage is None else f"{tally.coverage:.3f}"
                naive = f"{tally.naive / tally.runs:.3f}" if name in LEVELS else "-"
                share = tally.issued / tally.runs
                print(
                    f"| {process.name} | {n} | {name} | {share:.2f} | {cover} | {tally.misled:.3f} | {naive} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
