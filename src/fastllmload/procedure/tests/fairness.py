"""Scheduling fairness (IETF 5.6): short and long requests alone, then mixed at the same total load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.procedure import ByStatistic, FairnessFindings
from fastllmload.documents.run_parts.classes import ClassFairness, Fairness
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.level.tables import Column, tabulate, thinned, transpose
from fastllmload.experiment.level.verdict import LevelVerdict
from fastllmload.experiment.report.findings import LOAD, NOTHING, SHARE
from fastllmload.metrics.levels.fairness import (
    STARVED_ABOVE,
    UNFAIR_BELOW,
    fairness_block,
    latency_inflation,
)
from fastllmload.metrics.request.durations import ttft
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.plan.standard import SKEWED
from fastllmload.procedure.procedure_test import OF_CAPACITY, Conditions, ProcedureTest, by_duration, shorter
from fastllmload.records.run import Run
from fastllmload.report.text.numbers import count
from fastllmload.search.saturation import validate_capacity_source
from fastllmload.settings import RunSettings
from fastllmload.workload.fairness import MIXES, mean_tokens
from fastllmload.workload.lengths import LogNormal, parse_lengths

MIXED = "fairness"
CLASSES = {each.name: (f"{MIXED}-{each.name}", share) for each, share in MIXES[MIXED]}
NUMBERS = {name: number for number, name in enumerate(CLASSES)}  # of the classes in the mixed workload
LEAST_S, LEAST_REQUESTS, P99_REQUESTS = 300.0, 500, 1_000
LOADS = (0.7, 0.9)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*share_of_capacity*: of the mixed workload's capacity. *baseline*: what "same total load" means."""

    capacity: float | None = None
    capacity_source: str | None = None
    duration_s: float = LEAST_S
    share_of_capacity: float = 0.8
    baseline: str = "same_tokens"  # or same_rate, own_rate
    least_requests: int = LEAST_REQUESTS

    def quick(self) -> Parameters:
        return msgspec.structs.replace(self, duration_s=shorter(self.duration_s, 40, 6.0), least_requests=10)


def starved(one: ClassFairness) -> str | None:
    """The starvation rate of a class in percent, as IETF Table 9 prints it."""
    rate = known(one.starvation_rate)
    return None if rate is None else f"{rate:.1%}"


def starvation(name: str) -> Column[Fairness]:
    return Column(f"{name.capitalize()} Class Starvation", lambda block: starved(class_of(block, name)), SHARE)


@dataclass
class FairnessLevels:
    """*unsound*: classes that saturate the system alone."""

    mixed: Level
    alone: dict[str, Level]
    unsound: list[str]


class ClassLatencies(NamedTuple):
    """Of a class, alone or mixed; *inflation* of its median TTFT in the mix."""

    name: str
    ttft: Metric
    tpot: Metric
    inflation: float | None

    @property
    def samples(self) -> int:
        """Requests that the TTFT percentiles are computed from."""
        return int(known(self.ttft.n) or 0)


LATENCIES: tuple[Column[ClassLatencies], ...] = (
    Column("Class", lambda of: of.name),
    Column("Count", lambda of: of.samples, LOAD),
    Column("TTFT P50 (ms)", lambda of: known(of.ttft.p50)),
    Column("TTFT P95 (ms)", lambda of: known(of.ttft.p95)),
    Column("TTFT P99 (ms)", lambda of: known(of.ttft.p99)),
    Column("TPOT P50 (ms)", lambda of: known(of.tpot.p50)),
    Column("TPOT P99 (ms)", lambda of: known(of.tpot.p99)),
    Column("Inflation", lambda of: of.inflation),
)
INDICES: tuple[Column[Fairness], ...] = (
    Column("Jain's Fairness Index", lambda block: known(block.jain_index.value)),
    Column("Jain's index of e2e per output token", lambda block: known(block.jain_norm_latency.value)),
    *map(starvation, CLASSES),
)
NOTES = (
    f"Jain's index over TTFT / isolated median TTFT of the class; below {UNFAIR_BELOW:g} is significantly unfair",
    "the index also falls where some of a class wait and others do not; inflation compares the classes",
    f"starved: waited more than {STARVED_ABOVE} times the median of the class",
)


def shared(parameters: Parameters) -> dict[str, dict[str, Any]]:
    return {**by_duration(parameters), "workload": of_workload(MIXED)}


def levels(given: Conditions[Parameters]) -> Iterator[FairnessLevels]:
    parameters, found, settings = given.parameters, given.found, given.settings
    rate = parameters.share_of_capacity * given.capacity.req_s
    length = long_enough(rate, parameters)
    if length > parameters.duration_s:
        found.say(f"levels take {length:.0f} s, so that each class has {parameters.least_requests} requests in the mix")
    settings = changed(settings, load={"duration": length})
    alone: dict[str, Level] = {}
    unsound: list[str] = []
    for name, (workload, share) in CLASSES.items():
        own = baseline_rate(parameters, rate, name, share)
        load_sweep = given.sweep(f"isolated {name}, ", settings=changed(settings, workload=of_workload(workload)))
        result = load_sweep.at(float(f"{own:.6g}"))
        alone[name] = result.level
        if why := overloaded(result.verdict):
            unsound.append(name)
            found.warn(
                "isolated-class-saturates",
                f"the isolated {name} class saturates the system ({why}): inflation and Jain's index, which compare "
                "with it, have no meaning; take --baseline own_rate or a lower --load",
            )
    mixed = given.sweep("mixed, ", settings=settings).at(float(f"{rate:.6g}"))
    yield FairnessLevels(mixed.level, alone, unsound)


def overloaded(verdict: LevelVerdict) -> str:
    """The criteria by which an isolated class is too much for the system, also if the client was late; empty if none."""
    return ", ".join(verdict.fired) if verdict.saturated or verdict.generator_limited else ""


def of_workload(name: str) -> dict[str, Any]:
    return {"name": name, "isl": None, "osl": None}


def long_enough(rate: float, parameters: Parameters) -> float:
    """Duration in s after which the rarest class is expected to have enough requests in the window."""
    rarest = min(share for _, share in CLASSES.values())
    window = 1.15 * parameters.least_requests / (rarest * rate)
    return max(parameters.duration_s, window / 0.9)


def baseline_rate(parameters: Parameters, rate: float, name: str, share: float) -> float:
    """Rate of the isolated class. *same_tokens*: as many offered tokens per second, input and output, as the mix."""
    if parameters.baseline == "same_rate":
        return rate
    if parameters.baseline == "own_rate":
        return share * rate
    return rate * expected_tokens(MIXED) / expected_tokens(CLASSES[name][0])


def expected_tokens(workload: str) -> float:
    """Mean input plus output tokens of a request of *workload*, from its definition."""
    isl, osl = (parse_lengths(text, option) for text, option in zip(SKEWED, ("--isl", "--osl"), strict=True))
    assert isinstance(isl, LogNormal) and isinstance(osl, LogNormal)
    return mean_tokens(isl, osl, MIXES[workload])


def analyze(done: FairnessLevels, given: Conditions[Parameters]) -> None:
    mixed, alone = done.mixed, done.alone
    capacity, parameters, found = given.capacity, given.parameters, given.found
    isolated_p50 = {NUMBERS[name]: value for name, level in alone.items() if (value := level.figure("ttft", "p50"))}
    block = block_of(mixed.run, isolated_p50)
    if block is None:
        found.warn("nothing-measured", "fewer than two classes of the mix were served: there is nothing to compare")
        return
    classes = {name: class_of(block, name) for name in alone}
    inflation: dict[str, ByStatistic] = {}
    compared = []
    for name, one in classes.items():
        document = alone[name].document
        inflation[name] = latency_inflation(statistics(one.ttft), statistics(document.metric("ttft")))
        compared += [
            ClassLatencies(f"{name} isolated", document.metric("ttft"), document.metric("tpot"), None),
            ClassLatencies(f"{name} mixed", one.ttft, one.tpot, inflation[name].p50),
        ]
    for each in compared:
        if each.samples < P99_REQUESTS:
            which = each.name.replace(" ", ", ")
            text = f"class {which}: its P99 is from {count(each.samples)} requests, fewer than {P99_REQUESTS:,}"
            found.warn("few-samples", text)
    note = found.publish(f"isolated rates: {parameters.baseline.replace('_', ' ')}")
    tabulate(found, "fairness", "Per-Class Latency", LATENCIES, compared, note, reveals=NOTHING)
    transpose(found, "fairness-indices", "Fairness", INDICES, {"Value": block}, *map(found.publish, NOTES))
    jain = block.jain_index
    found.values = FairnessFindings(
        capacity=capacity.entry(),
        rate=mixed.load,
        baseline=parameters.baseline,
        jain_index=jain.value,
        significantly_unfair=None if done.unsound else jain.significantly_unfair,
        inflation=inflation,
        starvation={name: known(one.starvation_rate) for name, one in classes.items()},
        requests={name: known(one.submitted) for name, one in classes.items()},
        saturated_baselines=tuple(done.unsound),
    )
    found.say(
        f"mixed load {mixed.load:.4g} requests/s, {parameters.share_of_capacity:.0%} of {capacity.req_s:.4g} "
        f"({capacity.source})"
    )
    answered = {f"{name} mixed": mixed.answered[mixed.answered["request_class"] == NUMBERS[name]] for name in alone}
    answered |= {f"{name} isolated": level.answered for name, level in alone.items()}
    series = tuple(FindingSeries(name, thinned(np.sort(ttft(rows) / 1e6))) for name, rows in answered.items())
    found.plot(FindingPlot("ttft-cdf", "TTFT by class", "cdf", series, y=("TTFT", "ms", None)))


def block_of(run: Run, isolated_p50: dict[int, float]) -> Fairness | None:
    return fairness_block(run, populations(run, window_of(run)), count_tokens(run), isolated_p50)


def class_of(block: Fairness, name: str) -> ClassFairness:
    """The class *name*, or its number if the run names no classes."""
    return block.classes.get(name) or block.classes[str(NUMBERS[name])]


def statistics(of: Metric) -> ByStatistic:
    return ByStatistic(p50=known(of.p50), p95=known(of.p95), p99=known(of.p99), mean=known(of.mean))


def validate(parameters: Parameters, settings: RunSettings) -> None:
    for option, lengths in (("--isl", settings.workload.isl), ("--osl", settings.workload.osl)):
        if lengths is not None:
            raise InputError(
                "option-prescribed",
                f"{option} {lengths}: the test fairness sets the lengths of its two classes itself (IETF 5.6.2): leave "
                f"{option} out",
            )
    validate_capacity_source(parameters)
    low, high = LOADS
    if not low <= parameters.share_of_capacity <= high:
        raise InputError(
            "value-out-of-range",
            f"--load {parameters.share_of_capacity:g} must be from {low:g} to {high:g} of the capacity (IETF 5.6.3)",
        )


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return 3 * parameters.duration_s


TEST = ProcedureTest(
    "fairness", "5.6", "Scheduling Fairness", Parameters, levels, analyze, shared=shared, at_shares=True,
    load=OF_CAPACITY.format("a share"), validate=validate, expected_s=expected_s, sends=MIXED,
)  # fmt: skip
