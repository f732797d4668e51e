"""How many seconds of load a search needs, and how often its interval holds the truth, on servers of known answer.

Searches run in simulated time (`tests/simulated_bench.py`), so the figures depend on seeds only. `--save` writes the
seconds, `--against` prints those of a file as a ratio; `search_seconds_ea1b49f.json` has those of the searches of commit
ea1b49f on the same cases.

    python bench/statistical/search_seconds.py --against bench/statistical/search_seconds_ea1b49f.json
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from search_servers import ATTAINMENT, P99, SUSTAINED, Cliff, Slowing, TwoTimes, step
from simulated_bench import SlotBench
from slot_server import SlotServer

from fastllmload.search.interval_search import IntervalSearch
from fastllmload.search.objectives import SearchObjective
from fastllmload.statistics.sequential_tests import SequentialPlan


@dataclass(frozen=True)
class Case:
    """*server* makes a fresh one for a seed. *truth*: None is the capacity; 0: no level holds; inf: every level does.
    *seconds*: of the first trial. *bad*: share of the requests that miss the objective at any load.
    """

    objective: SearchObjective
    server: Callable[[int], Any]
    limit_s: float
    hi: float
    seconds: float
    truth: float | None = None
    bad: float | None = None
    grid: float = 64.0


def always(server: Any) -> Callable[[int], Any]:
    return lambda seed: server


def slowing(seed: int) -> Slowing:
    """Capacity 100 requests/s, falling to 18 in one of the first 20 minutes of load."""
    at = float(np.random.default_rng(1000 + seed).uniform(60, 1200))
    return Slowing(SlotServer(50, 0.5), SlotServer(9, 0.5), at)


SLOTS, SHORT = SlotServer(32, 1.0), SlotServer(8, 0.2)
CASES = {
    "sustained, 32 slots, 1 s": Case(SUSTAINED, always(SLOTS), 1.0, 256, 60),
    "sustained, 64 slots, 0.32 s fixed": Case(SUSTAINED, always(SlotServer(64, 0.32, fixed=True)), 1.0, 1000, 30),
    "sustained, 32 slots, 4 s": Case(SUSTAINED, always(SlotServer(32, 4.0)), 1.0, 64, 300),
    "90% within 0.5 s, 32 slots": Case(ATTAINMENT, always(SLOTS), 0.5, 256, 60, SLOTS.rate_where(0.5, 0.1)),
    "P99 of 0.5 s, 32 slots, 60 s": Case(P99, always(SLOTS), 0.5, 256, 60, SLOTS.rate_where(0.5, 0.01)),
    "P99 of 0.5 s, 32 slots, 300 s": Case(P99, always(SLOTS), 0.5, 256, 300, SLOTS.rate_where(0.5, 0.01)),
    "P99 of 2 s, 32 slots": Case(P99, always(SLOTS), 2.0, 256, 120, SLOTS.rate_where(2.0, 0.01)),
    "90% within 1 s, 8 slots": Case(ATTAINMENT, always(SHORT), 1.0, 256, 60, SHORT.rate_where(1.0, 0.1)),
    "no queue matters, fixed": Case(
        ATTAINMENT, always(SlotServer(32, 0.64, fixed=True)), 1.0, 240, 10, bad=0.025, grid=32
    ),
    "no queue matters, exponential": Case(ATTAINMENT, always(SLOTS), 1.0, 280, 20, bad=0.025),
    "bimodal, sustained": Case(SUSTAINED, always(TwoTimes(32, 0.5, long_s=4.0)), 1.0, 256, 60),
    "bimodal, objective missed by 0.4%, P99": Case(P99, always(TwoTimes(32, 0.5, long_s=4.0)), 1.0, 256, 60, bad=0.004),
    "always holds, P99": Case(P99, always(SlotServer(1000, 0.2)), 0.5, 256, 60, math.inf),
    "always holds, sustained": Case(SUSTAINED, always(SlotServer(1000, 0.2)), 0.5, 256, 60, math.inf),
    "never holds, P99": Case(P99, always(SLOTS), 1.0, 256, 60, 0.0, bad=0.5),
    "never holds, 10%": Case(ATTAINMENT, always(SLOTS), 1.0, 256, 60, 0.0, bad=0.2),
    "cliff, P99": Case(P99, always(Cliff(37.3)), 0.5, 256, 60),
    "cliff, 90%": Case(ATTAINMENT, always(Cliff(37.3)), 0.5, 256, 60),
    "drifting, 100 to 18, sustained": Case(SUSTAINED, slowing, 0.5, 256, 60),
    "drifting, 100 to 18, 90%": Case(ATTAINMENT, slowing, 0.5, 256, 60),
}


def searched(name: str, seed: int) -> tuple[bool, float, float, float, float, bool]:
    """Whether the interval holds the truth; its ends as shares of that; seconds of load; levels; whether the search says
    that the system changed.
    """
    case = CASES[name]
    server = case.server(seed)
    runner = SlotBench(
        server, case.objective, SequentialPlan(), case.seconds, case.limit_s, np.random.default_rng(seed), case.bad
    )
    found = IntervalSearch(case.hi / case.grid, case.hi, step, runner, SequentialPlan()).run()
    low, high = runner.low(found), math.inf if found.above is None else found.above
    drifts = isinstance(server, Slowing)
    if drifts:
        server = server.now
        truth = (
            server.capacity
            if case.objective.sustain
            else server.rate_where(case.limit_s, case.objective.shares[0].allowed)
        )
    else:
        truth = server.capacity if case.truth is None else case.truth
    if drifts and found.system_changed:
        held = True
    elif truth == 0.0:
        held = found.best is None
    elif truth == math.inf:
        held = found.above is None
    else:
        held = low <= truth <= high
    scale = truth if 0 < truth < math.inf else case.hi
    return (
        held,
        low / scale,
        high / scale,
        runner.measured_s,
        len(found.decisions),
        found.system_changed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=40)
    parser.add_argument(
        "--first-seed", type=int, default=0, help="others than those that the rules were chosen on: from 40"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    before = json.loads(asked.against.read_text()) if asked.against else {}
    saved: dict[str, dict[str, float]] = {}
    totals = [0.0, 0.0]
    print(f"seeds {asked.first_seed} to {asked.first_seed + asked.searches - 1}")
    print("| case | hold the truth | alarms | interval, median | levels | seconds, mean | before | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    with Pool(asked.processes) as pool:
        for name in (name for name in CASES if asked.only in name):
            found = pool.map(partial(searched, name), range(asked.first_seed, asked.first_seed + asked.searches))
            held, low, high, seconds, levels, alarms = zip(*found, strict=True)
            mean = statistics.fmean(seconds)
            saved[name] = {
                "held": sum(held), "searches": len(held), "low": statistics.median(low),
                "high": statistics.median(high), "seconds": mean, "levels": statistics.median(levels), "alarms": sum(alarms),
            }  # fmt: skip
            old = before.get(name, {}).get("seconds")
            if old is not None:
                totals[0], totals[1] = totals[0] + mean / old, totals[1] + 1
            ends = f"{saved[name]['low']:.2f} to {saved[name]['high']:.2f}"
            print(
                f"| {name} | {sum(held)} of {len(held)} | {sum(alarms)} | {ends} "
                f"| {saved[name]['levels']:.0f} | {mean:,.0f} | {'' if old is None else f'{old:,.0f}'} "
                f"| {'' if old is None else f'{mean / old:.2f}'} |",
                flush=True,
            )
    if totals[1]:
        print(f"mean of the ratios: {totals[0] / totals[1]:.2f}")
    if asked.save:
        asked.save.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
