"""Goodput in run.json: how requests met the objectives."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import (
    Count,
    Document,
    Figure,
    Ms,
    Number,
    Plain,
    Rate,
    RequestShare,
    Reveals,
    Seconds,
    Sentence,
    TokenRate,
    TokenSpeed,
    field,
)
from fastllmload.documents.metric import NO_METRIC, Metric


class WorstRequest(Document, frozen=True, kw_only=True):
    """A request that missed an objective."""

    request_id: str | None = None  # its X-Fastllmload-Request
    excess: Plain = None  # by which it missed the limit, in the unit of the limit; None: no value


ShareBounds = Annotated[tuple[Number, ...] | None, field("share", Reveals.LOAD)]


class ObjectiveResult(Document, frozen=True, kw_only=True, rename={"class_": "class"}):
    """How requests met one objective."""

    objective: str | None = None  # name of the objective, [CLASS/]METRIC
    metric: str | None = None  # that it limits
    class_: str | None = None  # of requests that it is about; None: all without an objective of their own
    limit: Figure = None  # of the metric
    unit: str | None = None
    submitted: Count = None  # that it is about
    met: Count = None  # ok and within the limit
    attainment: RequestShare = None  # met of submitted
    missed: Count = None  # ok, but beyond the limit
    failed: Count = None  # not ok
    excess: Metric = NO_METRIC  # by how much requests missed it
    worst: tuple[WorstRequest, ...] = ()  # those that missed it most, 20 at most
    failed_requests: tuple[str, ...] = ()  # X-Fastllmload-Requests of requests that failed, 20 at most
    # Of fluidity: deadlines of the first token, one number or pairs (input tokens, ms), and of each further token.
    d_p_ms: Annotated[float | tuple[tuple[float, float], ...] | None, field("ms")] = None
    d_d_ms: Ms = None
    speed_tok_s: TokenSpeed = None  # of idle: reading speed
    d1_ms: Ms = None
    problem: Sentence = None  # why it cannot be judged: an unknown class

    OPTIONAL: ClassVar[tuple[str, ...]] = ("d_p_ms", "d_d_ms", "speed_tok_s", "d1_ms", "problem")


class ClassObjectives(Document, frozen=True, kw_only=True):
    """How the requests of one class met all objectives."""

    met: Count = None  # ok, and all objectives met
    submitted: Count = None  # in the window
    slo_attainment: RequestShare  # met of submitted


class Objectives(Document, frozen=True, kw_only=True):
    """Goodput: how many requests met the objectives."""

    objectives_ms: dict[str, Annotated[Number, field("ms, tokens/s or share")]] = {}  # limits of `--goodput`, by name
    smooth_goodput: dict[str, TokenRate] = {}  # by preset (spec/metrics 6.5)
    time_base: str | None = None  # of the rates: window, makespan
    seconds: Seconds = None  # length of *time_base*
    evaluator: str | None = None  # framework of these metrics (SG equations 2 to 4); None: another combination
    met: Count = None  # ok, and all objectives met
    submitted: Count = None  # in the window (attainment population)
    slo_attainment: RequestShare = None  # met of submitted (spec/metrics 6.4)
    request_goodput: Rate = None  # met per second (spec/metrics 6.4)
    token_goodput: TokenRate = None  # content tokens of those that met them, per second (SG equation 5)
    each: dict[str, Count] = {}  # met, by objective
    objectives: tuple[ObjectiveResult, ...] = ()  # each objective on its own
    classes: dict[str, ClassObjectives] = {}
    unfinished: Count = None  # cut off before their end
    slo_attainment_bounds: ShareBounds = None  # had none of these met the objectives, had all
    problem: Sentence = None  # of an objective that this version does not know

    OPTIONAL: ClassVar[tuple[str, ...]] = ("unfinished", "slo_attainment_bounds", "problem")
