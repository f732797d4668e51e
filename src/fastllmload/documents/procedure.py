"""procedure.json: a test of the IETF draft, with its parameters and findings; runs.json: a test that was repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from fastllmload.documents.experiment import ExperimentDocument, FindingValues
from fastllmload.documents.fields import (
    ByRun,
    Count,
    Document,
    InFlight,
    Interval,
    Load,
    Ms,
    Name,
    Number,
    OfFigure,
    Plain,
    Rate,
    Ratio,
    RequestShare,
    Reveals,
    Samples,
    Seconds,
    Sentence,
    Sentences,
    TokenRate,
    field,
)
from fastllmload.documents.read import DocumentError, convert
from fastllmload.documents.run_parts.counts import ErrorCount
from fastllmload.settings import RunSettings

Loads = Annotated[tuple[int | float | None, ...], field("requests/s or requests in flight", Reveals.LOAD)]
Limits = Annotated[dict[str, float], field("ms")]  # metric → limit of its P99
TokenLimit = Annotated[Number, field("tokens", Reveals.ENGINE)]
Counts = Annotated[dict[str, int | float | None], field("requests", Reveals.LOAD)]
Rates = Annotated[dict[str, float | None], field("requests/s", Reveals.LOAD)]
TokenRates = Annotated[dict[str, float | None], field("tokens/s", Reveals.LOAD)]
Shares = Annotated[dict[str, float | None], field("share", Reveals.SHARE)]


class ByPercentile(Document, frozen=True, kw_only=True):
    """A figure by percentile of the latency that it is computed from."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class ByStatistic(ByPercentile, frozen=True, kw_only=True):
    """A figure by percentile and by the mean."""

    mean: float | None = None


class TestParameters(Document, frozen=True, kw_only=True):
    """The parameters of a test. Each test has some of them."""

    capacity: Load = None  # that shares refer to; None: it is measured first
    capacity_source: Annotated[str | None, field("", Reveals.LOAD)] = None  # where a given capacity comes from
    levels: Annotated[tuple[float, ...] | None, field("share of the capacity")] = None  # loads
    duration_s: Seconds = None  # of a level
    loop: str | None = None  # open or closed
    minimum: Load = None  # lowest level of the search
    maximum: Load = None  # highest level of the search
    step: Load = None  # to which the search narrows
    slo_ttft_p99_ms: Ms = None  # objective: limit of P99 TTFT
    slo_tpot_p99_ms: Ms = None  # objective: limit of P99 TPOT
    request_count: Count = None  # measured requests
    requests: Count = None  # of a level
    least_requests: Count = None  # of each class
    per_slot: Count = None  # completions that a level must have
    initial: InFlight = None  # concurrency at which the search begins
    slots: InFlight = None  # of a closed loop
    output_tokens: Annotated[int | None, field("tokens")] = None  # of each answer
    oom_pattern: Name = None  # regular expression of out-of-memory errors
    isolated: bool | None = None  # the system has no other users
    share_of_capacity: Ratio = None  # load of the mix
    baseline: str | None = None  # what "the same total load" means
    throughput: str | bool | None = None  # whether or how it is measured
    lengths: Annotated[tuple[int, ...] | None, field("tokens")] = None  # of contexts
    configurations: tuple[str, ...] | None = None  # of guardrails: baseline, input, output, full


class ProcedureParameters(Document, frozen=True, kw_only=True):
    """The parameters of a procedure and the settings of its runs."""

    test: TestParameters | None = None
    quick: bool = False  # durations and counts are below those of the methodology
    run: RunSettings = RunSettings()


class CapacityReference(Document, frozen=True, kw_only=True):
    """The capacity that load fractions refer to."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("limited_by",)

    req_s: Rate = None  # the capacity
    source: Annotated[str | None, field("", Reveals.LOAD)] = None  # how it was measured, or where it comes from
    client_limited: bool | None = None  # the client ended the measurement, not the system
    limited_by: Sentence = None  # what ended the measurement


class TtftFindings(FindingValues, frozen=True, kw_only=True):
    """Time to first token (IETF 5.1)."""

    requests: Samples = None  # TTFT samples
    request_count: Count = None  # requests that were asked for
    ttft_p50_ms: Ms = None  # median
    ttft_p90_ms: Ms = None  # 90th percentile
    ttft_p95_ms: Ms = None  # 95th percentile
    ttft_p99_ms: Ms = None  # 99th percentile
    ttft_p999_ms: Ms = None  # 99.9th percentile
    ttft_mean_ms: Ms = None  # mean
    ttft_min_ms: Ms = None  # smallest value
    ttft_max_ms: Ms = None  # largest value
    ttft_sched_p99_ms: Ms = None  # P99 from the scheduled instant
    success_rate: RequestShare = None  # ok of submitted


class ThroughputFindings(FindingValues, frozen=True, kw_only=True):
    """Output token throughput (IETF 5.2)."""

    sustainable_load: Load = None  # the highest level that holds; None: none
    bracket: Loads = ()  # the highest level that holds, the lowest above that does not
    ended_by: Annotated[str | None, field("", Reveals.LOAD)] = None  # as in search.json: bracket, levels, bound ...
    loop: str | None = None  # open or closed
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None  # that were measured
    max_output_tok_s: TokenRate = None  # at the sustainable load
    max_req_s: Rate = None  # at the sustainable load
    limits: Limits = {}  # of P99 by metric
    limited_by: Sentence = None  # why the level above does not hold


class TradeoffFindings(FindingValues, frozen=True, kw_only=True):
    """Throughput-latency tradeoff (IETF 5.3)."""

    capacity: CapacityReference | None = None
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None  # that were measured
    left_out: Loads = ()  # levels on which the client was the limit
    knee_point: Rate = None  # TTFT P99 above twice its minimum (spec/metrics 7.1)
    saturation_point: Rate = None  # first level with less throughput than the one before; None: none
    peak_level: Rate = None  # with the highest throughput
    optimal_point: Rate = None  # with the highest throughput within the limits
    first_saturated: Rate = None  # lowest level that the criteria call saturated
    limits: Limits = {}  # of P99 by metric


class ItlLevel(Document, frozen=True, kw_only=True):
    """Gaps between tokens at a share of the capacity."""

    share: Ratio = None  # of the capacity
    load: Rate = None  # of the level
    samples: Samples = None  # gaps
    requests: Count = None  # that qualify
    short: Count = None  # answers with too few tokens
    modality: str | None = None  # unimodal, multimodal (spec/metrics 7.10)
    tail: str | None = None  # light, exponential, heavy (spec/metrics 7.10)
    p50: Ms = None
    p90: Ms = None
    p95: Ms = None
    p99: Ms = None
    p999: Ms = None
    mean: Ms = None
    std: Ms = None
    p99_p50: Plain = None  # P99 over P50; None: the P50 is 0


class ItlFindings(FindingValues, frozen=True, kw_only=True):
    """Inter-token latency (IETF 5.4)."""

    capacity: CapacityReference | None = None
    option: tuple[str, ...] = ()  # direct, A, B (IETF B.2.1), of all levels
    levels: tuple[ItlLevel, ...] = ()  # by share of the capacity
    answers_at_least_length: Count = None  # requests with the minimum output length


class CapacityFindings(FindingValues, frozen=True, kw_only=True):
    """Concurrent request capacity (IETF 5.5)."""

    max_concurrency: InFlight = None  # the highest that meets the criteria; None: none
    bracket: Loads = ()  # the highest level that holds, the lowest above that does not
    ended_by: Annotated[str | None, field("", Reveals.LOAD)] = None  # as in search.json: bracket, levels, bound ...
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None  # that were measured
    slo_ttft_p99_ms: Ms = None  # objective: limit of P99 TTFT
    limited_by: Sentence = None  # why the level above does not pass
    output_tok_s: TokenRate = None  # at the maximum
    tokens_in_flight_mean: TokenLimit = None  # at the maximum (spec/metrics 7.2)
    tokens_in_flight_max: TokenLimit = None  # at the maximum


class FairnessFindings(FindingValues, frozen=True, kw_only=True):
    """Scheduling fairness (IETF 5.6). Tables are by class."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("saturated_baselines",)

    capacity: CapacityReference | None = None
    rate: Rate = None  # of the mix
    baseline: str | None = None  # load of a class alone: same_tokens, same_rate, own_rate
    jain_index: Plain = None  # of TTFT over that of the class alone (spec/metrics 7.4)
    significantly_unfair: bool | None = None  # the index is below 0.9; None: a class saturates the system alone
    inflation: dict[str, ByStatistic] = {}  # TTFT in the mix over TTFT alone
    starvation: Shares = {}  # waited over 5 medians of their class (spec/metrics 7.5)
    requests: Counts = {}  # submitted in the mix
    saturated_baselines: tuple[str, ...] = ()  # classes that saturate the system alone


class PrefixCacheFindings(FindingValues, frozen=True, kw_only=True):
    """Prefix cache effectiveness (IETF 5.7). Tables are by state of the cache: off, cold, warm."""

    ttft_reduction_percent: Annotated[dict[str, ByPercentile], field("%")] = {}  # against off (IETF 5.7)
    cache_hit_rate: Shares = {}  # of the shared prefix tokens, as the server reports
    throughput_tok_s: TokenRates = {}  # output tokens
    throughput_improvement_percent: Annotated[float | None, field("%")] = None  # warm against off
    plan_digest: str | None = None  # of the plan, the same in all states
    requests: Counts = {}  # TTFT samples


class PressureLevel(Document, frozen=True, kw_only=True):
    """A level at or beyond the capacity."""

    share: Ratio = None  # of the capacity
    slots: InFlight = None  # requests at once
    completion: RequestShare = None  # ok of submitted
    preemptions: Annotated[Number, field("preemptions", Reveals.ENGINE)] = None  # by the server's counter; None: none
    ttft_p99_ms: Ms = None  # P99 of TTFT
    aborted: bool | None = None  # most requests failed, or the system did not answer after it
    died: bool | None = None  # the system did not answer after it
    recovered_s: Seconds = None  # until it answered again after the hook; None: no hook was run
    errors: tuple[ErrorCount, ...] | None = None


class MemoryPressureFindings(FindingValues, frozen=True, kw_only=True):
    """Memory pressure (IETF 5.8)."""

    capacity_slots: InFlight = None  # the capacity (IETF 5.5)
    levels: tuple[PressureLevel, ...] = ()  # by share of the capacity
    first_preemption_at: Annotated[float | None, field("share of the capacity", Reveals.ENGINE)] = None  # lowest one


class FittedCurve(Document, frozen=True, kw_only=True):
    """A model of TTFT by context length."""

    model: str | None = None  # proportional, linear, quadratic
    r2: Plain = None  # of the fit, centred
    coefficients: tuple[float, ...] | None = None  # ms per token^k, ascending


class LongContextFindings(FindingValues, frozen=True, kw_only=True):
    """Long context scaling (IETF 5.9)."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("best_fit", "criterion", "exponent", "r2_log", "slope_us_per_token", "fits")

    lengths: Annotated[tuple[int, ...], field("tokens")] = ()  # that were measured
    ttft_mean_ms: Annotated[tuple[float | None, ...], field("ms")] = ()  # of each length
    best_fit: str | None = None  # model; None: too few lengths
    criterion: str | None = None  # by which it was chosen: f_test
    exponent: Plain = None  # k of TTFT ~ length^k (spec/metrics 7.8)
    r2_log: Plain = None  # of the fit of the exponent
    slope_us_per_token: Annotated[Number, field("us/token")] = None  # of the linear model
    fits: tuple[FittedCurve, ...] = ()  # of all models


class GuardrailFindings(FindingValues, frozen=True, kw_only=True):
    """Guardrail overhead (IETF 5.10). Tables are by configuration, overheads by share of the capacity."""

    capacity: CapacityReference | None = None
    overheads: Annotated[dict[str, dict[str, ByStatistic | None]], field("ms")] = {}  # by filter (spec/metrics 7.9)
    throughput_output_tok_s: TokenRates = {}  # maximum
    throughput_req_s: Rates = {}  # maximum
    throughput_change_percent: Annotated[dict[str, float | None], field("%")] = {}  # against the baseline
    refused: Annotated[dict[str, int], field("requests", Reveals.LOAD)] = {}  # answered with an HTTP status of 4xx


FINDINGS: dict[str, type[FindingValues]] = {
    "ttft": TtftFindings,
    "throughput": ThroughputFindings,
    "tradeoff": TradeoffFindings,
    "itl": ItlFindings,
    "capacity": CapacityFindings,
    "fairness": FairnessFindings,
    "prefix-cache": PrefixCacheFindings,
    "memory-pressure": MemoryPressureFindings,
    "long-context": LongContextFindings,
    "guardrail": GuardrailFindings,
}


class ProcedureDocument(ExperimentDocument, frozen=True, kw_only=True):
    """One test of the draft."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (*ExperimentDocument.OPTIONAL, "section", "title")

    section: str = ""  # of the draft
    title: str = ""  # of the test
    parameters: ProcedureParameters = ProcedureParameters()


class RepeatedRun(Document, frozen=True, kw_only=True):
    """One run of a test that was repeated."""

    folder: Name = None  # of the run
    status: str | None = None  # running, done, interrupted or failed
    started_utc: str | None = None  # start
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None  # that were measured
    compliance: str | None = None  # verdict by the draft
    client: str | None = None  # the worst certificate of its levels
    sentences: Sentences = ()  # of its report


class OverRuns(Document, frozen=True, kw_only=True):
    """One figure over the runs. Its kind is that of the figure, which only its path tells: a load, if not known better."""

    n: int | None = None  # runs with the figure
    median: OfFigure = None  # of the runs
    mean: OfFigure = None  # of the runs
    std: OfFigure = None  # n - 1 in the denominator; None: one run
    ci95: Interval = None  # of the mean (Student); None: one run
    cv_percent: Annotated[Number, field("%")] = None  # coefficient of variation (spec/metrics 6.7)
    stability: str | None = None  # stable below 5 %, variable below 10 %, else unstable
    runs: ByRun = ()  # value of each run


class RunsDocument(ProcedureDocument, frozen=True, kw_only=True):
    """A test that was repeated."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        *ProcedureDocument.OPTIONAL,
        "runs_asked",
        "runs",
        "compliance_verdict",
        "figures",
    )

    runs_asked: int | None = None  # runs that `--runs` asks for
    runs: tuple[RepeatedRun, ...] | None = None  # None: stopped before the first
    compliance_verdict: str | None = None  # the worst of all runs
    figures: dict[str, OverRuns] = {}  # path in `findings`


E = TypeVar("E", bound=ExperimentDocument)


def experiment_document(found: Mapping[str, Any], kind: type[E]) -> E:
    """The values of a JSON file as *kind*, with the findings of its own test. DocumentError names a part that is wrong."""
    document = convert(found, kind)
    own = FINDINGS.get(document.procedure)
    findings = found.get("findings")
    if own is None or not isinstance(findings, Mapping):
        return document
    try:
        return msgspec.structs.replace(document, findings=convert(findings, own))
    except DocumentError as problem:
        raise DocumentError(f"in `findings`, {problem}") from None


def lacks(stored: Mapping[str, Any], needed: Sequence[str]) -> str | None:
    """The first of the keys *needed* that the JSON of a file does not have."""
    return next((name for name in needed if name not in stored), None)


def stored_parameters(stored: Mapping[str, Any]) -> dict[str, Any]:
    """As in the file: a setting that the version which wrote it did not have is missing. Empty where there are none."""
    return dict(stored.get("parameters") or {})
