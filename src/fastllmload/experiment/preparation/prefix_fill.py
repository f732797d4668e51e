"""A prefix cache filled with the shared prefixes that will be measured, and with nothing else of them (IETF 5.7.3).

The requests that fill it begin as the measured ones do and go on otherwise. Were the measured requests themselves sent
ahead, their whole prompts would be cached, and the test would find savings that no shared prefix gives.
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
    """*count* shared prefixes; a request has the rarest of them with probability *rarest*."""

    count: int
    rarest: float

    @property
    def requests(self) -> int:
        """So many that each prefix is among them, but for MISSED."""
        if self.rarest >= 1:
            return 1
        return min(MOST, math.ceil(math.log(MISSED / self.count) / math.log1p(-self.rarest)))


def shared_prefixes(workload: Workload) -> SharedPrefixes | None:
    """Of requests that stand alone; None where nobody knows what they share (data sets, conversations of turns)."""
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
    """The run that fills the cache for the measured requests of *settings*; None where their prefixes are not known.

    Every request of it has a shared prefix as far as the workload lets it, and asks for one token.
    """
    found = shared_prefixes(settings.workload)
    if found is None:
        return None
    asked = at_concurrency(settings, SLOTS, num_requests=found.requests, duration=None, warmup_requests=0)
    workload = {"stream": STREAM, "prefix_stream": settings.workload.stream, "prefix_share": 1.0, "osl": "1"}
    return changed(asked, workload=workload)


def whole(settings: RunSettings, most: int) -> RunSettings:
    """The measured sequence itself with answers of one token, where it is not known what is shared."""
    count = min(settings.load.num_requests or most, most)
    asked = at_concurrency(settings, SLOTS, num_requests=count, duration=None, warmup_requests=0)
    return changed(asked, workload={"osl": "1"})
