"""Memory pressure (IETF 5.8): behavior with more requests in flight than the memory has room for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import MemoryPressureFindings, PressureLevel
from fastllmload.engine.simulated_target import needs_engine
from fastllmload.errors import InputError, TargetError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.result import Level, LevelFinding
from fastllmload.experiment.level.settings import at_concurrency, own_requests
from fastllmload.experiment.level.tables import Column, figure, tabulate
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, shorter
from fastllmload.procedure.tests import capacity as concurrency
from fastllmload.search.saturation import listed, validate_capacity_source, validate_levels
from fastllmload.settings import RunSettings

LEVELS = (1.0, 1.1, 1.25, 1.5)
LEAST_S = 120.0
DEFAULT = "long-context"
RECOVER = "recover"  # the hook
PREEMPTIONS = "preemptions"  # key of the server figures in telemetry


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*capacity*: concurrency that test 5.5 found with this workload; measured first if None."""

    capacity: float | None = None
    capacity_source: str | None = None
    levels: tuple[float, ...] = LEVELS
    duration_s: float = LEAST_S
    slo_ttft_p99_ms: float | None = None
    initial: int = 8
    isolated: bool = False

    def quick(self) -> Parameters:
        return msgspec.structs.replace(self, duration_s=shorter(self.duration_s, 15, 5.0))


@dataclass(frozen=True)
class Pressed(LevelFinding):
    """A level at or beyond the capacity, and its entry in the findings."""

    share: float
    entry: PressureLevel

    @property
    def name(self) -> str:
        return f"{self.share:.0%}" + " (base)" * (self.share == 1.0) + (", aborted" if self.entry.aborted else "")

    @property
    def failed(self) -> float | None:
        complete = self.level.success_rate
        return None if complete is None else 1 - complete


COLUMNS: tuple[Column[Pressed], ...] = (
    Column("Oversub Level", lambda one: one.name),
    Column("Complete", lambda one: percent(one.level.success_rate)),
    Column("Preempt", lambda one: preempted(one.level)),
    Column("Fail Rate", lambda one: percent(one.failed)),
    figure("ttft", "p99"),
    figure("max_pause", "p99", "Max pause P99 (ms)"),
    Column("Preemptions", lambda one: preemptions(one.level)),
)
NOTES = (
    "Complete and Fail Rate add up to 100 %",
    "Preempt: preemptions for each 100 requests, by the server's own counter, where it reports one",
)


@dataclass
class PressureLevels:
    """The levels so far, and the capacity that they are shares of."""

    slots: int
    levels: list[Pressed] = field(default_factory=list)


def levels(given: Conditions[Parameters]) -> Iterator[PressureLevels]:
    slots = capacity_slots(given)
    if slots is None:
        given.found.warn(
            "no-level-passes",
            "no concurrency meets the criteria: without a capacity, memory pressure cannot be measured",
        )
        return
    done = PressureLevels(slots)
    for share in sorted({1.0, *given.parameters.levels}):
        one = measure(given.experiment, given.settings, share, slots)
        done.levels.append(one)
        yield done
        if one.entry.aborted:
            done.levels[-1] = recover(given.experiment, one)
            yield done


def capacity_slots(given: Conditions[Parameters]) -> int | None:
    parameters = given.parameters
    if parameters.capacity is not None:
        return max(1, round(parameters.capacity))
    asked = concurrency.Parameters(
        initial=parameters.initial, output_tokens=None, slo_ttft_p99_ms=parameters.slo_ttft_p99_ms,
        duration_s=min(60.0, parameters.duration_s),
    )  # fmt: skip
    if given.experiment.quick:
        asked = asked.quick()
    search = concurrency.Levels(given.experiment, given.settings, asked, given.found, prefix="capacity, ")
    answer = concurrency.find_capacity(search)
    for note in answer.notes:
        given.found.say(f"search of the capacity: {note}")
    return None if answer.best is None else int(answer.best)


def measure(experiment: Experiment, settings: RunSettings, share: float, slots: int) -> Pressed:
    """Measure one level; aborted if most requests failed or the server did not answer after it."""
    asked = at_concurrency(settings, math.ceil(share * slots), warmup_requests=0, ramp_share=0.0)
    can_recover = RECOVER in experiment.commands
    asked = own_requests(asked, asked.load.concurrency or 0)
    level = experiment.level(f"{share:.0%} of the capacity", asked, may_die=can_recover)
    earlier = experiment.earlier(level).died
    died = can_recover and (experiment.is_unreachable() if earlier is None else earlier)
    aborted = level.cascading or died
    experiment.record(level, share_of_capacity=share, aborted=aborted, died=died)
    entry = PressureLevel(
        share=share, slots=level.load, completion=level.success_rate, preemptions=preemptions(level),
        ttft_p99_ms=level.figure("ttft", "p99"), aborted=aborted, died=died, errors=level.document.errors,
    )  # fmt: skip
    return Pressed(level, share, entry)


def recover(experiment: Experiment, one: Pressed) -> Pressed:
    """Run the hook after an aborted level, also the last one, so that the server answers again."""
    if RECOVER not in experiment.commands:
        if experiment.is_unreachable():
            raise TargetError(
                "server-not-recovered",
                "the server does not answer after an overload and there is no --hook recover=COMMAND",
            )
        return one
    seconds = experiment.earlier(one.level).recovered_s
    if seconds is None or experiment.is_unreachable():
        seconds = experiment.do_hook(RECOVER)
    experiment.record(one.level, recovered_s=seconds)
    return replace(one, entry=msgspec.structs.replace(one.entry, recovered_s=seconds))


def analyze(measured: PressureLevels, given: Conditions[Parameters]) -> None:
    done, slots, found = measured.levels, measured.slots, given.found
    tabulate(found, "memory-pressure", "Memory Pressure", COLUMNS, done, *NOTES)
    found.values = MemoryPressureFindings(
        capacity_slots=slots,
        levels=tuple(one.entry for one in done),
        first_preemption_at=next((one.share for one in done if (preemptions(one.level) or 0) > 0), None),
    )
    found.say(f"capacity: {slots} requests at once")
    found.sentences = [text for text in found.sentences if not text.startswith(("preemption", "after "))]
    found.say(preemption_text([(one.share, preemptions(one.level)) for one in done]))
    for one in done:
        if one.entry.aborted:
            found.say(abort_text(one.entry))
    ttft = tuple(one.figure("ttft", "p99") for one in done)
    series = (FindingSeries("TTFT P99", ttft, tuple(one.share for one in done)),)
    axes = ("of the capacity", "share", None), ("TTFT", "ms", True)
    found.plot(FindingPlot("ttft", "P99 TTFT over oversubscription", "line", series, *axes))


def abort_text(one: PressureLevel) -> str:
    """The state of the system after an aborted level."""
    state = "did not answer any more" if one.died else "still answered, though most requests had failed"
    if one.recovered_s is None:
        after = "it was not brought back" if one.died else f"no hook {RECOVER} was run"
    elif one.died:
        after = f"the hook {RECOVER} brought it back in {one.recovered_s:.1f} s"
    else:
        after = f"the hook {RECOVER} was run, it answered after {one.recovered_s:.1f} s"
    return f"after {one.share:.0%} of the capacity the system {state}; {after}"


def preemption_text(counted: list[tuple[float, int | None]]) -> str:
    """*counted*: preemptions by share of the capacity, ascending. "none seen" only if every level has a count."""
    first = next((share for share, count in counted if count), None)
    if first is not None:
        below = max((share for share, count in counted if share < first and count == 0), default=None)
        if below is not None:
            return f"preemption begins above {below:.0%} of the capacity, at {first:.0%} at the latest"
        return f"preemption begins at {first:.0%} of the capacity or below"
    if None in [count for _, count in counted]:
        return "preemption: not measured at every level, it needs the server's own counter (telemetry)"
    return "preemption: none seen"


def percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%}"


def preempted(level: Level) -> str:
    """Preemptions per request in percent, as IETF Table 11 prints them; one request can be preempted several times."""
    count, submitted = preemptions(level), known(level.document.counts.submitted_in_window)
    return "not measured" if count is None or not submitted else f"{count / submitted:.1%}"


def preemptions(level: Level) -> int | None:
    """Increase of the server's counter over the window; None if it reports none."""
    value = known(level.document.server_figure(PREEMPTIONS).value)
    return None if value is None else int(value)


def validate(parameters: Parameters, settings: RunSettings) -> None:
    problems = []
    if not parameters.isolated and not needs_engine(settings.target):
        problems.append(
            InputError(
                "isolation-unconfirmed",
                "the test memory-pressure overloads the system and may bring it down: confirm with --isolated that it has "
                "no other users and that it can be recovered (IETF 7.4)",
            )
        )
    if parameters.capacity is None and parameters.slo_ttft_p99_ms is None:
        problems.append(
            InputError(
                "capacity-missing",
                "the test memory-pressure needs the capacity (--capacity SLOTS with --capacity-source, measured with this "
                "workload) or an objective to measure it (--slo-ttft-p99 MS)",
            )
        )
    if problems:
        raise InputError.of_all(problems)
    validate_capacity_source(parameters)
    if parameters.capacity is None:
        concurrency.refuse_range(concurrency.Parameters(initial=parameters.initial))
    validate_levels(parameters.levels, LEVELS)
    below = tuple(level for level in parameters.levels if level < 1)
    if below or max(parameters.levels) <= 1:
        raise InputError(
            "value-out-of-range",
            f"--levels {listed(below or parameters.levels)}: levels of this test must be above the capacity, such as "
            f"--levels {listed(LEVELS[1:])}; its base, 1, is always measured first (IETF 5.8.2)",
        )


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return parameters.duration_s * len({1.0, *parameters.levels})


TEST = ProcedureTest(
    "memory-pressure", "5.8", "Memory Pressure", Parameters, levels, analyze,
    warm_up_settings=lambda settings, parameters: at_concurrency(settings, parameters.initial),
    load="sets the load itself: leave --rate and --concurrency out", validate=validate, expected_s=expected_s,
    may=(RECOVER, concurrency.SERVER_LOG), workload=DEFAULT,
)  # fmt: skip
