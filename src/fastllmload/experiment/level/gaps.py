"""Gaps between tokens of the requests of one level that generated enough of them (IETF 5.4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution import shape
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens import itl
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records.run import Run

FIGURES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


@dataclass(frozen=True)
class LevelGaps:
    """*ns*: all gaps pooled; *requests* qualify, *short* do not. *jitter*, *max_pause*: ms per request."""

    option: str
    ns: npt.NDArray[np.int64]
    requests: int
    short: int
    jitter: npt.NDArray[np.float64]
    max_pause: npt.NDArray[np.float64]

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """Percentiles, mean and standard deviation in ms, and P99 over P50."""
        ordered = np.sort(self.ns) / 1e6
        found: dict[str, float | None] = {name: percentile(ordered, q) for name, q in FIGURES}
        found["mean"] = float(ordered.mean()) if len(ordered) else None
        found["std"] = float(ordered.std(ddof=1)) if len(ordered) > 1 else None
        found["p99_p50"] = shape.tail_ratio(found["p50"], found["p99"])
        return found

    def figure(self, name: str) -> float | None:
        return self.figures[name]

    def per_request(self, name: str, q: float) -> float | None:
        """Percentile over requests of "jitter" or "max_pause", in ms."""
        values: npt.NDArray[np.float64] = getattr(self, name)
        return percentile(np.sort(values[~np.isnan(values)]), q)

    @property
    def modality(self) -> str | None:
        found = shape.modality(self.ns)
        return None if found is None else found.label

    @property
    def tail(self) -> str | None:
        found = shape.tail(self.ns)
        return None if found is None else found.label


def gaps_of(run: Run, least_tokens: int) -> LevelGaps:
    """Gaps of the successful requests of the window with at least *least_tokens* output tokens."""
    chosen = populations(run, window_of(run)).latency
    tokens = count_tokens(run)
    enough = chosen & (tokens.output >= least_tokens)
    found = itl.pooled(run, enough, tokens, token_times(run, chosen, tokens))
    jitter, longest = itl.figures(found.gaps)
    return LevelGaps(
        option=found.option,
        ns=found.gaps.each,
        requests=int(np.count_nonzero(enough)),
        short=int(np.count_nonzero(chosen & ~enough)),
        jitter=jitter / 1e6,
        max_pause=longest / 1e6,
    )
