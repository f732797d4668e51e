"""How often the interval of `fastllmload overhead` contains what a proxy of known delay really added.

Per delay: the simulated engine, `bench/peers/delay_proxy.py` in front of it, and --trials measurements. The truth of a trial
is what the proxy noted for the requests of the runs through it: the mean of what it held them, from the kernel's stamps on
arrival, and its median.

    python bench/statistical/overhead_coverage.py [--delays 0.2,1,5] [--trials 40] [--pairs 8] [--seconds 2] [--rate 60]
        [--seed 1000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers import delay_proxy

from fastllmload.metrics.run.window import populations, window_of
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

TTFT_MS, ITL_MS, TOKENS = 10.0, 2.0, 8
FIGURES = ("mean_ttft_ms", "p50_ttft_ms", "mean_e2e_ms")
TARGET = 0.95
SLACK_NS = 2_000_000  # a request arrives at the proxy within this time of being written


class NoTruthError(Exception):
    """A trial cannot be judged, and another is made."""


@dataclass(frozen=True)
class Trial:
    """*truth*, in ms, and overhead.json's entry, both by figure. *exit_code* and what the command *said*."""

    truth: dict[str, float]
    added: dict[str, dict[str, Any]]
    exit_code: int
    said: str

    def contains(self, figure: str, interval: str = "interval") -> bool:
        low, high = self.added[figure][interval]
        return bool(low <= self.truth[figure] <= high)


@contextlib.contextmanager
def proxied(port: int, delay_ms: float, log: Path) -> Iterator[str]:
    """URL of a proxy in front of *port*; *log* is there once it has ended."""
    command = [sys.executable, delay_proxy.__file__, "--to", str(port), "--delay-ms", str(delay_ms), "--log", str(log)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(30)
        child.stdout.close()


def measured(folder: Path, delay_ms: float, pairs: int, seconds: float, rate: float, seed: int, *more: str) -> Trial:
    """One measurement in *folder*, which does not exist."""
    folder.mkdir()
    log = folder / "passed.npy"
    engine = SimulatorProcess(SimulatorOptions(ttft_ms=TTFT_MS, itl_ms=ITL_MS))
    with engine, proxied(engine.port, delay_ms, log) as url:
        done = subprocess.run(
            [sys.executable, "-m", "fastllmload", "overhead", "--direct", engine.url, "--through", url,
             "--pairs", str(pairs), "--duration", str(seconds), "--rate", str(rate), "--seed", str(seed),
             "--isl", "32", "--osl", str(TOKENS), "--warmup", "8", "--settle", "0", "-o", str(folder / "o"), *more],
            capture_output=True, text=True, timeout=60 + pairs * (2 * seconds + 60), check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2] / "src"), *sys.path[1:]])},
        )  # fmt: skip
    if not (folder / "o" / "overhead.json").exists():
        raise NoTruthError(f"nothing was measured:\n{done.stdout}{done.stderr}")
    document = json.loads((folder / "o" / "overhead.json").read_text())
    truth = truth_of(np.load(log), sorted((folder / "o" / "levels").glob("*-through")))
    return Trial(truth, document["added"], done.returncode, done.stdout + done.stderr)


def truth_of(passed: np.ndarray, runs: list[Path]) -> dict[str, float]:
    """As the figures are: of the requests of each run, then the mean over the runs. The engine's own latency is constant, so
    that the medians of both ways differ by the median of what was held.
    """
    held, by_run = delay_proxy.added_ns(passed), []
    for folder in runs:
        run = load(folder)
        rows = np.sort(run.rows[populations(run, window_of(run)).latency], order="t_submit_start")
        begin, many = int(np.searchsorted(held[:, 0], rows["t_submit_start"][0])), len(rows)
        found = [held[k : k + many] for k in range(max(begin - 3, 0), begin + 4) if k + many <= len(held)]
        apart, ours = min(((outside_ns(one[:, 0], rows), one) for one in found), key=lambda each: each[0])
        if apart > SLACK_NS:
            raise NoTruthError(f"{folder.name}: some of its requests are not in the proxy's log")
        by_run.append((ours[:, 1].mean(), np.median(ours[:, 1]), ours[:, 2].mean()))
    return dict(zip(FIGURES, np.mean(by_run, axis=0) / 1e6, strict=True))


def outside_ns(arrived: np.ndarray, rows: np.ndarray) -> int:
    """How far an arrival is outside of the time in which its request was written, at most."""
    return int(np.maximum(rows["t_submit_start"] - arrived, arrived - rows["t_submit"]).max())


def show(delay_ms: float, number: int, trial: Trial) -> None:
    texts = []
    for figure in FIGURES:
        one = trial.added[figure]
        low, high = one["interval"]
        mark = "" if trial.contains(figure) else " MISSED"
        texts.append(f"{figure} {one['added']:.3f} in {low:.3f}..{high:.3f}, truth {trial.truth[figure]:.3f}{mark}")
    print(f"{delay_ms:g} ms, trial {number + 1}: {'; '.join(texts)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", default="0.2,1,5")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1000, help="of the first trial; each next one has the next seed")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for delay_ms in map(float, asked.delays.split(",")):
            trials: list[Trial] = []
            for number in range(2 * asked.trials):
                if len(trials) == asked.trials:
                    break
                folder = Path(place) / f"{delay_ms:g}-{number}"
                try:
                    one = measured(folder, delay_ms, asked.pairs, asked.seconds, asked.rate, asked.seed + number)
                except NoTruthError as problem:
                    print(f"{delay_ms:g} ms, trial {number + 1}: not judged: {problem}", flush=True)
                    continue
                trials.append(one)
                show(delay_ms, number, one)
                shutil.rmtree(folder)
            found[f"{delay_ms:g}"] = {
                figure: {
                    "contains": sum(one.contains(figure) for one in trials),
                    "by_chance_contains": sum(one.contains(figure, "by_chance") for one in trials),
                    "half_width_ms": float(np.median([np.ptp(one.added[figure]["interval"]) / 2 for one in trials])),
                    "by_chance_half_width_ms": float(
                        np.median([np.ptp(one.added[figure]["by_chance"]) / 2 for one in trials])
                    ),
                    "truth_ms": float(np.mean([one.truth[figure] for one in trials])),
                }
                for figure in FIGURES
            }
    met = all(one["contains"] >= TARGET * asked.trials for by_figure in found.values() for one in by_figure.values())
    print(json.dumps({"trials": asked.trials, "by_delay": found, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
