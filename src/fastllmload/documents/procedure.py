"""procedure.json: a test of the IETF draft, with its parameters and findings; runs.json: a test that was repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from fastllmload.documents.experiment import ExperimentDocument, FindingValues
from fastllmload.documents.fields import (
    Count,
    Document,
    Limit,
    Load,
    Ms,
    Name,
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
from fastllmload.documents.run import ErrorCount
from fastllmload.settings import RunSettings

Loads = Annotated[tuple[int | float | None, ...], field("requests/s or requests in flight", Reveals.LOAD)]
Limits = Annotated[dict[str, float], field("ms")]  # metric → limit of its P99
Percentiles = dict[str, float | None]
ByName = dict[str, Percentiles | None]
Counts = Annotated[dict[str, int | float | None], field("requests", Reveals.LOAD)]
Rates = Annotated[dict[str, float | None], field("requests/s", Reveals.LOAD)]
TokenRates = Annotated[dict[str, float | None], field("tokens/s", Reveals.LOAD)]
Shares = Annotated[dict[str, float | None], field("share", Reveals.SHARE)]


class TestParameters(Document, frozen=True, kw_only=True):
    """The parameters of a test. Each test has some of them."""

    capacity: Load = None
    capacity_source: Annotated[str | None, field("", Reveals.LOAD)] = None
    levels: Annotated[tuple[float, ...] | None, field("share of the capacity")] = None
    duration_s: Seconds = None  # of a level
    loop: str | None = None  # open or closed
    minimum: Load = None
    maximum: Load = None
    step: Load = None
    slo_ttft_p99_ms: Ms = None
    slo_tpot_p99_ms: Ms = None
    request_count: Count = None
    requests: Count = None  # of a level
    least_requests: Count = None  # of each class
    per_slot: Count = None  # completions that a level must have
    initial: Load = None
    slots: Load = None
    output_tokens: Annotated[int | None, field("tokens")] = None
    oom_pattern: Name = None  # regular expression of out-of-memory errors
    isolated: bool | None = None  # the system has no other users
    share_of_capacity: Ratio = None
    baseline: str | None = None  # what "the same total load" means
    throughput: str | bool | None = None  # whether or how it is measured
    lengths: Annotated[tuple[int, ...] | None, field("tokens")] = None
    configurations: tuple[str, ...] | None = None


class ProcedureParameters(Document, frozen=True, kw_only=True):
    """The parameters of a procedure and the settings of its runs."""

    test: TestParameters | None = None
    quick: bool = False
    run: RunSettings = RunSettings()


class CapacityReference(Document, frozen=True, kw_only=True):
    """The capacity that load fractions refer to."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("limited_by",)

    req_s: Rate = None
    source: Annotated[str | None, field("", Reveals.LOAD)] = None
    client_limited: bool | None = None  # the client ended the measurement, not the system
    limited_by: Sentence = None


class TtftFindings(FindingValues, frozen=True, kw_only=True):
    """Time to first token (IETF 5.1)."""

    requests: Samples = None
    request_count: Count = None  # requested
    ttft_p50_ms: Ms = None
    ttft_p90_ms: Ms = None
    ttft_p95_ms: Ms = None
    ttft_p99_ms: Ms = None
    ttft_p999_ms: Ms = None
    ttft_mean_ms: Ms = None
    ttft_min_ms: Ms = None
    ttft_max_ms: Ms = None
    ttft_sched_p99_ms: Ms = None  # from the scheduled instant
    success_rate: RequestShare = None


class ThroughputFindings(FindingValues, frozen=True, kw_only=True):
    """Output token throughput (IETF 5.2)."""

    sustainable_load: Load = None
    bracket: Loads = ()  # the highest level that holds, the lowest above that does not
    ended_by: Annotated[str | None, field("", Reveals.LOAD)] = None
    loop: str | None = None
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None
    max_output_tok_s: TokenRate = None
    max_req_s: Rate = None
    limits: Limits = {}
    limited_by: Sentence = None


class TradeoffFindings(FindingValues, frozen=True, kw_only=True):
    """Throughput-latency tradeoff (IETF 5.3)."""

    capacity: CapacityReference | None = None
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None
    left_out: Loads = ()  # levels on which the client was the limit
    knee_point: Rate = None
    saturation_point: Rate = None
    peak_level: Rate = None
    optimal_point: Rate = None
    first_saturated: Rate = None
    limits: Limits = {}


class ItlLevel(Document, frozen=True, kw_only=True):
    """Gaps between tokens at a share of the capacity."""

    share: Ratio = None
    load: Rate = None
    samples: Samples = None
    requests: Count = None  # that qualify
    short: Count = None  # answers with too few tokens
    modality: str | None = None
    tail: str | None = None
    p50: Ms = None
    p90: Ms = None
    p95: Ms = None
    p99: Ms = None
    p999: Ms = None
    mean: Ms = None
    std: Ms = None
    p99_p50: Plain = None


class ItlFindings(FindingValues, frozen=True, kw_only=True):
    """Inter-token latency (IETF 5.4)."""

    capacity: CapacityReference | None = None
    option: tuple[str, ...] = ()  # of IETF B.2.1
    levels: tuple[ItlLevel, ...] = ()
    answers_at_least_length: Count = None  # requests with the minimum output length


class CapacityFindings(FindingValues, frozen=True, kw_only=True):
    """Concurrent request capacity (IETF 5.5)."""

    max_concurrency: Load = None
    bracket: Loads = ()
    ended_by: Annotated[str | None, field("", Reveals.LOAD)] = None
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None
    slo_ttft_p99_ms: Ms = None
    limited_by: Sentence = None
    output_tok_s: TokenRate = None
    tokens_in_flight_mean: Limit = None
    tokens_in_flight_max: Limit = None


class FairnessFindings(FindingValues, frozen=True, kw_only=True):
    """Scheduling fairness (IETF 5.6). Tables are by class."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("saturated_baselines",)

    capacity: CapacityReference | None = None
    rate: Rate = None  # of the mix
    baseline: str | None = None
    jain_index: Plain = None
    significantly_unfair: bool | None = None
    inflation: dict[str, Percentiles] = {}  # TTFT in the mix over TTFT alone
    starvation: Shares = {}
    requests: Counts = {}
    saturated_baselines: tuple[str, ...] = ()  # classes that saturate the system alone


class PrefixCacheFindings(FindingValues, frozen=True, kw_only=True):
    """Prefix cache effectiveness (IETF 5.7). Tables are by state of the cache: off, cold, warm."""

    ttft_reduction_percent: Annotated[dict[str, Percentiles], field("%")] = {}
    cache_hit_rate: Shares = {}
    throughput_tok_s: TokenRates = {}
    throughput_improvement_percent: Annotated[float | None, field("%")] = None
    plan_digest: str | None = None
    requests: Counts = {}


class PressureLevel(Document, frozen=True, kw_only=True):
    """A level at or beyond the capacity."""

    share: Ratio = None  # of the capacity
    slots: Load = None
    completion: RequestShare = None
    preemptions: Limit = None
    ttft_p99_ms: Ms = None
    aborted: bool | None = None
    died: bool | None = None
    recovered_s: Seconds = None
    errors: tuple[ErrorCount, ...] | None = None


class MemoryPressureFindings(FindingValues, frozen=True, kw_only=True):
    """Memory pressure (IETF 5.8)."""

    capacity_slots: Load = None
    levels: tuple[PressureLevel, ...] = ()
    first_preemption_at: Annotated[float | None, field("share of the capacity", Reveals.ENGINE)] = None


class FittedCurve(Document, frozen=True, kw_only=True):
    """A model of TTFT by context length."""

    model: str | None = None
    r2: Plain = None
    coefficients: tuple[float, ...] | None = None  # ms per token^k, ascending


class LongContextFindings(FindingValues, frozen=True, kw_only=True):
    """Long context scaling (IETF 5.9)."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("best_fit", "criterion", "exponent", "r2_log", "slope_us_per_token", "fits")

    lengths: Annotated[tuple[int, ...], field("tokens")] = ()
    ttft_mean_ms: Annotated[tuple[float | None, ...], field("ms")] = ()
    best_fit: str | None = None
    criterion: str | None = None
    exponent: Plain = None
    r2_log: Plain = None
    slope_us_per_token: Plain = None
    fits: tuple[FittedCurve, ...] = ()


class GuardrailFindings(FindingValues, frozen=True, kw_only=True):
    """Guardrail overhead (IETF 5.10). Tables are by configuration, overheads by share of the capacity."""

    capacity: CapacityReference | None = None
    overheads: Annotated[dict[str, ByName], field("ms")] = {}
    throughput_output_tok_s: TokenRates = {}
    throughput_req_s: Rates = {}
    throughput_change_percent: Annotated[dict[str, float | None], field("%")] = {}
    refused: Annotated[dict[str, int], field("requests", Reveals.LOAD)] = {}


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
    title: str = ""
    parameters: ProcedureParameters = ProcedureParameters()


class RepeatedRun(Document, frozen=True, kw_only=True):
    """One run of a test that was repeated."""

    folder: Name = None
    status: str | None = None
    started_utc: str | None = None
    levels: Annotated[int | None, field("levels", Reveals.LOAD)] = None
    compliance: str | None = None
    client: str | None = None  # the worst certificate of its levels
    sentences: Sentences = ()


class OverRuns(Document, frozen=True, kw_only=True):
    """One figure over the runs. Its kind is that of the figure, which only its path tells: a load, if not known better."""

    n: int | None = None
    median: Annotated[float | None, field("", Reveals.LOAD)] = None
    mean: Annotated[float | None, field("", Reveals.LOAD)] = None
    std: Annotated[float | None, field("", Reveals.LOAD)] = None
    ci95: Annotated[tuple[float, float] | None, field("", Reveals.LOAD)] = None
    cv_percent: Plain = None
    stability: str | None = None
    runs: Annotated[tuple[float, ...], field("", Reveals.LOAD)] = ()


class RunsDocument(ProcedureDocument, frozen=True, kw_only=True):
    """A test that was repeated."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        *ProcedureDocument.OPTIONAL,
        "runs_asked",
        "runs",
        "compliance_verdict",
        "figures",
    )

    runs_asked: int | None = None
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
