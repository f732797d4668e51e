"""How often the 95 % intervals of `compare` contain the true change of sessions, over pairs of run folders that are made up:
sessions of several calls arrive at a rate, calls of a session are alike (long prompts stay long), tools wait between them.

On the second side the model takes --slower percent longer. Settings: both sides are sent one plan, or each its own; calls
fail alike on both sides, each with the same probability; users cancel; one side is twice as long as the other.

    python bench/statistical/sessions_coverage.py [--pairs 100] [--slower 15] [--only "one plan;failures"]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.compare.comparison import Comparison, compare
from fastllmload.compare.side import read_side
from fastllmload.documents.write import plain
from fastllmload.endpoint import ENDPOINTS
from fastllmload.metrics.run.measure import measure
from fastllmload.plan.build import build_plan
from fastllmload.plan.plan import Plan
from fastllmload.plan.prompts.load import LoadedWorkload
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.settings import Load, Output, RunSettings, Workload
from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import WaitKind

Floats = npt.NDArray[np.float64]
FIGURES = (
    "mean_session_makespan_ms", "p50_session_makespan_ms", "p90_session_makespan_ms", "mean_session_model_time_ms",
    "p50_session_tool_time_ms", "sessions_s", "session_goodput",
)  # fmt: skip
MS, S = 1e6, 1e9
ORIGIN_NS = 5_000_000_000_000
MODEL_MS, TOOL_MS, MORE_CALLS = 300.0, 200.0, 0.7  # mean of a call, of a wait; probability of one more call
ALIKE, OWN = 0.5, 0.3  # standard deviations of the logarithm of a call's time: of its session, of itself
LIMIT_MS = 2_000.0  # a good session lasts at most so long
TARGET, SLACK = 0.95, 2.6  # standard errors of the share that contains the truth
MONTE_CARLO = 400_000


@dataclass(frozen=True)
class Setting:
    """*fails*: of a call, on each side; *cancels*: of a call whose user leaves; *seconds*: of each side."""

    one_plan: bool = True
    fails: tuple[float, float] = (0.0, 0.0)
    cancels: float = 0.0
    seconds: tuple[float, float] = (200.0, 200.0)
    rate: float = 2.0


SETTINGS = {
    "one plan": Setting(),
    "own plans": Setting(one_plan=False),
    "own plans, 1 : 3 sessions": Setting(one_plan=False, seconds=(100.0, 300.0)),
    "failures on both sides": Setting(fails=(0.03, 0.03)),
    "failures on both sides, own plans": Setting(one_plan=False, fails=(0.03, 0.03)),
    "failures on one side": Setting(fails=(0.0, 0.03)),
    "many failures on one side": Setting(fails=(0.0, 0.1)),
    "cancels": Setting(cancels=0.05),
}


@dataclass(frozen=True)
class Sessions:
    """*begin*, ns from time zero; *calls* of each; *alike*: factor of all its calls; *tools*: ns of each wait, flat."""

    begin: npt.NDArray[np.int64]
    calls: npt.NDArray[np.int64]
    alike: Floats
    tools: Floats

    @property
    def first(self) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.calls)])


def drawn(rng: np.random.Generator, number: int, seconds: float) -> Sessions:
    calls = np.minimum(rng.geometric(1 - MORE_CALLS, number), 20)
    alike = np.exp(rng.normal(-(ALIKE**2) / 2, ALIKE, number))
    begin = np.sort(rng.uniform(0, seconds * S, number)).astype(np.int64)
    tools = rng.exponential(TOOL_MS * MS, int(calls.sum()))
    tools[np.concatenate([[0], np.cumsum(calls)])[:-1]] = 0
    return Sessions(begin, calls, alike, tools)


def services(sessions: Sessions, slower: float, rng: np.random.Generator) -> Floats:
    """ns of each call, flat."""
    own = np.exp(rng.normal(-(OWN**2) / 2, OWN, int(sessions.calls.sum())))
    return MODEL_MS * MS * (1 + slower) * np.repeat(sessions.alike, sessions.calls) * own


def truth(setting: Setting, slower: float) -> dict[str, tuple[float, float]]:
    """Each figure on both sides, of very many sessions; those of which a call failed are left out."""
    found: dict[str, list[float]] = {name: [] for name in FIGURES}
    for side, share in enumerate((0.0, slower)):
        rng = np.random.default_rng(99)  # the same sessions, so that what is alike is so exactly
        sessions = drawn(rng, MONTE_CARLO, 1.0)
        model = np.add.reduceat(services(sessions, share, rng), sessions.first[:-1]) / MS
        tools = np.add.reduceat(sessions.tools, sessions.first[:-1]) / MS
        broken = 1 - (1 - setting.fails[side]) * (1 - setting.cancels)
        done = rng.random(MONTE_CARLO) < (1 - broken) ** sessions.calls
        makespan = (model + tools)[done]
        values = (
            makespan.mean(), np.median(makespan), np.quantile(makespan, 0.9), model[done].mean(), np.median(tools[done]),
            setting.rate * done.mean(), setting.rate * (done & (model + tools <= LIMIT_MS)).mean(),
        )  # fmt: skip
        for name, value in zip(FIGURES, values, strict=True):
            found[name].append(float(value))
    return {name: (one, other) for name, (one, other) in found.items()}


def planned(place: Path, sessions: Sessions, seconds: float, seed: int) -> tuple[Plan, RunSettings]:
    calls = []
    for number, many in enumerate(sessions.calls.tolist()):
        for turn in range(many):
            after = [After(f"{number}.{turn - 1}")] if turn else []
            wait = round(sessions.tools[sessions.first[number] + turn])
            start = {} if turn else {"start_ns": int(sessions.begin[number])}
            calls.append(
                TracedCall(f"{number}.{turn}", "line 1", f"{number}", 16, 5, after=after, wait_ns=wait,
                           wait_kind=WaitKind.TOOL if turn else WaitKind.UNKNOWN, blocks=np.array([number]), **start)
            )  # fmt: skip
    settings = RunSettings(
        load=Load(duration=seconds, ramp_share=0.0),
        workload=Workload(name="graph", tokenizer="none"),
        output=Output(goodput=(("session_makespan", LIMIT_MS),)),
    )
    settings = msgspec.structs.replace(settings, load=msgspec.structs.replace(settings.load, repetition=seed))
    graph = build_graph("graph", "0" * 64, calls, block_tokens=16)
    plan = build_plan(
        settings, phase="measure", endpoint=ENDPOINTS["openai-chat"], model="m", out_dir=place,
        loaded=LoadedWorkload(graph=graph),
    )  # fmt: skip
    return plan, settings


def rows_of(sessions: Sessions, plan: Plan, setting: Setting, side: int, slower: float, seed: int) -> np.ndarray:
    """One row for each call that was sent: none after one that failed or whose user left."""
    rng = np.random.default_rng([seed, 7, side])
    took = services(sessions, slower, rng)
    fails, leaves = rng.random(len(took)) < setting.fails[side], rng.random(len(took)) < setting.cancels
    rows = np.zeros(len(took), layout.REQUEST)
    assert plan.calls is not None
    of_plan = plan.calls["session"]
    place = np.searchsorted(of_plan, np.arange(len(sessions.calls)))
    sent = np.zeros(len(took), np.bool_)
    for number, first in enumerate(sessions.first[:-1].tolist()):
        at = ORIGIN_NS + int(sessions.begin[number])
        for turn in range(int(sessions.calls[number])):
            k, row = first + turn, rows[first + turn : first + turn + 1]
            at += int(sessions.tools[k])
            end = at + int(took[k])
            row["request"], row["session"], row["turn"] = int(place[number]) + turn, number, turn
            row["t_sched"] = row["t_dispatch"] = row["t_submit_start"] = row["t_submit"] = at
            row["t_headers"] = row["t_any"] = row["t_first"] = at + int(took[k] / 3)
            row["t_last"] = row["t_end"] = row["t_end_user"] = end
            sent[k], at = True, end
            if fails[k] or leaves[k]:
                row["status"] = layout.HTTP_ERROR if fails[k] else layout.CANCELLED
                row["error"] = 0 if fails[k] else layout.ERROR_NAMES.index("client_cancelled")
                break
            row["status"] = layout.OK
    rows["phase"], rows["http_status"] = layout.MEASURE, 200
    rows["input_target"] = rows["prompt_tokens"] = 16
    rows["output_target"] = rows["completion_tokens"] = 5
    rows["reasoning_tokens"] = rows["cached_tokens"] = rows["retry_after_ms"] = -1
    found: np.ndarray = rows[sent]
    return found


def written(folder: Path, plan: Plan, settings: RunSettings, rows: np.ndarray, seconds: float) -> None:
    folder.mkdir()
    plan.write_record(folder / "plan")
    np.save(folder / "requests.npy", np.sort(rows, order="t_sched"))
    np.save(folder / "tokens.npy", np.zeros(0, layout.EVENT))
    phase = {
        "name": "measure", "number": 1, "start_ns": ORIGIN_NS, "end_ns": ORIGIN_NS + round(seconds * S),
        "bound": "duration", "ramp_share": 0.0,
    }  # fmt: skip
    document = {
        "schema_version": 1, "status": "done", "config": msgspec.to_builtins(settings),
        "plan": json.loads((folder / "plan" / "plan.json").read_text()), "phases": [phase],
        "certificate": {"verdict": "valid", "reasons": []},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "run.json").write_text(json.dumps(plain(measure(load(folder)))))


def compared(place: Path, setting: Setting, slower: float, seed: int) -> Comparison:
    sides = []
    for side in range(2):
        seconds = setting.seconds[side]
        number = 0 if setting.one_plan else side
        rng = np.random.default_rng([seed, 1 + number])
        sessions = drawn(rng, rng.poisson(setting.rate * seconds), seconds)
        plan, settings = planned(place / f"plan{side}", sessions, seconds, number)
        rows = rows_of(sessions, plan, setting, side, slower if side else 0.0, seed)
        written(place / f"run{side}", plan, settings, rows, seconds)
        sides.append(read_side([str(place / f"run{side}")]))
    return compare(*sides, names=FIGURES, different_workload=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--slower", type=float, default=15.0, help="percent by which the second side's model is slower")
    parser.add_argument("--only", default="", help="names of settings that begin so, with ; between")
    asked = parser.parse_args()
    met = True
    print("| setting | figure | true change | contained | judged of all | half width |\n|---|---|---|---|---|---|")
    for name, setting in SETTINGS.items():
        if not name.startswith(tuple(asked.only.split(";"))):
            continue
        wanted = truth(setting, asked.slower / 100)
        inside, judged, widths, whys = Counter[str](), Counter[str](), dict[str, list[float]](), dict[str, Any]()
        for seed in range(asked.pairs):
            with tempfile.TemporaryDirectory() as place:
                found = compared(Path(place), setting, asked.slower / 100, seed)
            for row in found.rows:
                figure, change = row.figure.name, row.change
                if change.interval is None:
                    whys[figure] = change.why_not
                    continue
                base, new = wanted[figure]
                judged[figure] += 1
                inside[figure] += change.interval[0] <= new - base <= change.interval[1]
                widths.setdefault(figure, []).append((change.interval[1] - change.interval[0]) / 2 / base)
        for figure in FIGURES:
            base, new = wanted[figure]
            many = judged[figure]
            if not many:
                print(f"| {name} | {figure} | {new / base - 1:+.1%} | - | 0 | {whys.get(figure)} |", flush=True)
                continue
            least = TARGET - SLACK * (TARGET * (1 - TARGET) / many) ** 0.5
            met &= inside[figure] / many >= least
            width = float(np.median(widths[figure]))
            print(
                f"| {name} | {figure} | {new / base - 1:+.1%} | {inside[figure] / many:.3f} | {many / asked.pairs:.2f} "
                f"| {width:.1%} |",
                flush=True,
            )
    print(json.dumps({"pairs": asked.pairs, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
