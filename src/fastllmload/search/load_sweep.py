"""Measures successive load levels and judges each: saturated, steady, or client limited (spec/procedures 0.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_load, instants, own_requests
from fastllmload.experiment.level.verdict import IN_FLIGHT, LevelVerdict, Lowest, criteria_entry, judge_level, lowest_of
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision


@dataclass(frozen=True)
class LevelResult:
    """A measured load level and its verdict."""

    level: Level
    verdict: LevelVerdict

    @property
    def load(self) -> float:
        return self.level.load


@dataclass
class LoadSweep:
    """*settings*: shared by all levels, with their length and workload."""

    experiment: Experiment
    settings: RunSettings
    closed: bool = False
    prefix: str = ""
    level_results: list[LevelResult] = field(default_factory=list)

    def at(self, load: float, repetition: int = 0) -> LevelResult:
        """Measure *load* requests/s or slots; a level that is neither steady nor saturated is run again, twice as long."""
        level_result = self._measured(load, repetition, 1)
        if level_result.verdict.unsteady and self.settings.load.duration is not None and not self.experiment.quick:
            level_result = self._measured(load, repetition, 2)
        self.level_results.append(level_result)
        return level_result

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
        self.experiment.record(
            level, criteria=criteria_entry(verdict), saturated=verdict.saturated, steady=verdict.steady
        )
        return LevelResult(level, verdict)

    def judged(self, level: Level) -> LevelVerdict:
        below = [level_result for level_result in self.level_results if level_result.load < level.load]
        lower = [(level_result.load, level_result.level.output_tok_s) for level_result in below] if self.closed else []
        return judge_level(level.run, self.lowest(level), lower)

    def lowest(self, level: Level) -> Lowest | None:
        """The lowest level so far; None if that is *level* itself."""
        first = min(self.level_results, key=lambda level_result: level_result.load, default=None)
        return None if first is None or level.load <= first.load else lowest_of(first.level.run)


def queue_text(level_results: Sequence[LevelResult]) -> str:
    """Which queue's growth these levels were judged by, for a table's note."""
    if all(level_result.verdict.loop == "closed" for level_result in level_results):
        return "queue growth: not judged in a closed loop, whose queue is constant"
    queues = sorted({level_result.verdict.queue for level_result in level_results})
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
