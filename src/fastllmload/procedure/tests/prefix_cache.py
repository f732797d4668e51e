"""Prefix cache effectiveness (IETF 5.7): the same requests without a cache, with an empty cache and with a filled one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.documents.experiment import Cell, FindingPlot, FindingSeries
from fastllmload.documents.procedure import ByPercentile, PrefixCacheFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_concurrency, changed
from fastllmload.experiment.preparation.prefix_fill import filling, filling_unknown
from fastllmload.experiment.report.findings import NOTHING, SHARE
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.levels.prefix_cache import change_percent, prefix_tokens, ttft_reductions
from fastllmload.metrics.request import durations
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, by_count, by_duration, fewer, shorter
from fastllmload.search.bisection import Bisection
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

COUNT = 1_000
UNRELATED: dict[str, Any] = {  # a workload whose prompts share nothing with the measured ones or with each other
    "name": "synthetic-uniform", "isl": None, "osl": None, "prefix_len": 0, "num_prefixes": 1, "dataset_path": None,
}  # fmt: skip
STATES = {"off": "Cache Disabled", "cold": "Cache (Cold)", "warm": "Cache (Warm)"}
OFF, COLD, WARM = STATES
PERCENTILES = ByPercentile.__struct_fields__
MOST_SHOWN = 20_000  # values of each state in the plot
DEFAULT = "code-completion"
SYNTHETIC = ("synthetic-uniform", "synthetic-skewed")
HIT_RATE = "hit rate: cached over shared prefix tokens, where the server reports cached tokens"
FILLED_WITH_MEASURED = (
    "the shared prefixes of this workload are not known: the cache was filled with the measured requests themselves, so it "
    "holds more than shared prefixes"
)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*throughput*: how its improvement is measured: "closed" loop of *slots*, "search" (5.2) or "none"."""

    request_count: int = COUNT
    throughput: str = "closed"
    slots: int = 32
    duration_s: float = 60.0

    def quick(self) -> Parameters:
        return msgspec.structs.replace(
            self, request_count=fewer(self.request_count, 20, 60), duration_s=shorter(self.duration_s, 15, 4.0),
            slots=min(8, self.slots),
        )  # fmt: skip


@dataclass
class CacheStates:
    """What was measured in each state of the cache so far."""

    levels: dict[str, Level] = field(default_factory=dict)
    throughput: dict[str, float | None] = field(default_factory=dict)


def levels(given: Conditions[Parameters]) -> Iterator[CacheStates]:
    compared = CacheStates()
    for state in STATES:
        prepare_cache(given, state)
        compared.levels[state] = given.experiment.level(f"cache {state}", given.settings)
        require_same_plan(compared.levels)
        yield compared
    if given.parameters.throughput != "none":
        for state in (OFF, WARM):
            prepare_cache(given, state, again="throughput")
            compared.throughput[state] = throughput_of(given, state)
            yield compared


def prepare_cache(given: Conditions[Parameters], state: str, again: str = "") -> None:
    """Request the cache *state*: off; on and empty; on and filled with each shared prefix once (IETF 5.7.3)."""
    experiment, settings = given.experiment, given.settings
    experiment.switch("cache", "cache-off" if state == OFF else "cache-on")
    experiment.steps.renew("cache")  # emptying the cache needs the hook, also if the cache is already on
    given.warm_up(changed(settings, workload=UNRELATED))
    if state == WARM:
        known = filling(settings)  # every shared prefix at least once, with answers of one token
        asked = known or filling_unknown(settings, COUNT)
        experiment.prepare("fill", f"fill the cache {again}", lambda: experiment.preparation("fill the cache", asked))
        if known is None:
            experiment.journal.deviate(FILLED_WITH_MEASURED, public=True)
    else:
        experiment.steps.drop("fill")


def require_same_plan(levels: dict[str, Level]) -> None:
    """InputError unless all states have the same requests at the same instants."""
    plans = {level.document.plan.digest for level in levels.values()}
    if len(plans) > 1:
        raise InputError(
            "experiment-changed", "the phases of the test prefix-cache have different plans; start it in a new folder"
        )


def throughput_of(given: Conditions[Parameters], state: str) -> float | None:
    """Output tokens/s at equal concurrency, or at the highest load that passes."""
    settings, parameters = given.settings, given.parameters
    if parameters.throughput == "closed":
        asked = at_concurrency(settings, parameters.slots, duration=parameters.duration_s, num_requests=None)
        return given.experiment.level(f"throughput, cache {state}", asked).output_tok_s
    load_sweep = given.sweep(f"throughput, cache {state}, ", settings=changed(settings, **by_duration(parameters)))
    found = Bisection(1.0, 1024.0, lambda load: 1.0, lambda load, run: load_sweep.at(load, run).verdict.decision).run()
    passed = (one for one in load_sweep.results if one.verdict.decision is Decision.PASS)
    there = [one.output_tok_s for one in passed if one.load == found.best]
    return float(np.median(there)) if there else None


def analyze(compared: CacheStates, given: Conditions[Parameters]) -> None:
    levels, throughput, found = compared.levels, compared.throughput, given.found
    ttft = {
        state: ByPercentile(**{name: level.figure("ttft", name) for name in PERCENTILES})
        for state, level in levels.items()
    }
    columns = ("Configuration", *(f"TTFT {name.upper()} (ms)" for name in PERCENTILES))
    rows = [(STATES[state], *msgspec.structs.astuple(values)) for state, values in ttft.items()]
    found.table("prefix-cache", "Prefix Cache Effectiveness", columns, rows, reveals=NOTHING)
    reductions = {state: ttft_reductions(ttft[OFF], values) for state, values in ttft.items() if state != OFF}
    hit = {state: level.figure("cache_hit_rate") for state, level in levels.items()}
    improvement = change_percent(throughput.get(OFF), throughput.get(WARM))
    gains = [
        *((f"TTFT reduction {state}, {name.upper()} (%)", value, NOTHING)
          for state, values in reductions.items() for name, value in msgspec.structs.asdict(values).items()),
        *((f"Cache hit rate, {state}", rate, SHARE) for state, rate in hit.items()),
        ("Throughput improvement, warm against off (%)", improvement, NOTHING),
    ]  # fmt: skip
    found.table(
        "prefix-cache-gain", "What the Cache Saves", ("Metric", "Value"), [gain[:2] for gain in gains],
        found.publish(HIT_RATE), reveals=NOTHING, row_reveals=[gain[2] for gain in gains],
    )  # fmt: skip
    for sentence in hit_notes(levels):
        found.say(sentence)
    if parts := split(levels):
        columns = ("Requests", *(f"{STATES[state]}, TTFT P50 (ms)" for state in levels))
        found.table("prefix-cache-parts", "Sharing and Other Requests", columns, parts, reveals=NOTHING)
    found.values = PrefixCacheFindings(
        ttft_reduction_percent=reductions,
        cache_hit_rate=hit,
        throughput_tok_s=dict(throughput),
        throughput_improvement_percent=improvement,
        plan_digest=next(iter(levels.values())).document.plan.digest,
        requests={state: level.figure("ttft", "n") for state, level in levels.items()},
    )
    series = tuple(
        FindingSeries(STATES[state], tuple(ttft_ms(level.answered)[:MOST_SHOWN])) for state, level in levels.items()
    )
    found.plot(FindingPlot("ttft-cdf", "TTFT by state of the cache", "cdf", series, y=("TTFT", "ms", None)))


def hit_notes(levels: Mapping[str, Level]) -> Iterator[str]:
    """Why a hit rate is not stated: the server counts other tokens than the plan."""
    for state, level in levels.items():
        note = level.document.metric("cache_hit_rate").note
        if note is not None:
            yield f"cache hit rate, {state}: {note}"


def ttft_ms(rows: npt.NDArray[Any]) -> list[float]:
    """Ascending."""
    ordered: list[float] = np.sort(durations.ttft(rows) / 1e6).tolist()
    return ordered


def split(levels: dict[str, Level]) -> list[tuple[Cell, ...]]:
    """TTFT P50 of requests that share a prefix and of those that do not; empty if all or none do."""
    medians = []
    for level in levels.values():
        rows = level.answered
        shared = prefix_tokens(level.run, rows["request"]) > 0
        if shared.all() or not shared.any():
            return []
        medians.append([percentile(ttft_ms(part), 0.5) for part in (rows[shared], rows[~shared])])
    return [
        (title, *row)
        for title, row in zip(("sharing a prefix", "not sharing"), zip(*medians, strict=True), strict=True)
    ]


def hooks(parameters: Parameters) -> tuple[str, ...]:
    return ("cache-off", "cache-on")


def validate(parameters: Parameters, settings: RunSettings) -> None:
    if settings.load.rate is None and settings.load.concurrency is None:
        raise InputError(
            "load-missing",
            "the test prefix-cache needs a load below the saturation of the system without its cache: "
            "--rate REQUESTS_PER_S",
        )
    workload = settings.workload
    if workload.name in SYNTHETIC and not workload.prefix_len:
        raise InputError(
            "prefix-missing",
            f"requests of {workload.name} have no shared prefix: give --prefix-len TOKENS, or leave --workload and --isl "
            f"out for {DEFAULT}",
        )


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    rate = settings.load.rate
    return None if not rate else 3 * parameters.request_count / rate + 2 * parameters.duration_s


TEST = ProcedureTest(
    "prefix-cache", "5.7", "Prefix Cache Effectiveness", Parameters, levels, analyze, shared=by_count, warms_up=False,
    validate=validate, expected_s=expected_s, hooks=hooks, workload=DEFAULT,
)  # fmt: skip
