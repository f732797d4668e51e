"""What a search is for, read from `--objective` and `--goodput`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fastllmload import quantities
from fastllmload.errors import InputError
from fastllmload.metrics.levels.operating_points import ATTAINMENT, FLUID_REQUESTS
from fastllmload.metrics.objectives.objective import Objective, objectives_of
from fastllmload.metrics.tokens.fluidity import FLUID_ABOVE
from fastllmload.search.objectives import SearchObjective, ShareLimit, all_limits, failures

SUSTAINED, ATTAIN, FLUID, SMOOTH = "sustained", "attainment", "fluid", "smooth-goodput"
FORMS = f"{SUSTAINED}, p99 (or p50 to p99.9), {ATTAIN}[:SHARE], {FLUID}[:SHARE], {SMOOTH}"
PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
NEEDS_LIMITS = "needs limits: add --goodput ttft:200 tpot:50"


@dataclass(frozen=True)
class RequestedObjective:
    """*goal* is None for a peak. *wanted*: objectives whose severities are read from each run."""

    name: str
    goal: SearchObjective | None
    wanted: tuple[Objective, ...]
    sentence: str


def read_goal(
    text: str | None, limits: tuple[tuple[str, float], ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    """InputError names what is wrong. Without *text*: P99 of the limits when there are any, else sustained."""
    text = (text or ("p99" if limits else SUSTAINED)).strip().lower()
    name, _, given = text.partition(":")
    wanted = objectives_of(limits)
    percentile = PERCENTILE.fullmatch(name)
    if name in (SUSTAINED, SMOOTH) or percentile is not None:
        refuse(given != "", text, "takes no share")
    if percentile is not None:
        return of_percentile(name, float(percentile[1]) / 100, wanted, width, closed)
    if name == SUSTAINED:
        return sustained(wanted, width, closed)
    if name == ATTAIN:
        return attainment(share_of(text, given, ATTAINMENT), wanted, width, closed)
    if name == FLUID:
        return fluid(share_of(text, given, FLUID_REQUESTS), width, closed)
    refuse(name != SMOOTH, text, f"is not known; write {FORMS}")
    return RequestedObjective(SMOOTH, None, (), "the load with the highest smooth goodput")


def refuse(wrong: bool, text: str, why: str) -> None:
    if wrong:
        raise InputError(f"--objective {text!r} {why}")


def share_of(text: str, given: str, default: float) -> float:
    if given == "":
        return default
    share = quantities.share(given)
    if share is None or not 0 < share < 1:
        raise InputError(
            f"--objective {text!r} has a share out of range; write one between 0 and 1, such as 0.9 or 90%"
        )
    return share


def of_percentile(
    name: str, share: float, wanted: tuple[Objective, ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    """A percentile is within its limit exactly when no more than the rest of the requests is beyond it."""
    refuse(not wanted, name, NEEDS_LIMITS)
    refuse(not 0.5 <= share < 1, name, "is no percentile from p50 to p99.9")
    told = " and ".join(percentile_words(name, share, one) for one in wanted)
    shares = tuple(ShareLimit(f"{one.name} beyond {one.limit:g} {one.unit}", one.name, 1 - share) for one in wanted)
    return RequestedObjective(name, SearchObjective(name, told, shares, width, closed), wanted, told)


def percentile_words(name: str, share: float, one: Objective) -> str:
    """A percentile of what is the better the higher it is would be misread."""
    if one.unit == "ms":
        return f"{name.upper()} of {one.name} is at most {one.limit:g} ms"
    return f"{100 * share:g}% of all requests have {limit_words(one)}"


def limit_words(one: Objective) -> str:
    """`ttft of at most 100 ms`."""
    if one.unit == "ms":
        return f"{one.name} of at most {one.limit:g} ms"
    return f"{one.name} of at least {one.limit:g}" + ("" if one.unit == "share" else f" {one.unit}")


def sustained(wanted: tuple[Objective, ...], width: Callable[[float], float], closed: bool) -> RequestedObjective:
    refuse(bool(wanted), SUSTAINED, "has no limits; leave out --goodput, or take p99 or attainment")
    told = (
        "25% more in flight give 5% more output tokens/s, and at most 10% fail"
        if closed
        else "the queue does not grow, and at most 10% fail"
    )
    return RequestedObjective(
        SUSTAINED, SearchObjective(SUSTAINED, told, (failures(),), width, closed, sustain=True), wanted, told
    )


def attainment(
    share: float, wanted: tuple[Objective, ...], width: Callable[[float], float], closed: bool
) -> RequestedObjective:
    refuse(not wanted, ATTAIN, NEEDS_LIMITS)
    limits = " and ".join(limit_words(one) for one in wanted)
    told = f"at least {100 * share:g}% of all requests have {limits}"
    return RequestedObjective(
        ATTAIN, SearchObjective(ATTAIN, told, (all_limits(1 - share),), width, closed), wanted, told
    )


def fluid(share: float, width: Callable[[float], float], closed: bool) -> RequestedObjective:
    wanted = (Objective("fluidity", FLUID_ABOVE),)
    told = f"at least {100 * share:g}% of all requests have a fluidity index of {FLUID_ABOVE} or more"
    limits = (ShareLimit("requests that are not fluid", "fluidity", 1 - share),)
    return RequestedObjective(FLUID, SearchObjective(FLUID, told, limits, width, closed), wanted, told)
