"""Throughput per GPU and per unit of money (IETF 6.2; metrics.md 6.2, 6.9).

"Tokens per dollar-hour" has two readings; both are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.metrics.distribution import scalar

SECONDS_PER_HOUR = 3600


def tok_per_gpu_s(output_tok_s: float | None, gpus: int | None) -> float | None:
    """tokens/s / GPUs; None without either."""
    return None if output_tok_s is None or gpus is None else output_tok_s / gpus


def tok_s_per_dollar_hour(output_tok_s: float | None, price_per_hour: float | None) -> float | None:
    """tokens/s / (price per hour of the whole system)."""
    return None if output_tok_s is None or price_per_hour is None else output_tok_s / price_per_hour


def tokens_per_dollar(output_tok_s: float | None, price_per_hour: float | None) -> float | None:
    """3600 tokens/s / (price per hour): tokens that one unit of money buys."""
    each = tok_s_per_dollar_hour(output_tok_s, price_per_hour)
    return None if each is None else SECONDS_PER_HOUR * each


def cost_metrics(manifest: Mapping[str, Any], output_tok_s: float | None) -> dict[str, Any]:
    """What follows from the GPUs and the price that the user declared; null without."""
    asked = manifest.get("config", {}).get("output", {})
    gpus, price = asked.get("gpus"), asked.get("price_per_hour")
    return {
        "tok_per_gpu_s": scalar(tok_per_gpu_s(output_tok_s, gpus), "tokens/s/GPU", gpus=gpus),
        "tok_s_per_dollar_hour": scalar(
            tok_s_per_dollar_hour(output_tok_s, price), "tokens/s per price/h", price_per_hour=price
        ),
        "tokens_per_dollar": scalar(tokens_per_dollar(output_tok_s, price), "tokens/price", price_per_hour=price),
    }
