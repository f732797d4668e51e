"""Guardrail overhead (IETF 5.10): the same benign requests with and without filters, at the same rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import GuardrailFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.report.findings import Findings
from fastllmload.metrics.levels.prefix_cache import change_percent, overheads
from fastllmload.procedure.procedure_test import OF_CAPACITY, Conditions, ProcedureTest, first, shorter
from fastllmload.search.load_sweep import LevelResult
from fastllmload.search.saturation import (
    SaturationCapacity,
    capacity_of,
    measured,
    validate_capacity_source,
    validate_levels,
)
from fastllmload.settings import RunSettings

CONFIGURATIONS = ("baseline", "input", "output", "full")
TITLES = {"baseline": "Baseline", "input": "Input filter", "output": "Output filter", "full": "Full filter"}
SHARES = (0.25, 0.5, 0.75)
NAMES = ("p50", "p95", "p99", "mean")
DEFAULT = "conversation"


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*levels*: shares of the baseline's capacity. *throughput*: measure the maximum throughput of each configuration."""

    capacity: float | None = None
    capacity_source: str | None = None
    duration_s: float = 300.0
    levels: tuple[float, ...] = SHARES
    configurations: tuple[str, ...] = CONFIGURATIONS
    throughput: bool = True

    def quick(self) -> Parameters:
        return msgspec.structs.replace(
            self, duration_s=shorter(self.duration_s, 60, 4.0), levels=first(self.levels, SHARES, 2)
        )


Done = dict[str, list[tuple[float, LevelResult]]]  # configuration → shares of the capacity and their results
Overheads = dict[str, dict[str, float | None] | None]  # what is added → percentiles in ms
Throughput = dict[str, SaturationCapacity | None]  # configuration → maximum; None if nothing was received


@dataclass
class Compared:
    """What was measured of each configuration so far."""

    done: Done = field(default_factory=dict)
    throughput: Throughput = field(default_factory=dict)


def levels(given: Conditions[Parameters]) -> Iterator[Compared]:
    experiment, settings, parameters, found = given.experiment, given.settings, given.parameters, given.found
    order = [name for name in CONFIGURATIONS if name in parameters.configurations]
    compared = Compared()
    for name in order:
        experiment.switch("guardrail", f"guardrail-{name}")
        given.warm_up()
        if given.reference is None:
            given.reference = capacity_of(experiment, settings, parameters, found, prefix=f"{name}, ")
            if given.reference is None:
                return
            if parameters.capacity is None:
                compared.throughput[name] = given.reference
        if parameters.throughput and name not in compared.throughput:
            compared.throughput[name] = measured(experiment, settings, found, prefix=f"{name}, ")
        load_sweep = given.sweep(f"{name}, ")
        compared.done[name] = [(share, load_sweep.at(given.rate_at(share))) for share in sorted(parameters.levels)]
        yield compared
    if "baseline" not in order:
        found.deviate("no baseline without guardrails was measured (IETF 5.10.2)", public=True)


def analyze(compared: Compared, given: Conditions[Parameters]) -> None:
    done, throughput, capacity, found = compared.done, compared.throughput, given.capacity, given.found
    shares = [share for share, _ in next(iter(done.values()))]
    middle = (len(shares) - 1) // 2
    columns = ("Configuration", "TTFT P50 (ms)", "TTFT P99 (ms)", "E2E P50 (ms)", "E2E P99 (ms)")
    rows = [(TITLES[name], *latencies(level_results[middle][1])) for name, level_results in done.items()]
    found.table("guardrail", f"Guardrail Overhead at {shares[middle]:.0%} of the baseline's capacity", columns, rows)
    every = [
        (f"{TITLES[name]}, {share:.0%}", *latencies(level_result), refusals(level_result))
        for name, level_results in done.items()
        for share, level_result in level_results
    ]
    found.table("guardrail-levels", "All levels", (*columns, "Refused"), every,
                "Refused: answered with an HTTP error of class 4xx; not part of the latencies")  # fmt: skip
    tokens = {name: None if most is None else most.output_tok_s for name, most in throughput.items()}
    requests = {name: None if most is None else most.req_s for name, most in throughput.items()}
    baseline = tokens.get("baseline")
    if throughput:
        changes = [
            (
                TITLES[name],
                value,
                "-" if name == "baseline" else signed(change_percent(baseline, value)),
                requests[name],
            )
            for name, value in tokens.items()
        ]
        found.table(
            "guardrail-throughput", "Throughput",
            ("Configuration", "Max Throughput (tok/s)", "Reduction", "Requests (r/s)"), changes,
            "Reduction: of output tokens/s, by the baseline's",
        )  # fmt: skip
    refused = {
        name: sum(refusals(level_result) for _, level_result in level_results) for name, level_results in done.items()
    }
    found.values = GuardrailFindings(
        capacity=capacity.entry(),
        overheads={f"{share:g}": overhead(done, k) for k, share in enumerate(shares)},
        throughput_output_tok_s=tokens,
        throughput_req_s=requests,
        throughput_change_percent={
            name: change_percent(baseline, value) for name, value in tokens.items() if name != "baseline"
        },
        refused=refused,
    )
    report_overheads(overhead(done, middle), shares[middle], found)
    if any(refused.values()):
        counts = ", ".join(f"{name} {count}" for name, count in refused.items() if count)
        found.warn("benign-refused", f"benign requests were refused: {counts}")
    names = tuple(f"{share:.0%}" for share in shares)
    series = tuple(
        FindingSeries(
            TITLES[name], tuple(level_result.level.figure("ttft", "p50") for _, level_result in level_results)
        )
        for name, level_results in done.items()
    )
    found.plot(FindingPlot("ttft", "P50 TTFT by load", "bars", series, y=("TTFT", "ms", None), names=names))


def latencies(level_result: LevelResult) -> tuple[Any, ...]:
    level = level_result.level
    return (
        level.figure("ttft", "p50"),
        level.figure("ttft", "p99"),
        level.figure("e2e", "p50"),
        level.figure("e2e", "p99"),
    )


def overhead(done: Done, level: int) -> Overheads:
    """Milliseconds that each configuration adds at one level; None for a configuration that was not measured."""
    metrics = {name: percentiles(level_results[level][1].level) for name, level_results in done.items()}
    if "baseline" not in metrics:
        return {}
    return dict(overheads(metrics["baseline"], metrics.get("input"), metrics.get("output"), metrics.get("full")))


def percentiles(level: Level) -> dict[str, dict[str, float | None]]:
    """Those of TTFT and e2e in ms."""
    found = {name: level.document.metric(name) for name in ("ttft", "e2e")}
    return {name: {key: known(metric.statistic(key)) for key in NAMES} for name, metric in found.items()}


def report_overheads(overheads: Overheads, share: float, found: Findings) -> None:
    """Sentences with the overheads of the middle level."""
    titles = {
        "input_filter_ttft_ms": "the input filter adds {} ms to TTFT",
        "output_filter_e2e_ms": "the output filter adds {} ms to the end-to-end latency",
        "total_e2e_ms": "both together add {} ms to the end-to-end latency",
    }
    found.sentences = []
    for name, text in titles.items():
        values = overheads.get(name)
        if values is not None and values["p50"] is not None:
            found.say(f"{text.format(format(values['p50'], '.4g'))} (P50 at {share:.0%} of the capacity)")


def refusals(level_result: LevelResult) -> int:
    """Number of requests that were answered with 4xx, as a filter does that refuses them."""
    groups = level_result.level.document.errors
    return sum(int(known(group.count) or 0) for group in groups if 400 <= (group.http_status or 0) < 500)


def signed(percent: float | None) -> str | None:
    return None if percent is None else f"{percent:+.1f}%"


def hooks(parameters: Parameters) -> tuple[str, ...]:
    return tuple(f"guardrail-{name}" for name in CONFIGURATIONS if name in parameters.configurations)


def validate(parameters: Parameters, settings: RunSettings) -> None:
    validate_capacity_source(parameters)
    validate_levels(parameters.levels, SHARES, most=1.0)  # percent of the capacity (IETF 5.10.3)
    if len(set(parameters.configurations)) < 2:
        raise InputError(
            "configurations-missing",
            "--configuration must name at least two of baseline, input, output, full: an overhead is a difference of two",
        )


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return parameters.duration_s * len(parameters.levels) * len(set(parameters.configurations))


TEST = ProcedureTest(
    "guardrail", "5.10", "Guardrail Overhead", Parameters, levels, analyze, warms_up=False,
    load=OF_CAPACITY.format("shares"), validate=validate, expected_s=expected_s, hooks=hooks, workload=DEFAULT,
)  # fmt: skip
