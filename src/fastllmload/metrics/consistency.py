"""How far the server's own token count and the reference tokenizer's are apart (metrics.md 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastllmload.metrics.between import NULL, Mask, Nanoseconds
from fastllmload.metrics.distribution import distribution
from fastllmload.records.run import Run
from fastllmload.records.text import texts, tokenizer_of


def usage_less_tokenizer(run: Run, population: Mask) -> Nanoseconds:
    """|visible tokens by usage - tokens of the recorded text| of each row in *population*; NULL where one is missing.

    Usage also counts the end token on some servers, so 1 is common.
    """
    found = np.full(len(run.rows), NULL, np.int64)
    said = population & (run.rows["completion_tokens"] >= 0)
    tokenizer = tokenizer_of(run) if len(run.text) and said.any() else None
    if tokenizer is None:
        return found[population]
    for row, text in texts(run):
        if said[row]:
            visible = int(run.rows["completion_tokens"][row]) - max(0, int(run.rows["reasoning_tokens"][row]))
            found[row] = abs(visible - tokenizer.count(text))
    return found[population]


def consistency_metrics(run: Run, population: Mask) -> dict[str, Any]:
    """`usage_less_tokenizer`: one value per request of the latency population whose text was recorded."""
    return {"usage_less_tokenizer": distribution(usage_less_tokenizer(run, population), "tokens")}
