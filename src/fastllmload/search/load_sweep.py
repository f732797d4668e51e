"""Measures successive load levels and judges each: saturated, steady, or client limited (spec/procedures 0.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.result import Level, LevelFinding
from fastllmload.experiment.level.settings import at_load, instants, own_requests
from fastllmload.experiment.level.tables import Column
from fastllmload.experiment.level.verdict import IN_FLIGHT, LevelVerdict, judge_level, lowest_of
from fastllmload.search.driver import measure_until
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision


@dataclass(frozen=True)
class LevelResult(LevelFinding):
    """A measured load level and its verdict."""

    verdict: LevelVerdict

    @property
    def load(self) -> float:
        return self.level.load

    @property
    def output_tok_s(self) -> float:
        return self.level.output_tok_s


@dataclass
class LoadSweep:
    """*settings*: shared by all levels, with their length and workload."""

    experiment: Experiment
    settings: RunSettings
    closed: bool = False
    prefix: str = ""
    results: list[LevelResult] = field(default_factory=list)

    def at(self, load: float, repetition: int = 0) -> LevelResult:
        """Measure *load* requests/s or slots; a level that is neither steady nor saturated is run again, twice as long."""
        once = self.settings.load.duration is None or self.experiment.quick
        result = measure_until(
            lambda times, attempt: self._measured(load, repetition, times),
            lambda result, times: 2 * times if result.verdict.unsteady and not once else None,
            first=1,
            tries=2,
        )
        self.results.append(result)
        return result

    def _measured(self, load: float, repetition: int, times: int) -> LevelResult:
        duration = self.settings.load.duration
        length = {} if duration is None else {"duration": duration * times}
        again = instants(self.settings, repetition)
        settings = at_load(self.settings, load, self.closed, warmup_requests=0, repetition=again, **length)
        settings = own_requests(settings, load, repetition * 2 + times - 1)
        unit = "slots" if self.closed else "per second"
        name = f"{self.prefix}{load:.9g} {unit}" + (f", run {repetition + 1}" if repetition else "")
        level = self.experiment.level(name + (", longer" if times > 1 else ""), settings)
        verdict = self.judged(level)
        self.experiment.record(level, criteria=verdict, saturated=verdict.saturated, steady=verdict.steady)
        return LevelResult(level, verdict)

    def judged(self, level: Level) -> LevelVerdict:
        """The verdict on *level*, compared with the lowest level so far and, in a closed loop, with all lower ones."""
        below = [result for result in self.results if result.load < level.load]
        first = min(below, key=lambda result: result.load, default=None)
        lower = [(result.load, result.output_tok_s) for result in below] if self.closed else []
        return judge_level(level.run, None if first is None else lowest_of(first.level.run), lower)


def queue_text(results: Sequence[LevelResult]) -> str:
    """Which queue's growth these levels were judged by, for a table's note."""
    if all(result.verdict.loop == "closed" for result in results):
        return "queue growth: not judged in a closed loop, whose queue is constant"
    queues = sorted({str(result.verdict.queue) for result in results})
    if queues == [IN_FLIGHT]:
        return f"queue growth: by {IN_FLIGHT}, because a client cannot see the queue"
    return f"queue growth: by {' on some levels, '.join(queues)}" + (" on others" if len(queues) > 1 else "")


def state_of(verdict: LevelVerdict) -> str:
    """The verdict in a word or two, for a table."""
    if verdict.decision is Decision.CLIENT:
        return "client limited"
    if verdict.saturated:
        return "saturated"
    if verdict.saturated is None or verdict.steady is None:
        return "unknown"
    return "steady" if verdict.steady else "unsteady"


# -- columns of tables of levels --------------------------------------------------------------------------------------


def load_column(heading: str) -> Column[LevelResult]:
    return Column(heading, lambda result: f"{result.load:g}")


QUEUE_COLUMNS: tuple[Column[LevelResult], ...] = (
    Column("In flight", lambda result: result.verdict.figures.in_flight_mean),
    Column("Completion", lambda result: result.verdict.figures.completion_rate),
)
