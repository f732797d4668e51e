"""Reads the objective of a search from `--objective` and `--goodput`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fastllmload import quantities
from fastllmload.documents.search import PEAK
from fastllmload.errors import InputError
from fastllmload.metrics.levels.operating_points import ATTAINMENT, FLUID_REQUESTS
from fastllmload.metrics.objectives.objective import Objective, objectives_of
from fastllmload.metrics.tokens.fluidity import FLUID_ABOVE
from fastllmload.search.judges import ShareLimit, all_limits, failures
from fastllmload.search.objectives import SearchObjective

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


def read_objective(
    text: str | None, limits: tuple[tuple[str, float], ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    """The objective that *text* names; without *text* P99 of the limits if there are any, else sustained. InputError says
    what is wrong.
    """
    text = (text or ("p99" if limits else SUSTAINED)).strip().lower()
    name, _, share_text = text.partition(":")
    wanted = objectives_of(limits)
    percentile = PERCENTILE.fullmatch(name)
    if name in (SUSTAINED, SMOOTH) or percentile is not None:
        reject_if(share_text != "", text, "takes no share")
    if percentile is not None:
        return of_percentile(name, float(percentile[1]) / 100, wanted, width, closed)
    if name == SUSTAINED:
        return sustained(wanted, width, closed)
    if name == ATTAIN:
        return attainment(share_of(text, share_text, ATTAINMENT), wanted, width, closed)
    if name == FLUID:
        return fluid(share_of(text, share_text, FLUID_REQUESTS), width, closed)
    reject_if(name != SMOOTH, text, f"is not known; write {FORMS}")
    return RequestedObjective(SMOOTH, None, (), "the load with the highest smooth goodput")


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


def of_percentile(
    name: str, share: float, wanted: tuple[Objective, ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    """A percentile is within its limit exactly if at most the remaining share of the requests is beyond it."""
    reject_if(not wanted, name, NEEDS_LIMITS)
    reject_if(not 0.5 <= share < 1, name, "is not a percentile from p50 to p99.9")
    sentence = " and ".join(percentile_text(name, share, one) for one in wanted)
    shares = tuple(ShareLimit(f"{one.name} beyond {one.limit:g} {one.unit}", one.name, 1 - share) for one in wanted)
    return RequestedObjective(name, SearchObjective(name, sentence, shares, width, closed), wanted, sentence)


def percentile_text(name: str, share: float, one: Objective) -> str:
    """Text of one percentile objective; a metric where higher is better is put as a share, which is unambiguous."""
    if one.unit == "ms":
        return f"{name.upper()} of {one.name} is at most {one.limit:g} ms"
    return f"{100 * share:g}% of all requests have {one.words}"


def sustained(wanted: tuple[Objective, ...], width: Callable[[float], float], closed: bool) -> RequestedObjective:
    reject_if(bool(wanted), SUSTAINED, "has no limits; leave out --goodput, or take p99 or attainment")
    sentence = (
        "25% more in flight give 5% more output tokens/s, and at most 10% fail"
        if closed
        else "the queue does not grow, and at most 10% fail"
    )
    return RequestedObjective(
        SUSTAINED, SearchObjective(SUSTAINED, sentence, (failures(),), width, closed, sustain=True), wanted, sentence
    )


def attainment(
    share: float, wanted: tuple[Objective, ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    reject_if(not wanted, ATTAIN, NEEDS_LIMITS)
    limits = " and ".join(one.words for one in wanted)
    sentence = f"at least {100 * share:g}% of all requests have {limits}"
    return RequestedObjective(
        ATTAIN, SearchObjective(ATTAIN, sentence, (all_limits(1 - share),), width, closed), wanted, sentence
    )


def fluid(share: float, width: Callable[[float], float], closed: bool) -> RequestedObjective:
    wanted = (Objective("fluidity", FLUID_ABOVE),)
    sentence = f"at least {100 * share:g}% of all requests have a fluidity index of {FLUID_ABOVE} or more"
    limits = (ShareLimit("requests that are not fluid", "fluidity", 1 - share),)
    return RequestedObjective(FLUID, SearchObjective(FLUID, sentence, limits, width, closed), wanted, sentence)
