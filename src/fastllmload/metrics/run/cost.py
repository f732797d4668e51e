"""Computes throughput per GPU, per unit of money and per watt (IETF 6.2; spec/metrics 6.2, 6.9).

"Tokens per dollar-hour" has two interpretations, which have names of their own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fastllmload.arrays import Floats, Numbers
from fastllmload.documents.metric import Metric, Value
from fastllmload.metrics.distribution.summary import number
from fastllmload.settings import Output

SECONDS_PER_HOUR = 3600


def tok_per_gpu_s(output_tok_s: float | None, gpus: int | None) -> float | None:
    """tokens/s / GPUs; None without either."""
    return None if output_tok_s is None or gpus is None else output_tok_s / gpus


def tok_s_per_dollar_hour(output_tok_s: float | None, price_per_hour: float | None) -> float | None:
    """tokens/s / (price per hour of the complete system)."""
    return None if output_tok_s is None or price_per_hour is None else output_tok_s / price_per_hour


def tokens_per_dollar(output_tok_s: float | None, price_per_hour: float | None) -> float | None:
    """3600 tokens/s / (price per hour): tokens that one unit of money buys."""
    each = tok_s_per_dollar_hour(output_tok_s, price_per_hour)
    return None if each is None else SECONDS_PER_HOUR * each


class PerGpu(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "gpus")


class PerPrice(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "price_per_hour")


def cost_metrics(output: Output, output_tok_s: float | None) -> dict[str, Metric]:
    """Figures from the GPUs and the price that the user declared; null without them."""
    gpus, price = output.gpus, output.price_per_hour
    rate, bought = tok_s_per_dollar_hour(output_tok_s, price), tokens_per_dollar(output_tok_s, price)
    return {
        "tok_per_gpu_s": PerGpu(unit="tokens/s/GPU", value=number(tok_per_gpu_s(output_tok_s, gpus)), gpus=gpus),
        "tok_s_per_dollar_hour": PerPrice(unit="tokens/s per price/h", value=number(rate), price_per_hour=price),
        "tokens_per_dollar": PerPrice(unit="tokens/price", value=number(bought), price_per_hour=price),
    }


def power_w(t_ns: Numbers, watts: Floats, start_ns: int, end_ns: int) -> float | None:
    """Time average over [start, end] of samples that ascend in time; NaN samples are left out.

    Between two samples power is taken as linear, before the first and after the last as constant. None without a sample
    inside, or without a duration.
    """
    seen = ~np.isnan(watts)
    t, w = t_ns[seen], watts[seen]
    inside = (t >= start_ns) & (t <= end_ns)
    if end_ns <= start_ns or not inside.any():
        return None
    at = np.unique(np.concatenate([[start_ns], t[inside], [end_ns]]))
    # Relative to the start: ns since boot do not fit a float exactly.
    seconds = (at - start_ns) / 1e9
    level = np.interp(seconds, (t - start_ns) / 1e9, w)
    above = level - level[0]  # so that a constant power is exactly that
    return float(level[0] + (np.diff(seconds) * (above[1:] + above[:-1])).sum() / 2 / seconds[-1])


def tok_s_per_w(tok_s: float | None, watts: float | None) -> float | None:
    """tokens/s / W; None without either, or without any power."""
    return None if tok_s is None or watts is None or watts <= 0 else tok_s / watts
