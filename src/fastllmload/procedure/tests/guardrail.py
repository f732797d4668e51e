"""Guardrail overhead (IETF 5.10): the same benign requests with and without filters, at the same rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ByStatistic, GuardrailFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import LevelFinding
from fastllmload.experiment.level.tables import Column, figure, tabulate
from fastllmload.experiment.report.findings import Findings
from fastllmload.metrics.levels.prefix_cache import Latencies, change_percent, overheads
from fastllmload.procedure.procedure_test import OF_CAPACITY, Conditions, ProcedureTest, first, shorter
from fastllmload.search.saturation import (
    SaturationCapacity,
    capacity_of,
    measured,
    validate_capacity_source,
    validate_levels,
)
from fastllmload.settings import RunSettings

TITLES = {"baseline": "Baseline", "input": "Input filter", "output": "Output filter", "full": "Full filter"}
CONFIGURATIONS = tuple(TITLES)
BASELINE, *FILTERS = CONFIGURATIONS
SHARES = (0.25, 0.5, 0.75)
DEFAULT = "conversation"
REFUSED = "Refused: answered with an HTTP error of class 4xx; not part of the latencies"


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


@dataclass(frozen=True)
class Filtered(LevelFinding):
    """A level with a configuration at a share of the capacity."""

    name: str
    share: float

    @property
    def refused(self) -> int:
        """Number of requests that were answered with 4xx, as a filter does that refuses them."""
        groups = self.level.document.errors
        return sum(int(known(group.count) or 0) for group in groups if 400 <= (group.http_status or 0) < 500)


LATENCIES = (figure("ttft", "p50"), figure("ttft", "p99"), figure("e2e", "p50"), figure("e2e", "p99"))
MIDDLE = (Column[Filtered]("Configuration", lambda one: TITLES[one.name]), *LATENCIES)
EVERY = (
    Column[Filtered]("Configuration", lambda one: f"{TITLES[one.name]}, {one.share:.0%}"),
    *LATENCIES,
    Column[Filtered]("Refused", lambda one: one.refused),
)
Done = dict[str, list[Filtered]]  # by configuration
Overheads = dict[str, ByStatistic | None]  # what is added, in ms
Throughput = dict[str, SaturationCapacity | None]  # configuration → maximum; None if nothing was received


@dataclass
class Configurations:
    """What was measured of each configuration so far."""

    done: Done = field(default_factory=dict)
    throughput: Throughput = field(default_factory=dict)


def levels(given: Conditions[Parameters]) -> Iterator[Configurations]:
    experiment, settings, parameters, found = given.experiment, given.settings, given.parameters, given.found
    order = [name for name in CONFIGURATIONS if name in parameters.configurations]
    compared = Configurations()
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
        shares = sorted(parameters.levels)
        compared.done[name] = [Filtered(load_sweep.at(given.rate_at(share)).level, name, share) for share in shares]
        yield compared
    if BASELINE not in order:
        found.deviate("no baseline without guardrails was measured (IETF 5.10.2)", public=True)


def analyze(compared: Configurations, given: Conditions[Parameters]) -> None:
    done, throughput, capacity, found = compared.done, compared.throughput, given.capacity, given.found
    every = [one for there in done.values() for one in there]
    shares = [one.share for one in next(iter(done.values()))]
    middle = (len(shares) - 1) // 2
    title = f"Guardrail Overhead at {shares[middle]:.0%} of the baseline's capacity"
    tabulate(found, "guardrail", title, MIDDLE, [there[middle] for there in done.values()])
    tabulate(found, "guardrail-levels", "All levels", EVERY, every, REFUSED)
    tokens = {name: None if most is None else most.output_tok_s for name, most in throughput.items()}
    requests = {name: None if most is None else most.req_s for name, most in throughput.items()}
    changes = {name: change_percent(tokens.get(BASELINE), value) for name, value in tokens.items() if name != BASELINE}
    if throughput:
        columns = ("Configuration", "Max Throughput (tok/s)", "Reduction", "Requests (r/s)")
        rows = [
            (TITLES[name], tokens[name], "-" if name == BASELINE else signed(changes[name]), requests[name])
            for name in tokens
        ]
        found.table(
            "guardrail-throughput", "Throughput", columns, rows, "Reduction: of output tokens/s, by the baseline's"
        )
    refused = {name: sum(one.refused for one in there) for name, there in done.items()}
    found.values = GuardrailFindings(
        capacity=capacity.entry(),
        overheads={f"{share:g}": overhead(done, k) for k, share in enumerate(shares)},
        throughput_output_tok_s=tokens,
        throughput_req_s=requests,
        throughput_change_percent=changes,
        refused=refused,
    )
    report_overheads(overhead(done, middle), shares[middle], found)
    if any(refused.values()):
        counts = ", ".join(f"{name} {count}" for name, count in refused.items() if count)
        found.warn("benign-refused", f"benign requests were refused: {counts}")
    names = tuple(f"{share:.0%}" for share in shares)
    series = tuple(
        FindingSeries(TITLES[name], tuple(one.figure("ttft", "p50") for one in there)) for name, there in done.items()
    )
    found.plot(FindingPlot("ttft", "P50 TTFT by load", "bars", series, y=("TTFT", "ms", None), names=names))


def overhead(done: Done, level: int) -> Overheads:
    """Milliseconds that each configuration adds at one level; None for a configuration that was not measured."""
    found = {name: Latencies(statistics(there[level], "ttft"), statistics(there[level], "e2e"))
             for name, there in done.items()}  # fmt: skip
    return overheads(found[BASELINE], *map(found.get, FILTERS)) if BASELINE in found else {}


def statistics(one: Filtered, metric: str) -> ByStatistic:
    return ByStatistic(**{name: one.figure(metric, name) for name in ByStatistic.__struct_fields__})


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
        if values is not None and values.p50 is not None:
            found.say(f"{text.format(format(values.p50, '.4g'))} (P50 at {share:.0%} of the capacity)")


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
