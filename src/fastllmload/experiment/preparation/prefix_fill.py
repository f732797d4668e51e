"""Fills a prefix cache with the shared prefixes of the measured requests, and with nothing else of them (IETF 5.7.3).

The requests that fill it have the same prefixes as the measured ones and other text after them. If the measured requests
were sent ahead, their complete prompts would be cached, and the test would find savings that no shared prefix gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastllmload.experiment.level.settings import at_concurrency, changed
from fastllmload.settings import RunSettings, Workload
from fastllmload.workload.completion import CONTEXTS, EXPONENT, SHARE
from fastllmload.workload.conversation import SYSTEM_SHARE
from fastllmload.workload.synthetic import zipf

STREAM = "fill"
SLOTS = 4
MISSED = 1e-4  # chance that a shared prefix is in none of the requests
MOST = 10_000  # requests


@dataclass(frozen=True)
class SharedPrefixes:
    """*count* shared prefixes. A request has the rarest of them with probability *rarest*."""

    count: int
    rarest: float

    @property
    def requests(self) -> int:
        """Number of requests that contain every prefix with probability 1 - MISSED."""
        if self.rarest >= 1:
            return 1
        return min(MOST, math.ceil(math.log(MISSED / self.count) / math.log1p(-self.rarest)))


def shared_prefixes(workload: Workload) -> SharedPrefixes | None:
    """The shared prefixes of single requests; None if unknown (data sets, conversations of several turns)."""
    if workload.turns is not None:
        return None
    if workload.name == "code-completion":
        return SharedPrefixes(CONTEXTS, SHARE * rarest(CONTEXTS, EXPONENT))
    if workload.name == "conversation":
        return SharedPrefixes(1, SYSTEM_SHARE)
    if workload.prefix_len and workload.dataset_path is None:
        return SharedPrefixes(workload.num_prefixes, rarest(workload.num_prefixes, workload.prefix_zipf))
    return None


def rarest(count: int, exponent: float) -> float:
    """Probability of the rarest of *count* prefixes chosen as k^-*exponent*."""
    cumulative = [0.0, *zipf(count, exponent)]
    return cumulative[-1] - cumulative[-2]


def filling(settings: RunSettings) -> RunSettings | None:
    """The run that fills the cache for the measured requests of *settings*; None if their prefixes are not known.

    Each of its requests has a shared prefix if the workload has any, and asks for one token.
    """
    found = shared_prefixes(settings.workload)
    if found is None:
        return None
    asked = at_concurrency(settings, SLOTS, num_requests=found.requests, duration=None, warmup_requests=0)
    workload = {"stream": STREAM, "prefix_stream": settings.workload.stream, "prefix_share": 1.0, "osl": "1"}
    return changed(asked, workload=workload)


def filling_unknown(settings: RunSettings, most: int) -> RunSettings:
    """The run that fills the cache if the shared prefixes are not known: the measured requests with answers of one token."""
    count = min(settings.load.num_requests or most, most)
    asked = at_concurrency(settings, SLOTS, num_requests=count, duration=None, warmup_requests=0)
    return changed(asked, workload={"osl": "1"})
