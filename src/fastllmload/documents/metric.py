"""Figures of a document: one struct for every metric, whether it is a distribution, a value or an estimate."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.fields import (
    Count,
    Document,
    Figure,
    Ms,
    Number,
    Plain,
    Ratio,
    Reveals,
    Samples,
    Sentence,
    Sessions,
    TokenSpeed,
    field,
    known,
)

Ends = tuple[Number, ...]  # lower and upper; None: open, or not estimable


class NotEstimableFacts(Document, frozen=True, kw_only=True):
    """Why a statistic has no interval."""

    reason: Sentence = None  # why, as a clause
    requests_needed: Count = None  # that would probably be enough; None: more do not help
    sessions_needed: Sessions = None  # the same, of a figure of which each session is one observation

    @property
    def needed(self) -> Number:
        """Number of requests or sessions."""
        return known(self.requests_needed) if known(self.sessions_needed) is None else known(self.sessions_needed)

    @property
    def of(self) -> str:
        """What *needed* counts."""
        return "requests" if known(self.sessions_needed) is None else "sessions"


Reason = Annotated[NotEstimableFacts | int | str | None, field("", Reveals.SENTENCE)]


class Bounds(Document, frozen=True, kw_only=True):
    """What replaces a figure where requests did not end. None: open."""

    low: Ms = None
    high: Ms = None


class WithUnfinished(Document, frozen=True, kw_only=True):
    """Percentiles of a metric that count requests which did not end (Kaplan and Meier), ms; None: too few ended."""

    n: Samples = None  # requests that ended
    n_unfinished: Samples = None  # requests that were cut off
    p50: Ms = None
    p75: Ms = None
    p90: Ms = None
    p95: Ms = None
    p99: Ms = None
    p999: Ms = None
    at_least: dict[str, Ms] = {}  # by statistic: had they ended when they were last observed
    at_most: dict[str, Ms] = {}  # by statistic: had they never ended


class Metric(Document, frozen=True, kw_only=True):
    """A metric; `docs/metric-definitions.md` has each definition. A distribution has the statistics, a value has *value*.

    The unit of all figures is *unit*. Parameters that a metric depends on follow the figures.
    """

    WRITTEN: ClassVar[tuple[str, ...]] = ("unit",)  # also as null

    unit: str = ""  # of all its figures
    title: str | None = None  # of the headline table's row, of a metric of an objective
    value: Figure = None  # of a metric with a single number
    time_base: str | None = None  # of a rate: window, makespan (spec/metrics 6.4)
    input_counting: str | None = None  # input tokens that count: all, cache_misses_only
    label: str | None = None  # of a shape: multimodal, heavy ...
    peaks_ms: Annotated[tuple[float, ...] | None, field("ms")] = None  # gaps at which the density has its modes
    bandwidth_ln: Plain = None  # of the density, over ln(gap)
    gaps_at_least_ms: Ms = None  # shorter gaps do not count as a mode
    peak_share: Ratio = None  # of the highest peak, that a mode must exceed
    valley_share: Ratio = None  # of the lower of two modes, below which the density falls between them
    standard_error: Figure = None  # of *value*, asymptotic
    k: Samples = None  # the largest gaps, from which the tail index is estimated
    tail_share: Ratio = None  # of the gaps, that *k* is
    light_below: Plain = None  # tail indices below it are light
    heavy_above: Plain = None  # tail indices above it are heavy
    itl_option: str | None = None  # by which gaps were taken: direct, A, B (IETF B.2.1)
    pooled_as: str | None = None  # metric with the gaps: itl, tbc, itl_b
    itl_option_asked: str | None = None  # option of `--itl-option`
    gpus: Annotated[Number, field("GPUs")] = None  # as declared
    price_per_hour: Annotated[Number, field("per hour")] = None  # as declared
    source: str | None = None  # sensor of the power
    n: Samples = None  # values
    n_null: Samples = None  # requests without a value
    n_carrying: Samples = None  # chunks without text that may carry a token
    n_said: Samples = None  # chunks without text that carry a token
    itl_mean_least: Ms = None  # the mean gap if n_carrying chunks carry a token
    n_unknown: Samples = None  # answers whose chunks are of unknown size
    token_times_source: dict[str, Samples] = {}  # answers by where the times of their tokens come from
    enough: bool | None = None  # 5,000 gaps or more (IETF 5.4.2)
    mean: Figure = None
    std: Figure = None
    min: Figure = None
    max: Figure = None
    p50: Figure = None
    p75: Figure = None
    p90: Figure = None
    p95: Figure = None
    p99: Figure = None
    p999: Figure = None
    method: str | None = None  # which connects rtt_ms is of
    made: Samples = None  # TLS handshakes of all connections
    resumed: Samples = None  # of these, continued an earlier session
    connections: Samples = None  # that the requests used
    window_waits: Samples = None  # HTTP/2: requests whose body waited for the server's flow control window
    cpu_ms: Ms = None  # the client's processor time of one
    ci95: dict[str, Ends | None] | Ends | None = None  # 95 % intervals by statistic; of a value its own
    not_estimable: dict[str, Reason] = {}  # by statistic; of a value the two fields of NotEstimableFacts themselves
    insufficient: tuple[str, ...] = ()  # percentiles with too few samples
    generator_limited: bool | None = None  # the client was slower than what it measured
    fluidity_index_at_least: Ratio = None  # that a fluid request has
    d_p_ms: Annotated[Any, field("ms")] = None  # deadline of the first token, one number or pairs (input tokens, ms)
    d_d_ms: Ms = None  # deadline of each further token
    miss_rate_at_most: Ratio = None  # of deadlines, that the deadline must meet
    to_ms: Ms = None  # precision of the deadline
    rtt_p50_ms: Ms = None  # median round trip that was subtracted
    preset: str | None = None  # of smooth goodput
    alpha: Annotated[Number, field("tokens/s")] = None  # what a second of idling costs (spec/metrics 5.11)
    speed_tok_s: TokenSpeed = None  # reading speed
    d1_ms: Ms = None
    f: str | None = None  # how idle time counts: seconds (spec/metrics 5.11)
    n_censored: Samples = None  # requests that were cut off: their values are lower bounds
    degenerate: Samples = None  # requests of less than 10 ms of generation, left out (spec/metrics 5.6)
    n_degenerate: Samples = None  # the same by the server's own times
    caveat: str | None = None  # what to keep in mind with the figures
    note: str | None = None  # on how the figures were taken, or why they are missing
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
     "energy_per_output_token_j", "energy_per_request_j", "energy_per_session_j", "good_requests_per_j",
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
