"""Reads the objective of a search from `--objective` and `--goodput`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from fastllmload import quantities
from fastllmload.documents.search import PEAK
from fastllmload.errors import InputError
from fastllmload.metrics.levels.operating_points import ATTAINMENT, FLUID_REQUESTS
from fastllmload.metrics.objectives.objective import Objective, objectives_of
from fastllmload.metrics.tokens.fluidity import FLUID_ABOVE
from fastllmload.search.judges import ShareLimit, all_limits, failures
from fastllmload.search.objectives import SearchObjective
from fastllmload.statistics.sequential_tests import SequentialPlan

SUSTAINED, ATTAIN, FLUID, SMOOTH = "sustained", "attainment", "fluid", PEAK
FORMS = f"{SUSTAINED}, p99 (or p50 to p99.9), {ATTAIN}[:SHARE], {FLUID}[:SHARE], {SMOOTH}"
PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
NEEDS_LIMITS = "needs limits: add --goodput ttft:200 tpot:50"


@dataclass(frozen=True)
class RequestedObjective:
    """*objective*: None for a peak. *wanted*: objectives whose severities are read from each run."""

    name: str
    objective: SearchObjective | None
    wanted: tuple[Objective, ...]
    sentence: str

    def planned(self, plan: SequentialPlan) -> SequentialPlan:
        """*plan* with the trials that decide this objective. None are short for a peak, nor for the gain of a closed loop,
        which is compared with lower levels, because short trials would tell too little about those.
        """
        found = self.objective
        return replace(plan, short=0) if found is None or (found.closed and found.sustain) else plan


def read_objective(
    text: str | None, limits: tuple[tuple[str, float], ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    """The objective that *text* names; without *text* P99 of the limits if there are any, else sustained. InputError says
    what is wrong.
    """
    text = (text or ("p99" if limits else SUSTAINED)).strip().lower()
    name, _, share_text = text.partition(":")
    wanted = objectives_of(limits)
    of_sessions = next((one.name for one in wanted if one.of_sessions), None)
    if of_sessions is not None:
        raise InputError(
            "objective-invalid",
            f"--goodput {of_sessions} is about sessions, and a search judges requests; give an objective of requests",
        )
    percentile = PERCENTILE.fullmatch(name)
    if name in (SUSTAINED, SMOOTH) or percentile is not None:
        reject_if(share_text != "", text, "takes no share")
    if name == SMOOTH:
        return RequestedObjective(SMOOTH, None, (), "the load with the highest smooth goodput")
    if percentile is not None:  # it is within its limit exactly if at most the remaining share is beyond it
        share = float(percentile[1]) / 100
        reject_if(not wanted, name, NEEDS_LIMITS)
        reject_if(not 0.5 <= share < 1, name, "is not a percentile from p50 to p99.9")
        sentence = " and ".join(percentile_text(name, share, one) for one in wanted)
        shares = tuple(ShareLimit(f"{one.name} beyond {one.limit:g} {one.unit}", one.name, 1 - share) for one in wanted)
    elif name == SUSTAINED:
        reject_if(bool(wanted), SUSTAINED, "has no limits; leave out --goodput, or take p99 or attainment")
        gain = "25% more in flight give 5% more output tokens/s" if closed else "the queue does not grow"
        sentence, shares = f"{gain}, and at most 10% fail", (failures(),)
    elif name == ATTAIN:
        share = share_of(text, share_text, ATTAINMENT)
        reject_if(not wanted, ATTAIN, NEEDS_LIMITS)
        sentence = f"at least {100 * share:g}% of all requests have {' and '.join(one.words for one in wanted)}"
        shares = (all_limits(1 - share),)
    else:
        reject_if(name != FLUID, text, f"is not known; write {FORMS}")
        share = share_of(text, share_text, FLUID_REQUESTS)
        wanted = (Objective("fluidity", FLUID_ABOVE),)
        sentence = f"at least {100 * share:g}% of all requests have a fluidity index of {FLUID_ABOVE} or more"
        shares = (ShareLimit("requests that are not fluid", "fluidity", 1 - share),)
    objective = SearchObjective(name, sentence, shares, width, closed, sustain=name == SUSTAINED)
    return RequestedObjective(name, objective, wanted, sentence)


def reject_if(wrong: bool, text: str, why: str) -> None:
    if wrong:
        raise InputError("objective-invalid", f"--objective {text!r} {why}")


def share_of(text: str, share_text: str, default: float) -> float:
    if share_text == "":
        return default
    share = quantities.share(share_text)
    if share is None or not 0 < share < 1:
        raise InputError(
            "objective-invalid",
            f"--objective {text!r} has a share out of range; write one between 0 and 1, such as 0.9 or 90%",
        )
    return share


def percentile_text(name: str, share: float, one: Objective) -> str:
    """Text of one percentile objective; a metric where higher is better is put as a share, which is unambiguous."""
    if one.unit == "ms":
        return f"{name.upper()} of {one.name} is at most {one.limit:g} ms"
    return f"{100 * share:g}% of all requests have {one.words}"
