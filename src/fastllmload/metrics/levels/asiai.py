"""Computes the figures of asiai's benchmark protocol (ASIAI-M1 to M8): a few runs of each prompt type, one block of numbers.

The protocol's client sends one request at a time. A block never mixes server and client figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Numbers, Rows
from fastllmload.documents.fields import Number
from fastllmload.metrics.request.durations import NULL, gen_duration, total_duration, ttft, ttft_any
from fastllmload.metrics.request.tpot import SHORTEST_NS
from fastllmload.metrics.run.cost import tok_s_per_w
from fastllmload.records.layout import OK

STABLE_BELOW, VARIABLE_BELOW = 5.0, 10.0  # percent

Groups = Sequence[Sequence[float]]  # one sequence of runs per prompt type


@dataclass(frozen=True)
class PooledSpread:
    """*median* and *mean* are over all runs; *pooled_std* over prompt types with at least 2 runs. None where undefined."""

    n: int
    median: float | None
    mean: float | None
    pooled_std: float | None
    cv_percent: float | None
    stability: str | None


def stability(cv: float | None) -> str | None:
    """stable < 5 % <= variable < 10 % <= unstable; None for no figure."""
    if cv is None:
        return None
    if cv < STABLE_BELOW:
        return "stable"
    return "variable" if cv < VARIABLE_BELOW else "unstable"


def pooled_spread(groups: Groups) -> PooledSpread:
    """Median, mean, pooled spread, its ratio to the mean and its class, in the unit of the runs.

    The pooled variance is the unweighted mean of each group's population variance; groups of one run are left out.
    """
    runs = [value for group in groups for value in group]
    mean = sum(runs) / len(runs) if runs else None
    variances = [float(np.var(group)) for group in groups if len(group) >= 2]
    std = math.sqrt(sum(variances) / len(variances)) if variances else None
    cv = None if std is None or not mean else 100 * std / mean
    return PooledSpread(len(runs), median(runs), mean, std, cv, stability(cv))


@dataclass(frozen=True)
class Generation:
    """One measured request. *gen_ns*: how long tokens were generated; None: total_ns less ttft_ns."""

    ttft_ns: int
    total_ns: int
    tokens: int
    gen_ns: int | None = None

    @property
    def gen_duration_ns(self) -> int:
        """ASIAI-M5: never negative."""
        return max(0, self.total_ns - self.ttft_ns if self.gen_ns is None else self.gen_ns)

    @property
    def degenerate(self) -> bool:
        """Below 10 ms of generation the rate is 0.0 by rule (ASIAI-M1)."""
        return self.gen_duration_ns < SHORTEST_NS

    @property
    def gen_tok_s(self) -> float:
        """ASIAI-M1: tokens / generation time."""
        return 0.0 if self.degenerate else self.tokens * 1e9 / self.gen_duration_ns


Runs = Sequence[Generation | None]  # None: that run failed


def from_rows(rows: Rows, output_tokens: Numbers) -> list[Generation | None]:
    """One item per row from the client's own stamps; None for a row that is not ok. The TTFT of an answer that is all
    reasoning is that of its first token.
    """
    first, total, generating = first_token(rows), total_duration(rows), gen_duration(rows)
    usable = (rows["status"] == OK) & (first != NULL) & (total != NULL)
    return [
        Generation(int(first[row]), int(total[row]), int(output_tokens[row]), int(generating[row]))
        if usable[row]
        else None
        for row in range(len(rows))
    ]


def first_token(rows: Rows) -> Numbers:
    """ttft, or ttft_any without an answer token."""
    answered = ttft(rows)
    return np.where(answered != NULL, answered, ttft_any(rows))


@dataclass(frozen=True)
class MiddleAndMean:
    """Of durations in ms; None without one."""

    median: float | None
    mean: float | None


@dataclass(frozen=True)
class PromptType:
    """Figures of one prompt type. *runs_tok_s*: of its runs in order, None for one that failed."""

    runs_tok_s: tuple[float | None, ...]
    gen_tok_s: PooledSpread
    ttft_ms: MiddleAndMean


@dataclass(frozen=True)
class ProtocolBlock:
    """The block of one engine; None for each figure that was not measured. Its counts may be withheld."""

    gen_tok_s: PooledSpread
    n_degenerate: Number
    ttft_ms: MiddleAndMean
    total_duration_ms: MiddleAndMean
    gen_duration_ms: MiddleAndMean
    tokens: Number
    n_runs: Number
    n_failed: Number
    power_w: float | None
    tok_s_per_w: float | None
    throttled: bool | None
    by_prompt_type: dict[str, PromptType]


def protocol(runs: Mapping[str, Runs], *, power_w: float | None = None, throttled: bool | None = None) -> ProtocolBlock:
    """The block of one engine from its runs by prompt type. Degenerate rates are left out of median, mean and spread, and
    counted.
    """
    kept = {name: [run for run in group if run is not None] for name, group in runs.items()}
    rates = {name: [run.gen_tok_s for run in group if not run.degenerate] for name, group in kept.items()}
    flat = [run for group in kept.values() for run in group]
    spread = pooled_spread(list(rates.values()))
    n_runs = sum(len(group) for group in runs.values())
    return ProtocolBlock(
        gen_tok_s=spread,
        n_degenerate=sum(run.degenerate for run in flat),
        ttft_ms=middle_and_mean([run.ttft_ns for run in flat]),
        total_duration_ms=middle_and_mean([run.total_ns for run in flat]),
        gen_duration_ms=middle_and_mean([run.gen_duration_ns for run in flat]),
        tokens=sum(run.tokens for run in flat),
        n_runs=n_runs,
        n_failed=n_runs - len(flat),
        power_w=power_w,
        tok_s_per_w=tok_s_per_w(spread.median, power_w),
        throttled=throttled,
        by_prompt_type={
            name: PromptType(
                runs_tok_s=tuple(None if run is None else run.gen_tok_s for run in group),
                gen_tok_s=pooled_spread([rates[name]]),
                ttft_ms=middle_and_mean([run.ttft_ns for run in kept[name]]),
            )
            for name, group in runs.items()
        },
    )


def median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def middle_and_mean(durations_ns: Sequence[int]) -> MiddleAndMean:
    values = [each / 1e6 for each in durations_ns]
    return MiddleAndMean(median(values), float(np.mean(values)) if values else None)
