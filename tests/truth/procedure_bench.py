"""Procedures against simulated engines whose right answer is known by construction: cases, and how one is tried."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.cli.main import main
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.levels.prefix_cache import prefix_tokens
from fastllmload.records import layout
from fastllmload.records.run import load

Findings = dict[str, Any]
TRIES = 3  # a noisy host may disturb one; every try has a seed of its own


@dataclass(frozen=True)
class Case:
    """*test* with *options* on an engine with *engine* fields; *misses* says what of its findings is not the truth."""

    name: str
    test: str
    options: str
    engine: str
    misses: Callable[[Findings, Path], list[str]]

    def command(self, folder: Path, seed: int) -> list[str]:
        words = [
            "procedure",
            self.test,
            *self.options.split(),
            "--seed",
            str(seed),
            "--output",
            str(folder),
            "--ui",
            "none",
        ]
        for field in self.engine.split():
            words += ["--simulate", field]
        return words


def recovered(case: Case, folder: Path, seeds: list[int]) -> tuple[bool, list[list[str]]]:
    """Whether one of *seeds* gives the truth, and what each of them missed."""
    tried = []
    for seed in seeds:
        shutil.rmtree(folder, ignore_errors=True)
        code = main(case.command(folder, seed))
        found = json.loads((folder / "procedure.json").read_text())
        missed = [f"exit code {code}"] if code != 0 else case.misses(found["findings"], folder)
        tried.append(missed)
        if not missed:
            return True, tried
    return False, tried


def near(name: str, value: float | None, truth: float, tolerance: float) -> list[str]:
    if value is not None and abs(value - truth) <= tolerance:
        return []
    return [f"{name} is {value}, not {truth:g} within {tolerance:g}"]


def between(name: str, value: float | None, low: float, high: float) -> list[str]:
    return [] if value is not None and low <= value <= high else [f"{name} is {value}, not from {low:g} to {high:g}"]


def same(name: str, value: Any, truth: Any) -> list[str]:
    return [] if value == truth else [f"{name} is {value!r}, not {truth!r}"]


# -- what is known ----------------------------------------------------------------------------------------------------

SLOTS = "set.step_ms=10 set.max_running=8"  # 20 tokens a request: 8 slots / 0.2 s = 40 requests/s
PREFILL_MS = 0.05  # per token, of the engine whose prefix cache is tested


def ttft(found: Findings, folder: Path) -> list[str]:
    """40 ms and a phase of its own below 1 ms for each stream."""
    return [
        *near("TTFT P50", found["ttft_p50_ms"], 40.5, 1.5),
        *between("TTFT mean", found["ttft_mean_ms"], 40, 42.5),
        *same("requests", found["requests"], 60),
    ]


def throughput(found: Findings, folder: Path) -> list[str]:
    """20 holds, 60 cannot: the slots serve 40."""
    low, high = found["bracket"]
    return [*between("sustainable load", low, 20, 40), *between("upper end", high, 21, 60)]


def tradeoff(found: Findings, folder: Path) -> list[str]:
    """8 slots give 800 tokens/s and no more; where the client was late, the level is not evidence and says so. Below that
    what comes is answered: 20 tokens for each of the requests that the seed's plan has in the window, give or take what is
    cut at its two ends (standard deviation 3.3 tokens/s of 9 s).
    """
    levels = json.loads((folder / "procedure.json").read_text())["levels"]
    top = levels[-1]
    saturated = top["criteria"]["saturated"] is True or top["criteria"]["generator_limited"]
    coming = json.loads((folder / levels[0]["folder"] / "run.json").read_text())["certificate"]["planned_rate"]
    return [
        *near("load of the last level", top["load"], 60, 0),
        *same("saturated there", bool(saturated), True),
        *near("throughput there", top["output_tok_s"], 800, 60),
        *near("throughput at 16/s", levels[0]["output_tok_s"], 20 * coming, 15),
        *between("P99 TTFT there over that of the lowest", top["ttft_p99_ms"] / levels[0]["ttft_p99_ms"], 10, 1e9),
    ]


def itl(found: Findings, folder: Path) -> list[str]:
    """Every tenth step takes 40 ms more: nine gaps of 10 ms, one of 50."""
    level = found["levels"][0]
    return [
        *near("ITL P50", level["p50"], 10, 0.5),
        *near(
            "ITL P95", level["p95"], 50, 1.5
        ),  # the middle of the longer gaps: a host makes some of them longer still
        *near("ITL mean", level["mean"], 14, 0.6),
        *same("modality", level["modality"], "multimodal"),
        *between("samples", level["samples"], 5000, 1e9),
    ]


def capacity(found: Findings, folder: Path) -> list[str]:
    """Eight slots: the ninth request waits for another's end, 200 ms or more."""
    return same("capacity", found["max_concurrency"], 8)


def medians(folder: Path) -> dict[str, float]:
    """TTFT P50 in ms of the rows of Table 13."""
    tables = json.loads((folder / "procedure.json").read_text())["tables"]
    return {row[0]: row[2] for table in tables if table["id"] == "fairness" for row in table["rows"]}


def inflated(found: Findings, p50: dict[str, float]) -> list[str]:
    """Inflation is the quotient of the medians that are shown (IETF 5.6.4)."""
    return [
        problem
        for name in ("short", "long")
        for problem in near(
            f"inflation of {name}",
            found["inflation"][name]["p50"],
            p50[f"{name} mixed"] / p50[f"{name} isolated"],
            1e-6,
        )
    ]


def unfair(found: Findings, folder: Path) -> list[str]:
    """The shortest prompt goes first: a long one waits for all short ones, never the reverse."""
    p50 = medians(folder)
    return [
        *between("TTFT of long over short in the mix", p50["long mixed"] / p50["short mixed"], 2.0, 1e9),
        *same("unfair", found["significantly_unfair"], True),
        *inflated(found, p50),
    ]


def fair(found: Findings, folder: Path) -> list[str]:
    """First come, first served: a request waits as long as any other that came then, whatever its class."""
    p50 = medians(folder)
    return [
        *between("TTFT of long over short in the mix", p50["long mixed"] / p50["short mixed"], 0.5, 2.0),
        *same("starvation of long", found["starvation"]["long"] <= 0.1, True),
        *inflated(found, p50),
    ]


def overloaded(found: Findings, folder: Path) -> list[str]:
    """The same tokens/s of short requests are more than the slots can decode: nothing is said about fairness."""
    return [
        *same("unfair", found["significantly_unfair"], None),
        *same("why", "short" in (found.get("saturated_baselines") or ()), True),
    ]


def prefix_cache(found: Findings, folder: Path) -> list[str]:
    """What a cached token saves is known: its prefill. One request at a time, so nothing else changes. The cache that
    was filled holds what requests share, and no prompt that shares nothing.
    """
    runs = [load(path) for path in sorted((folder / "levels").iterdir())]
    off, warm = (run.rows[run.rows["phase"] == layout.MEASURE] for run in (runs[0], runs[2]))
    saved = (off["t_first"] - off["t_submit"] - (warm["t_first"] - warm["t_submit"])) / 1e6
    expected = PREFILL_MS * warm["cached_tokens"]
    shares = warm["cached_tokens"] > 0
    error = percentile(np.sort(np.abs(saved - expected)[shares]), 0.5)
    alone = warm["cached_tokens"][prefix_tokens(runs[2], warm["request"]) == 0]
    return [
        *near("error of the saving", error, 0, 2.0),
        *between("share of requests with hits", float(shares.mean()), 0.6, 1.0),
        *same("cached tokens of requests that share nothing", int(alone.max()), 0),
        *between("TTFT reduction, warm", found["ttft_reduction_percent"]["warm"]["p50"], 20, 100),
    ]


def memory_pressure(found: Findings, folder: Path) -> list[str]:
    """16 requests of 38 blocks fill the memory; at 20 some must give theirs up."""
    base, over = found["levels"]
    return [
        *same("preemptions at the capacity", base["preemptions"], 0),
        *between("preemptions beyond", over["preemptions"], 1, 1e9),
        *same("completion", base["completion"], 1.0),
    ]


def exponent(truth: float) -> Callable[[Findings, Path], list[str]]:
    return lambda found, folder: near("exponent", found["exponent"], truth, 0.04)


def guardrail(found: Findings, folder: Path) -> list[str]:
    """30 ms before the queue, 12 ms after every token."""
    added = found["overheads"]["0.25"]
    return [
        *near("input filter", added["input_filter_ttft_ms"]["p50"], 30, 3),
        *near("output filter", added["output_filter_e2e_ms"]["p50"], 12, 3),
        *near("both", added["total_e2e_ms"]["p50"], 42, 3),
    ]


NO_WARM_UP = "--quick --warmup 0 --settle 0"
# 8 slots of 1 ms serve 8,000 tokens/s, thus 53.3 of the mix's requests: at 63 a second a queue builds up on every seed.
MIXED = f"{NO_WARM_UP} --capacity 70 --capacity-source known --load 0.9 --baseline own_rate --duration 400"
EIGHT = "set.step_ms=1 set.max_running=8"
CASES = (
    Case("ttft", "ttft", f"{NO_WARM_UP} --rate 20 -n 3000 --osl 10", "ttft_ms=40 itl_ms=1", ttft),
    Case("throughput", "throughput", f"{NO_WARM_UP} --min 20 --max 60 --step 20 --isl 32 --osl 20", SLOTS, throughput),
    Case("tradeoff", "tradeoff", f"{NO_WARM_UP} --capacity 40 --capacity-source known --levels 0.4,0.8,1.5 --isl 32 "
         "--osl 20", SLOTS, tradeoff),
    Case("itl", "itl", f"{NO_WARM_UP} --capacity 60 --capacity-source known --levels 0.5 --isl 32 --osl 64",
         "set.step_ms=10 set.pause_every=10 set.pause_ms=40", itl),
    Case("capacity", "capacity", f"{NO_WARM_UP} --slo-ttft-p99 100 --initial 4 --max 16 --duration 20 --isl 32 "
         "--osl 20", SLOTS, capacity),
    Case("fairness", "fairness", MIXED, f"{EIGHT} set.scheduler=shortest", unfair),
    Case("fairness first come", "fairness", MIXED, EIGHT, fair),
    Case("fairness overloaded", "fairness", f"{NO_WARM_UP} --capacity 9 --capacity-source known --load 0.9 "
         "--duration 600", "set.step_ms=5 set.max_running=4", overloaded),
    Case("prefix-cache", "prefix-cache", f"{NO_WARM_UP} --concurrency 1 -n 1200 --osl 2 --throughput none",
         f"set.step_ms=2 set.per_prefill_token_us={PREFILL_MS * 1000:g}", prefix_cache),
    Case("memory-pressure", "memory-pressure", f"{NO_WARM_UP} --capacity 16 --capacity-source known --levels 1.25 "
         "--workload synthetic-uniform --isl 512 --osl 64", "set.step_ms=5 set.kv_blocks=608 set.max_model_len=8192",
         memory_pressure),
    Case("long-context 1.0", "long-context", f"{NO_WARM_UP} --lengths 4096,8192,16384 --osl 2",
         "set.step_ms=0.05 set.per_prefill_token_us=20 set.step_tokens=32768", exponent(1.0)),
    Case("long-context 1.3", "long-context", f"{NO_WARM_UP} --lengths 4096,8192,16384 --osl 2",
         "set.step_ms=0.05 set.per_prefill_token_us=2 set.prefill_exponent=1.3 set.step_tokens=32768", exponent(1.3)),
    Case("guardrail", "guardrail", f"{NO_WARM_UP} --capacity 40 --capacity-source known --levels 0.25 --no-throughput "
         "--workload synthetic-skewed --osl 8", "set.step_ms=5 set.guard_in_ms=30 set.guard_out_ms=12", guardrail),
)  # fmt: skip
