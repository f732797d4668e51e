"""Computes the benefit of each request and the smooth goodput of the run (spec/metrics 5.11, 6.5, SG equations 6 to 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Numbers
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric, Value
from fastllmload.metrics.distribution.summary import distribution, number
from fastllmload.metrics.request.durations import committed, to_float
from fastllmload.metrics.run.throughput import TimeBase, per_second
from fastllmload.metrics.tokens.counts import TOKENIZER, USAGE, TokenCounts
from fastllmload.metrics.tokens.idle import Reader, idle_latency, max_lateness
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records.run import Run


@dataclass(frozen=True)
class Preset:
    """*alpha* tokens that one second of idling costs a *reader*. f(l) is l in seconds."""

    alpha: float
    reader: Reader

    def described(self, name: str) -> dict[str, Any]:
        """The settings, which are part of every value, because values with different settings cannot be compared."""
        return {"preset": name, "alpha": self.alpha, **self.reader.described(), "f": "seconds"}


PRESETS = {"sg-default": Preset(5.0, Reader(20.0)), "sg-fig6": Preset(10.0, Reader(5.0))}  # SG 5.1, SG 5.2


def received(tokens: TokenCounts, times: TokenTimes, one_each: bool) -> Numbers:
    """n_r: content tokens that each request of *times* received, by its declared count.

    Where the count is only an estimate, because a stream broke before its usage came, the number of tokens that arrived is
    more accurate, if chunks are known to be tokens for this request or (*one_each*) for the complete run.
    """
    timed, source = tokens.timed[times.rows], tokens.source[times.rows]
    declared = (timed >= 0) & ((source == USAGE) | (source == TOKENIZER))
    arrived = times.known() | one_each | (timed < 0)
    return np.where(declared | ~arrived, timed, times.count)


def benefit(n_r: Numbers, idle_ns: Numbers, alpha: float) -> Floats:
    """n_r - alpha f(l), in tokens; may be negative, never clamped. NaN where l is null."""
    return n_r - alpha * to_float(idle_ns, 1e9)


def smooth_goodput(benefits: Floats, seconds: float | None) -> float | None:
    """Sum of the benefits of all submitted requests, failed ones included, per second of the time base."""
    return per_second(float(np.nansum(benefits)), seconds)


def benefits_by(run: Run, times: TokenTimes, n_r: Numbers, preset: Preset) -> Floats:
    rows = run.rows[times.rows]
    late = max_lateness(rows, times, preset.reader, committed(rows))
    return benefit(n_r, idle_latency(late), preset.alpha)


def benefit_metrics(run: Run, times: TokenTimes, n_r: Numbers, base: TimeBase) -> dict[str, Metric]:
    """`benefit_<preset>` per submitted request and `smooth_goodput_<preset>`, each with its parameters."""
    found: dict[str, Metric] = {}
    for name, preset in PRESETS.items():
        each = benefits_by(run, times, n_r, preset)
        by, key = preset.described(name), name.replace("-", "_")
        found[f"benefit_{key}"] = replace(distribution(each, "tokens"), **by)
        found[f"smooth_goodput_{key}"] = Value(
            unit="tokens/s", value=number(smooth_goodput(each, base.seconds)), time_base=base.name, **by
        )
    return found


def smooth_by_preset(metrics: Mapping[str, Metric]) -> dict[str, float | None]:
    """Smooth goodput of each preset, from the result of `benefit_metrics`."""
    return {name: known(metrics[f"smooth_goodput_{name.replace('-', '_')}"].value) for name in PRESETS}
