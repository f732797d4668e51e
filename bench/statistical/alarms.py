"""How often comparisons of equal things alarm, and how often they find a real change, at a nominal 5 %.

Within: one run a side of an M/M/1 queue, with the same arrivals on both sides (one plan) or others. Between: several
runs a side, the run's figure as the unit. A change slows the second side's server by --slower percent.

    python bench/statistical/alarms.py [--pairs 500] [--slower 0]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.compare.between import change_between
from fastllmload.compare.change import Change
from fastllmload.compare.figure import LEVELS, ComparedFigure
from fastllmload.compare.paired import Pairs, change_of_pairs
from fastllmload.compare.within import change_of_samples
from fastllmload.statistics.interval import NotEstimable, Sample, intervals

Floats = npt.NDArray[np.float64]
STATISTICS = ("p50", "p90", "p99", "mean")


@dataclass
class Alarms:
    """Of *pairs*, *judged* had an interval; *alarmed* had p < 0.05."""

    pairs: int = 0
    judged: int = 0
    alarmed: int = 0

    def count(self, change: Change | None) -> None:
        self.pairs += 1
        if change is not None and change.p is not None:
            self.judged += 1
            self.alarmed += change.p < 0.05


def queue(rng: np.random.Generator, gaps: Floats, load: float, slower: float) -> Floats:
    """Sojourn times of an M/M/1 queue with these arrivals, from its steady state on."""
    service = rng.exponential(1 + slower, len(gaps))
    busy = load * (1 + slower)
    begun = rng.exponential((1 + slower) / (1 - busy)) if rng.random() < busy else 0.0
    walk = begun + np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    return walk - np.minimum(np.minimum.accumulate(walk), 0) + service


def pair(rng: np.random.Generator, n: int, load: float, slower: float, one_plan: bool) -> list[Sample]:
    gaps = rng.exponential(1 / load, n)
    others = gaps if one_plan else rng.exponential(1 / load, n)
    values = [queue(rng, gaps, load, 0.0), queue(rng, others, load, slower)]
    return [Sample(each, np.sort(each)) for each in values]


def figure_value(sample: Sample, statistic: str) -> float:
    return float(sample.values.mean()) if statistic == "mean" else sample.at(LEVELS[statistic])


def within(samples: list[Sample], statistic: str, one_plan: bool) -> Change | None:
    """None where one of the two runs carries no interval; of one plan, where the pairs do not."""
    values = figure_value(samples[0], statistic), figure_value(samples[1], statistic)
    figure = ComparedFigure(statistic, "latency", statistic, "ms")
    if one_plan:
        return change_of_pairs(figure, Pairs(samples[0], samples[1]), values, 0.5)
    levels = {} if statistic == "mean" else {statistic: LEVELS[statistic]}
    if any(isinstance(intervals(sample, levels)[statistic], NotEstimable) for sample in samples):
        return None
    return change_of_samples(figure, samples[0], samples[1], values, one_plan)


def within_lines(pairs: int, slower: float) -> Iterator[str]:
    rng = np.random.default_rng(1)
    for one_plan in (True, False):
        for load, n in (((0.3, 756), (0.5, 756)) if one_plan else ()) + ((0.3, 5000), (0.5, 20_000), (0.7, 20_000)):
            tallies = {statistic: Alarms() for statistic in STATISTICS}
            for _ in range(pairs):
                samples = pair(rng, n, load, slower, one_plan)
                for statistic, tally in tallies.items():
                    tally.count(within(samples, statistic, one_plan))
            name = f"1 run a side, {'one plan' if one_plan else 'two plans'}, load {load}, n {n:,}"
            yield from (line(f"{name}, {statistic}", tally) for statistic, tally in tallies.items())


def between_lines(pairs: int, slower: float) -> Iterator[str]:
    """P90 of runs of 2,000 requests at load 0.5."""
    rng = np.random.default_rng(2)
    for runs, test in ((3, "welch"), (3, "paired"), (5, "welch"), (5, "mann-whitney")):
        tally = Alarms()
        for _ in range(pairs):
            samples = [pair(rng, 2000, 0.5, slower, test == "paired") for _ in range(runs)]
            base, new = ([figure_value(each[side], "p90") for each in samples] for side in (0, 1))
            tally.count(change_between(base, new, test, list(range(runs))))
        yield line(f"{runs} runs a side, {test}, load 0.5, n 2,000, p90", tally)


def line(name: str, tally: Alarms) -> str:
    rate = f"{tally.alarmed / tally.judged:.3f}" if tally.judged else "-"
    return f"| {name} | {tally.judged / tally.pairs:.2f} | {rate} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--slower", type=float, default=0.0, help="percent by which the second side's server is slower")
    asked = parser.parse_args()
    print("| comparison | judged | alarms |\n|---|---|---|")
    for lines in (between_lines, within_lines):
        for text in lines(asked.pairs, asked.slower / 100):
            print(text)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
