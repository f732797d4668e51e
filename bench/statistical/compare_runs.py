"""How often `compare` claims a difference between two single runs of one plan, and how often it finds a real one.

Real runs against the simulated engine, 12 s of 70 requests/s each. Per plan (a seed): one run of the engine, one more of
the same (A/A), and one for each of --slower, with every time of the engine that many percent longer. Runs are kept in
--runs and used again, so an analysis may be repeated without them.

    python bench/statistical/compare_runs.py --runs FOLDER [--plans 20] [--engines default,h100-8b,slots] [--slower 5]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

from fastllmload.compare.comparison import compare
from fastllmload.compare.side import read_side
from fastllmload.simulator.profile import PROFILES

RATE, SECONDS = 70, 12
TIMES = ("step_ms", "per_sequence_us", "per_prefill_token_us", "per_kilo_context_us", "ttft_floor_ms", "pause_ms")
LENGTHS = {  # of prompt and answer, per engine: a load of about a half to three quarters of what it can do
    "default": ("uniform:64,256", "uniform:32,128"),
    "h100-8b": ("uniform:64,256", "uniform:32,128"),
    "slots": ("uniform:32,64", "uniform:16,48"),
}
FIGURES = tuple(
    f"{statistic}_{metric}_ms"
    for metric in ("ttft", "ttft_sched", "tpot", "itl", "e2e", "e2e_sched")
    for statistic in ("mean", "p50", "p90", "p95", "p99")
)


def engine(name: str, percent: float, folder: Path) -> Path:
    """A profile like *name* with all times *percent* longer."""
    fields = tomllib.loads((PROFILES / f"{name}.toml").read_text())
    fields |= {key: fields[key] * (1 + percent / 100) for key in TIMES if key in fields}
    path = folder / f"{name}+{percent:g}.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items() if key != "description"))
    return path


def run(folder: Path, name: str, plan: int, percent: float, again: int) -> Path:
    """The run's folder; measured unless it is there."""
    out = folder / f"{name}-{plan}+{percent:g}-{again}"
    if (out / "run.json").exists():
        return out
    prompt, answer = LENGTHS[name]
    own = 1000 * plan + round(10 * percent) + again  # of the engine: no two runs share its drawn times
    command = [
        sys.executable, "-m", "fastllmload", "--rate", str(RATE), "--duration", str(SECONDS), "--seed", str(plan),
        "--isl", prompt, "--osl", answer, "--simulate", f"profile={engine(name, percent, folder)}",
        "--simulate", f"seed={own}", "-o", str(out), "--ui", "none",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if ended.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: {ended.stderr}")
    return out


def count(found: dict[str, Counter[str]], base: Path, new: Path, label: str) -> None:
    """Per figure: compared, with an interval, p < 0.05 alone, shown after Holm over the standard figures."""
    sides = read_side([f"base={base}"]), read_side([f"new={new}"])
    for row in compare(*sides, FIGURES).rows:
        tally = found.setdefault(f"{label} {row.figure.name}", Counter())
        tally["pairs"] += 1
        tally["judged"] += row.change.p is not None
        tally["claimed"] += row.change.p is not None and row.change.p < 0.05 and row.change.excludes_zero
    standard = compare(*sides).rows
    tally = found.setdefault(f"{label} any standard figure, after Holm", Counter())
    tally["pairs"] += 1
    tally["judged"] += any(row.change.p is not None for row in standard)
    tally["claimed"] += any(row.change.shown for row in standard)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder in which the runs are kept")
    parser.add_argument("--plans", type=int, default=20)
    parser.add_argument("--engines", default=",".join(LENGTHS))
    parser.add_argument("--slower", default="5", help="percent, several with commas between")
    parser.add_argument("--measure-only", action="store_true", help="make the runs, compare nothing")
    asked = parser.parse_args()
    asked.runs.mkdir(parents=True, exist_ok=True)
    found: dict[str, Counter[str]] = {}
    for plan in range(1, asked.plans + 1):
        for name in asked.engines.split(","):
            base = run(asked.runs, name, plan, 0, 0)
            others = {"A/A": run(asked.runs, name, plan, 0, 1)}
            for percent in map(float, asked.slower.split(",")):
                others[f"+{percent:g} %"] = run(asked.runs, name, plan, percent, 0)
            for label, new in others.items() if not asked.measure_only else ():
                count(found, base, new, f"{name} {label}")
    print("| engine, change, figure | pairs | judged | claimed |\n|---|---|---|---|")
    for label, tally in sorted(found.items()):
        print(f"| {label} | {tally['pairs']} | {tally['judged']} | {tally['claimed'] / max(1, tally['judged']):.2f} |")


if __name__ == "__main__":
    main()
