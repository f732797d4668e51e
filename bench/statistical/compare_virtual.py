"""How often `compare` claims a difference between two single runs of one plan, over thousands of pairs: the bundled engine
in virtual time, 12 s of 70 requests/s (840 requests, 756 of them in the window), on a host that stalls now and then.

Each pair has a plan (arrivals, lengths) of its own; each run its own draws of the engine, delays of submissions and reads,
and stalls. --slower makes every time of the second side's engine that many percent longer.

    python bench/statistical/compare_virtual.py [--pairs 100] [--slower 0] [--only "slots;fast"]
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.sim.engine import Batching
from fastllmload._ext.sim.trial import Trial
from fastllmload.compare.change import SIGNIFICANT, Change
from fastllmload.compare.figure import LEVELS, ComparedFigure
from fastllmload.compare.paired import Pairs, change_of_pairs
from fastllmload.simulator.profile import Profile, load_profile
from fastllmload.statistics.interval import Sample
from fastllmload.statistics.two_samples import holm

Instants = npt.NDArray[np.int64]
Run = dict[str, Sample]

RATE, SECONDS, CUT = 70.0, 12.0, 0.1
S, MS, US = 1e9, 1e6, 1e3
TIMES = ("step_ms", "per_sequence_us", "per_prefill_token_us", "per_kilo_context_us", "ttft_floor_ms", "pause_ms")
METRICS, STATISTICS = ("ttft", "tpot", "itl", "e2e"), ("mean", "p50", "p90", "p95", "p99")
STANDARD = tuple(f"{statistic}_{metric}" for metric in METRICS for statistic in ("p50", "p99"))  # as `compare` has them
SUBMIT_US, READ_US = 60, 30  # mean delay of a submission, and of reading a burst
STALLS_PER_S, STALL_MS = 0.3, 8.0  # of the host; how long they last is exponential
WORK_S, STALLS_AT_WORK_PER_S = 4.0, 8.0  # other work on the host comes and goes, each for so long on average


@dataclass(frozen=True)
class Setting:
    """An engine and its load; lengths are uniform. *burst*: coefficient of variation of the gaps between arrivals;
    *prefixes*: prompts begin with one of that many; *long*: share of the answers that are eight times as long; *busy*: other
    work on the host. *in_step*: the engine was idle before, so its steps begin with the first arrival on both sides.
    """

    profile: str
    prompt: tuple[int, int]
    answer: tuple[int, int]
    burst: float = 1.0
    prefixes: int = 0
    long: float = 0.0
    busy: bool = False
    in_step: bool = False
    over: dict[str, float] = field(default_factory=dict)


SETTINGS = {
    "default": Setting("default", (64, 256), (32, 128)),
    "default, busy host": Setting("default", (64, 256), (32, 128), busy=True, in_step=True),
    "default, pauses": Setting("default", (64, 256), (32, 128), over={"pause_every": 23, "pause_ms": 30.0}),
    "fast": Setting("default", (64, 256), (8, 32), over={"step_ms": 3.0, "jitter": 0.05, "ttft_floor_ms": 2.0}),
    "h100-8b": Setting("h100-8b", (64, 256), (32, 128)),
    "h100-8b, busy host": Setting("h100-8b", (64, 256), (32, 128), busy=True, in_step=True),
    "h100-8b, bursts": Setting("h100-8b", (64, 256), (32, 128), burst=3.0),
    "h100-8b, prefixes": Setting("h100-8b", (256, 512), (32, 128), prefixes=12),
    "h100-8b, near its limit": Setting("h100-8b", (128, 400), (32, 128), in_step=True),
    "memory-pressure": Setting("memory-pressure", (64, 200), (16, 48)),
    "slots, load 0.3": Setting("slots", (32, 64), (8, 20)),
    "slots, load 0.7": Setting("slots", (32, 64), (16, 48)),
    "slots, load 0.9": Setting("slots", (32, 64), (24, 58)),
    "slots, busy host": Setting("slots", (32, 64), (16, 48), busy=True),
    "slots, two lengths": Setting("slots", (32, 64), (8, 24), long=0.1),
}


@dataclass(frozen=True)
class Plan:
    """*due* in ns; one of each per request."""

    due: Instants
    prompt: Instants
    answer: Instants
    prefix: Instants


def plan_of(setting: Setting, rng: np.random.Generator) -> Plan:
    n, shape = round(RATE * SECONDS), 1 / setting.burst**2
    due = S + np.cumsum(rng.gamma(shape, 1 / (shape * RATE), n)) * S
    answer = rng.integers(*setting.answer, n, endpoint=True) * np.where(rng.random(n) < setting.long, 8, 1)
    prefix = rng.integers(0, max(setting.prefixes, 1), n)
    return Plan(due.astype(np.int64), rng.integers(*setting.prompt, n, endpoint=True), answer, prefix)


@dataclass(frozen=True)
class Host:
    """Instants at which it stalls, in order, and for how long, ns."""

    stalls: Instants
    lasting: Instants

    def delayed(self, times: Instants, mean_us: float, rng: np.random.Generator) -> Instants:
        """*times* in order, a little later each, and none of them within a stall."""
        after = times + rng.exponential(mean_us * US, len(times)).astype(np.int64)
        at = np.searchsorted(self.stalls, after, "right") - 1
        end = np.where(at >= 0, (self.stalls + self.lasting)[np.maximum(at, 0)], 0)
        return np.maximum.accumulate(np.maximum(after, end))


def host_of(busy: bool, rng: np.random.Generator) -> Host:
    seconds, most = SECONDS + 10, STALLS_PER_S + STALLS_AT_WORK_PER_S
    changes = np.cumsum(rng.exponential(WORK_S, 40)) - rng.uniform(0, 2 * WORK_S)
    at = np.sort(rng.uniform(0, seconds, 1 + rng.poisson(most * seconds)))
    kept = rng.random(len(at)) < STALLS_PER_S / most
    if busy:
        kept |= np.searchsorted(changes, at) % 2 == 1
    kept[0] = True
    stalls = (at[kept] * S).astype(np.int64)
    return Host(stalls, rng.exponential(STALL_MS * MS, len(stalls)).astype(np.int64))


def run(setting: Setting, plan: Plan, slower: float, rng: np.random.Generator) -> Run:
    """Latencies in ms of the window's requests, by metric."""
    host, n = host_of(setting.busy, rng), len(plan.due)
    sent = host.delayed(plan.due, SUBMIT_US, rng)
    profile = load_profile(setting.profile, tuple((key, str(value)) for key, value in setting.over.items()))
    profile = msgspec.structs.replace(profile, **{name: getattr(profile, name) * (1 + slower) for name in TIMES})
    trial = Trial(Batching(profile, int(rng.integers(1, 2**31))), n + 1)
    ahead = S if setting.in_step else rng.uniform(0, 3) * profile.step_ms * MS
    trial.arrive(max(1, int(sent[0] - ahead)), 1, 20)  # sets the phase of the steps; not measured
    for k, at in enumerate(sent.tolist()):
        trial.arrive(at, int(plan.prompt[k]), int(plan.answer[k]), hashes=hashes_of(setting, plan, k, profile))
    tokens = np.fromiter(chain.from_iterable(trial.run()), np.int64).reshape(-1, 3)
    tokens = tokens[tokens[:, 1] > 0]
    bursts, place = np.unique(tokens[:, 0], return_inverse=True)
    read = host.delayed(bursts, READ_US, rng)
    order = np.argsort(tokens[:, 1], kind="stable")
    return latencies(plan, sent, tokens[order, 1] - 1, read[place[order]])


def hashes_of(setting: Setting, plan: Plan, k: int, profile: Profile) -> tuple[int, ...]:
    """Of the full blocks of prompt *k*: up to 14 of its prefix, the others its own."""
    blocks = int(plan.prompt[k]) // profile.block_size if setting.prefixes else 0
    common = min(blocks, 14)
    shared = (1 + 1000 * int(plan.prefix[k]) + i for i in range(common))
    return (*shared, *(10**6 * (k + 1) + i for i in range(blocks - common)))


def latencies(plan: Plan, sent: Instants, request: Instants, at: Instants) -> Run:
    """*request*, *at* of each token, by request."""
    n = len(sent)
    first = np.searchsorted(request, np.arange(n + 1))
    begin, end, kept = at[first[:-1]], at[first[1:] - 1], slice(round(CUT * n), n)
    mine = (np.diff(request) == 0) & (request[1:] >= kept.start)
    sizes = np.bincount(request[1:][mine] - kept.start, minlength=n - kept.start)
    found = {"ttft": begin - sent, "tpot": (end - begin) / np.maximum(plan.answer - 1, 1), "e2e": end - sent}
    samples = {name: Sample(values[kept] / MS, np.sort(values[kept] / MS)) for name, values in found.items()}
    gaps = np.diff(at)[mine] / MS
    return {**samples, "itl": Sample(gaps, np.sort(gaps), np.concatenate([[0], np.cumsum(sizes)]))}


def changes(base: Run, new: Run) -> dict[str, Change]:
    """By figure, as `p99_ttft`."""
    found = {}
    for metric in METRICS:
        pairs = Pairs(base[metric], new[metric])
        for name in STATISTICS:
            a, b = (float(s.values.mean()) if name == "mean" else s.at(LEVELS[name]) for s in (pairs.a, pairs.b))
            found[f"{name}_{metric}"] = change_of_pairs(ComparedFigure(name, metric, name, "ms"), pairs, (a, b), 0.5)
    return found


def pair(setting: Setting, seed: int, slower: float) -> tuple[Run, Run]:
    plan = plan_of(setting, np.random.default_rng([seed, 0]))
    base, new = (run(setting, plan, share, np.random.default_rng([seed, k])) for k, share in ((1, 0.0), (2, slower)))
    return base, new


def claimed(found: dict[str, Change]) -> set[str]:
    """Figures with p < 0.05 alone, and `any` where one of the standard figures has it after Holm."""
    alone = {name for name, change in found.items() if change.p is not None and change.p < SIGNIFICANT}
    together = [p for name in STANDARD if (p := found[name].p) is not None]
    return alone | ({"any"} if together and min(holm(together)) < SIGNIFICANT else set())


def lines_of(name: str, pairs: int, slower: float) -> list[str]:
    claims, judged = Counter[str](), Counter[str]()
    for seed in range(pairs):
        found = changes(*pair(SETTINGS[name], seed, slower))
        claims.update(claimed(found))
        judged.update(figure for figure, change in found.items() if change.p is not None)
    lines = []
    for metric in METRICS:
        cells = [cell(claims[f"{each}_{metric}"], judged[f"{each}_{metric}"], pairs) for each in STATISTICS]
        lines.append(f"| {name} | {metric} | {' | '.join(cells)} |")
    return [*lines, f"| {name} | any standard figure, after Holm | {claims['any'] / pairs:.2f} |  |  |  |  |"]


def cell(claims: int, judged: int, pairs: int) -> str:
    """Share of the judged pairs, with the share that was judged where it is not all."""
    if not judged:
        return "n/e"
    return f"{claims / judged:.2f}" + ("" if judged == pairs else f" ({judged / pairs:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--slower", type=float, default=0.0, help="percent by which the second side's engine is slower")
    parser.add_argument("--only", default="", help="names of settings that begin so, with ; between")
    asked = parser.parse_args()
    print("| engine | metric | mean | p50 | p90 | p95 | p99 |\n|---|---|---|---|---|---|---|")
    for name in SETTINGS:
        if name.startswith(tuple(asked.only.split(";"))):
            print("\n".join(lines_of(name, asked.pairs, asked.slower / 100)), flush=True)


if __name__ == "__main__":
    main()
