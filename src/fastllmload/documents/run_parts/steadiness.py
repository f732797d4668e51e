"""Whether the system was in a steady state, in run.json."""

from __future__ import annotations

from typing import Annotated

from fastllmload.documents.fields import (
    Count,
    Document,
    InFlight,
    Ms,
    Number,
    Plain,
    Rate,
    Ratio,
    RequestShare,
    Reveals,
    Samples,
    Seconds,
    field,
)


class DriftFacts(Document, frozen=True, kw_only=True):
    """A level of a metric over the window, ms, and the likeliest step in it."""

    first_half: Ms = None  # mean over the first half
    second_half: Ms = None  # mean over the second half
    p: Plain = None  # of a difference of the halves, or a slope, by chance
    step_at: RequestShare = None  # share of the requests before the step
    before_step: Ms = None  # mean before the likeliest step
    after_step: Ms = None  # mean after it
    p_step: Plain = None  # of that step by chance
    steady: bool | None = None  # false: it moved by 20 % or more, and not by chance


class Transient(Document, frozen=True, kw_only=True):
    """Where MSER-5 sees the start of the run end."""

    cut_requests: Count = None  # that MSER-5 would leave out at the start
    cut_share: Annotated[Number, field("share", Reveals.LOAD)] = None  # of all requests
    cut_seconds: Seconds = None  # when MSER-5 would begin, after the first request was due
    window_cut_seconds: Seconds = None  # when the window begins, after the first request was due
    steady: bool | None = None  # false: the best cut leaves less than half


class InFlightTrend(Document, frozen=True, kw_only=True):
    """Requests in flight in both halves of the window."""

    n: Samples = None  # requests that count: of a mix, those of its open loops
    first_half: InFlight = None  # mean over the first half
    second_half: InFlight = None  # mean over the second half
    p: Plain = None  # of a difference of the halves, or a slope, by chance
    growing: bool | None = None  # from fifth to fifth of the window, and not by chance


class LittlesLaw(Document, frozen=True, kw_only=True):
    """Requests in flight against rate times mean time."""

    in_flight: InFlight = None  # mean that workers counted in the window
    rate_per_s: Rate = None  # requests that began in the window
    time_s: Seconds = None  # mean time that these were in flight
    residual: Ratio = None  # difference of the counts from the requests' own times; None: too few were in flight
    holds: bool | None = None  # the residual is 1 % or less


class Steadiness(Document, frozen=True, kw_only=True):
    """Whether the system was in a steady state."""

    transient: dict[str, Transient | None] = {}
    littles_law: LittlesLaw | None = None
    drift: dict[str, DriftFacts | None] = {}  # of the level, by metric
    in_flight: InFlightTrend | None = None  # whether the queue grows; None: a closed loop, or too few requests
    steady: bool | None = None  # false: a level drifts or the queue grows
