"""Figures of a document: one struct for every metric, whether it is a distribution, a value or an estimate."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.fields import (
    Count,
    Document,
    Ms,
    Number,
    Plain,
    Ratio,
    Reveals,
    Samples,
    Sentence,
    field,
    known,
)

Ends = tuple[Number, ...]  # lower and upper; None: open, or not estimable


class NotEstimableFacts(Document, frozen=True, kw_only=True):
    """Why a statistic has no interval."""

    reason: Sentence = None
    requests_needed: Count = None


Reason = Annotated[NotEstimableFacts | int | str | None, field("", Reveals.SENTENCE)]


class Bounds(Document, frozen=True, kw_only=True):
    """What replaces a figure where requests did not end. None: open."""

    low: Plain = None
    high: Plain = None


class WithUnfinished(Document, frozen=True, kw_only=True):
    """Percentiles of a metric that count requests which did not end (Kaplan and Meier), ms; None: too few ended."""

    n: Samples = None
    n_unfinished: Samples = None
    p50: Plain = None
    p75: Plain = None
    p90: Plain = None
    p95: Plain = None
    p99: Plain = None
    p999: Plain = None
    at_least: dict[str, Plain] = {}  # by statistic: had they ended when they were last observed
    at_most: dict[str, Plain] = {}  # by statistic: had they never ended


class Metric(Document, frozen=True, kw_only=True):
    """A metric; `docs/metric-definitions.md` has each definition. A distribution has the statistics, a value has *value*.

    The unit of all figures is *unit*. Parameters that a metric depends on follow the figures.
    """

    WRITTEN: ClassVar[tuple[str, ...]] = ("unit",)  # also as null

    unit: str = ""
    title: str | None = None  # of one that the headline table has in a row after the latencies
    value: Plain = None
    time_base: str | None = None
    input_counting: str | None = None
    label: str | None = None  # of a shape: multimodal, heavy ...
    peaks_ms: tuple[float, ...] | None = None
    bandwidth_ln: Plain = None
    gaps_at_least_ms: Ms = None
    peak_share: Ratio = None
    valley_share: Ratio = None
    standard_error: Plain = None
    k: Samples = None
    tail_share: Ratio = None
    light_below: Plain = None
    heavy_above: Plain = None
    itl_option: str | None = None  # A, B (IETF B.2.1)
    pooled_as: str | None = None  # itl, tbc, itl_b
    itl_option_asked: str | None = None
    gpus: Annotated[Number, field("GPUs")] = None
    price_per_hour: Annotated[Number, field("per hour")] = None
    source: str | None = None
    n: Samples = None
    n_null: Samples = None  # requests without a value
    n_carrying: Samples = None  # chunks without text that may carry a token
    n_said: Samples = None  # chunks without text that carry a token
    itl_mean_least: Ms = None  # the mean gap if n_carrying chunks carry a token
    n_unknown: Samples = None  # answers whose chunks are of unknown size
    token_times_source: dict[str, Samples] = {}  # answers by where the times of their tokens come from
    enough: bool | None = None  # values for a shape
    mean: Plain = None
    std: Plain = None
    min: Plain = None
    max: Plain = None
    p50: Plain = None
    p75: Plain = None
    p90: Plain = None
    p95: Plain = None
    p99: Plain = None
    p999: Plain = None
    method: str | None = None  # which connects rtt_ms is of
    ci95: dict[str, Ends | None] | Ends | None = None  # 95 % intervals by statistic; of a value its own
    not_estimable: dict[str, Reason] = {}  # by statistic; of a value the two fields of NotEstimableFacts themselves
    insufficient: tuple[str, ...] = ()  # percentiles with too few samples
    generator_limited: bool | None = None  # the client was slower than what it measured
    fluidity_index_at_least: Ratio = None
    d_p_ms: Any = None  # deadline of the first token, one number or pairs (input tokens, ms)
    d_d_ms: Ms = None  # deadline of each further token
    miss_rate_at_most: Ratio = None
    to_ms: Ms = None
    rtt_p50_ms: Ms = None
    preset: str | None = None  # of smooth goodput
    alpha: Plain = None
    speed_tok_s: Plain = None  # reading speed
    d1_ms: Ms = None
    f: str | None = None
    n_censored: Samples = None
    degenerate: Samples = None
    n_degenerate: Samples = None
    caveat: str | None = None
    note: str | None = None
    with_unfinished: WithUnfinished | None = None  # where requests did not end: the figures that count them
    unfinished_bounds: dict[str, Bounds | None] = {}  # by statistic, to be stated in place of the figure
    bounds: dict[str, Ends] = {}  # by statistic, ms: the figure of all lower and of all upper ends of its events

    def optional(self) -> tuple[str, ...]:
        """All but WRITTEN."""
        return tuple(name for name in self.__struct_fields__ if name not in self.WRITTEN)

    @property
    def is_distribution(self) -> bool:
        """Whether it has statistics and no value of its own, also if none is known."""
        return self.p50 is not None or bool(self.insufficient)

    @property
    def figure(self) -> Number:
        """The value; of a distribution the mean."""
        return self.mean if self.value is None else self.value

    def statistic(self, name: str) -> Number:
        """One of `mean`, `std`, `min`, `max`, `p50` ... `p999`, `value`, `n`; None for another name."""
        found: Number = getattr(self, name, None)
        return found

    def at_least(self, name: str) -> float | None:
        """The lower bound of a statistic that unfinished requests can change; None where they cannot."""
        bounds = self.unfinished_bounds.get(name)
        return None if bounds is None else known(bounds.low)

    def least(self, name: str) -> float | None:
        """The lower bound where there is one, else the statistic."""
        low = self.at_least(name)
        return known(self.statistic(name)) if low is None else low

    def interval(self, name: str) -> tuple[float | None, float | None] | None:
        """The 95 % interval of a statistic, or of the value (any *name*). An end of None is open; None: not estimable."""
        found = self.ci95.get(name) if isinstance(self.ci95, dict) else self.ci95
        return None if not found else (known(found[0]), known(found[1]))

    def why_not_estimable(self, name: str) -> NotEstimableFacts | None:
        """Why *name* has no interval; None where it has one."""
        found, reason = self.not_estimable.get(name), self.not_estimable.get("reason")
        if isinstance(found, NotEstimableFacts):
            return found
        if not isinstance(reason, str):
            return NotEstimableFacts(reason=found) if isinstance(found, str) else None
        needed = self.not_estimable.get("requests_needed")
        return NotEstimableFacts(reason=reason, requests_needed=needed if isinstance(needed, int) else None)


class Value(Metric, frozen=True, kw_only=True):
    """A single number."""

    WRITTEN: ClassVar[tuple[str, ...]] = ("unit", "value")


class EstimatedValue(Metric, frozen=True, kw_only=True):
    """A single number with an interval."""

    WRITTEN: ClassVar[tuple[str, ...]] = ("unit", "value", "ci95")


class Distribution(Metric, frozen=True, kw_only=True):
    """All statistics of a sample."""

    WRITTEN: ClassVar[tuple[str, ...]] = (
        "unit", "n", "n_null", "mean", "std", "min", "max", "p50", "p75", "p90", "p95", "p99", "p999", "ci95",
        "not_estimable", "insufficient",
    )  # fmt: skip


NO_METRIC = Metric()
THROUGHPUTS = frozenset(
    ("req_s", "output_tok_s", "input_tok_s", "input_tok_s_cache_misses", "req_s_makespan", "output_tok_s_makespan",
     "failed_output_tok_s", "tok_per_gpu_s", "tok_s_per_dollar_hour", "tokens_per_dollar", "tok_s_per_w",
     "smooth_goodput_sg_default", "smooth_goodput_sg_fig6")
)  # fmt: skip
SERVER_MEMORY = frozenset(
    ("kv_usage", "preemptions", "preemption_rate", "preemption_loss", "running", "waiting", "batch_utilization")
)


def reveals(name: str, unit: str) -> Reveals:
    """What the figures of a metric reveal, by its name and unit."""
    if name == "tokens_in_flight" or name in SERVER_MEMORY:
        return Reveals.ENGINE
    if name in THROUGHPUTS or unit == "requests":
        return Reveals.LOAD
    return Reveals.SHARE if unit == "share" else Reveals.NOTHING
