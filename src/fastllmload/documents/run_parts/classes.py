"""Classes of traffic in run.json: figures of each, of its models, and fairness among them."""

from __future__ import annotations

from typing import ClassVar

from fastllmload.documents.fields import (
    Count,
    Document,
    InFlight,
    Length,
    Model,
    Names,
    Plain,
    Rate,
    Ratio,
    RequestShare,
    Samples,
    TokenRate,
    Tokens,
)
from fastllmload.documents.metric import NO_METRIC, Metric
from fastllmload.documents.run_parts.counts import ErrorCount


class JainIndex(Document, frozen=True, kw_only=True):
    """Jain's index of fairness."""

    value: Plain = None  # 1/n: all for one request; 1: the same for all
    n: Samples = None  # requests in it
    normalisation: str | None = None  # what is compared between requests
    significantly_unfair: bool | None = None  # the value is below *unfair_below* (IETF 5.6.4)


class ClassFairness(Document, frozen=True, kw_only=True):
    """How one class fared among the others."""

    submitted: Count = None  # in the window
    ok: Count = None
    starvation_rate: RequestShare = None  # waited over 5 medians of their class (spec/metrics 7.5)
    ttft: Metric = NO_METRIC
    tpot: Metric = NO_METRIC


class Fairness(Document, frozen=True, kw_only=True):
    """Fairness among the classes of traffic."""

    jain_index: JainIndex = JainIndex()  # of TTFT over that of the class alone; its value needs another run (IETF 5.6)
    jain_norm_latency: JainIndex = JainIndex()  # of E2E latency per output token
    unfair_below: Ratio = None  # index below which service is significantly unfair
    starved_above_medians: Plain = None  # wait, as a multiple of its class's median, above which a request is starved
    classes: dict[str, ClassFairness] = {}


class SlotsFollowed(Document, frozen=True, kw_only=True):
    """How requests in flight followed slots that change, or that a class of a mix has, until the end of sending."""

    asked_mean: InFlight = None  # over time
    achieved_mean: InFlight = None  # over time, from dispatch to end
    within_one_share: Ratio = None  # of the time, in which the two differed by one or less
    above_share: Ratio = None  # of the time, in which requests of slots that were to close had not ended


class PartResult(Document, frozen=True, kw_only=True):
    """Figures of a part of the requests, such as those of one model or of one server."""

    name: str | None = None
    sent: Count = None  # in the measurement
    ok: Count = None  # that succeeded
    failed: Count = None  # neither ok nor left by their users
    success_rate: RequestShare = None  # ok of those submitted in the window
    slo_attainment: RequestShare = None  # of those submitted in the window, that met all objectives; None without any
    errors: tuple[ErrorCount, ...] = ()
    input_tokens: Tokens = None  # of the requests that succeeded
    output_tokens: Tokens = None  # of their answers
    req_s: Rate = None  # completed in the window
    output_tok_s: TokenRate = None  # that came in the window
    ttft: Metric = NO_METRIC
    tpot: Metric = NO_METRIC
    e2e: Metric = NO_METRIC
    itl: Metric = NO_METRIC  # this or one of the next two has values: that of the run
    tbc: Metric = NO_METRIC
    itl_b: Metric = NO_METRIC


class ModelResult(PartResult, frozen=True, kw_only=True):
    """Figures of one of several models or adapters that the run asks."""

    name: Model = None  # that requests name
    share_asked: Ratio = None  # of the sessions, or of requests that stand alone: by the weights
    share_planned: Ratio = None  # of the planned requests, as drawn
    share_sent: RequestShare = None  # of the requests that were sent; of those of the class in a table of one
    planned: Count = None  # requests of the plan; of a closed loop that repeats it, of one round

    OPTIONAL: ClassVar[tuple[str, ...]] = ("share_asked", "share_planned", "planned")


class ClassResult(Document, frozen=True, kw_only=True):
    """Figures of one class of traffic."""

    endpoint_type: str | None = None  # wire protocol; this and the next two: of classes of the run, not of a data set
    urls: Names = ()
    model: Model = None
    loop: str | None = None  # open, closed; of a mix that has closed loops
    concurrency: InFlight = None  # slots of a closed loop
    slots: SlotsFollowed | None = None  # asked and achieved; None: an open loop
    planned: Count = None  # of the class, in the measurement
    ok: Count
    failed: Count  # neither ok, nor unsent, nor left by their users
    left: Count  # cancelled or given up by simulated users
    came_whole: Count = None  # answers in one body, not as streams
    success_rate: RequestShare = None  # ok of those submitted in the window
    req_s: Rate = None  # completed in the window
    output_tok_s: TokenRate = None  # that came in the window
    input_tok_s: TokenRate = None  # of prompts whose first token, or answer that is not tokens, came in the window
    input_tokens_mean: Length = None  # of a request of the latency population
    output_tokens_mean: Length = None  # of a request of the latency population
    ttft: Metric
    ttft_sched: Metric = NO_METRIC
    tpot: Metric
    ttft_any: Metric | None = None
    tpot_any: Metric | None = None
    e2e: Metric = NO_METRIC
    e2e_sched: Metric = NO_METRIC
    itl: Metric = NO_METRIC
    tbc: Metric = NO_METRIC
    itl_b: Metric = NO_METRIC
    models: tuple[ModelResult, ...] = ()  # of a class that asks several, those with the most requests first

    def optional(self) -> tuple[str, ...]:
        """Figures of reasoning; and what only classes of the run have."""
        of_run = () if self.endpoint_type is not None else ("endpoint_type", "urls", "model", "models")
        of_mix = () if self.loop is not None else ("loop", "concurrency", "slots")
        return ("ttft_any", "tpot_any", *of_run, *of_mix)
