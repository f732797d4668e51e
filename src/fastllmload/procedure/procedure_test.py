"""What one of the ten tests declares, and how it is run: settings, warm-up, capacity, its levels, an analysis after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from fastllmload.errors import InputError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.preparation.warmup import warm_up
from fastllmload.experiment.report.findings import Findings
from fastllmload.search.load_sweep import LoadSweep
from fastllmload.search.saturation import SaturationCapacity, capacity_of
from fastllmload.settings import RunSettings

OF_CAPACITY = (
    "sets the load itself, as {} of the capacity: leave --rate and --concurrency out; give a known capacity with "
    "--capacity RATE and --capacity-source TEXT"
)
P = TypeVar("P")
N = TypeVar("N", int, float)


@dataclass
class Conditions(Generic[P]):
    """What a test measures with. *settings*: shared by its levels. *found*: filled by its analysis."""

    experiment: Experiment
    settings: RunSettings
    parameters: P
    found: Findings
    reference: SaturationCapacity | None = None

    @property
    def capacity(self) -> SaturationCapacity:
        """That of the system, for a test that measures at shares of it."""
        assert self.reference is not None
        return self.reference

    def rate_at(self, share: float) -> float:
        """Requests/s at *share* of the capacity, to six digits."""
        return float(f"{share * self.capacity.req_s:.6g}")

    def sweep(self, prefix: str = "", closed: bool = False, settings: RunSettings | None = None) -> LoadSweep:
        """Levels of *settings*, by default those of the test; *prefix*: of their names."""
        return LoadSweep(self.experiment, settings or self.settings, closed, prefix)

    def warm_up(self, settings: RunSettings | None = None) -> None:
        warm_up(self.experiment, settings or self.settings, quick=self.experiment.quick)


def by_duration(parameters: Any) -> dict[str, dict[str, Any]]:
    """Settings of levels that last *duration_s*."""
    return {"load": {"duration": parameters.duration_s, "num_requests": None}}


def by_count(parameters: Any) -> dict[str, dict[str, Any]]:
    """Settings of levels of *request_count* requests."""
    return {"load": {"num_requests": parameters.request_count, "duration": None, "warmup_requests": 0}}


@dataclass(frozen=True)
class ProcedureTest:
    """One of the ten tests: its parameters, the levels that it runs, and the analysis of what they gave.

    *parameters*: its struct, with `quick()`. *levels* yields what was measured so far, after each level or at the end, and
    *analyze* fills the findings from that. *shared*: settings of all levels. *warms_up*: False for a test that prepares the
    system itself; *warm_up_settings*: those of the warm-up, if it has others than the levels. *at_shares*: the levels are
    shares of the capacity, which is measured first unless it is declared.
    """

    name: str
    section: str
    title: str
    parameters: type[msgspec.Struct]
    levels: Callable[[Conditions[Any]], Iterator[Any]]
    analyze: Callable[[Any, Conditions[Any]], None]
    shared: Callable[[Any], dict[str, dict[str, Any]]] = by_duration
    warms_up: bool = True
    warm_up_settings: Callable[[RunSettings, Any], RunSettings] = lambda settings, parameters: settings
    at_shares: bool = False
    load: str = ""  # end of the error message if --rate or --concurrency is given, which the test sets itself
    validate: Callable[[Any, RunSettings], None] = lambda parameters, settings: None
    expected_s: Callable[[Any, RunSettings], float | None] = lambda parameters, settings: None  # None: unknown
    hooks: Callable[[Any], tuple[str, ...]] = lambda parameters: ()  # that it needs
    may: tuple[str, ...] = ()  # optional hooks
    workload: str | None = None  # the default if the user names none
    sends: str | None = None  # the workload that it always sends

    def refuse(self, parameters: Any, settings: RunSettings) -> None:
        """InputError for parameters or settings that the test cannot be run with."""
        if self.load and (settings.load.rate is not None or settings.load.concurrency is not None):
            raise InputError("option-prescribed", f"the test {self.name} {self.load}")
        self.validate(parameters, settings)

    def run(self, experiment: Experiment, parameters: Any, found: Findings) -> None:
        """Measure all levels and fill *found*."""
        settings = changed(experiment.base, **self.shared(parameters))
        conditions = Conditions(experiment, settings, parameters, found)
        if self.warms_up:
            conditions.warm_up(self.warm_up_settings(settings, parameters))
        if self.at_shares:
            conditions.reference = capacity_of(experiment, settings, parameters, found)
            if conditions.reference is None:
                return
        for measured in self.levels(conditions):
            self.analyze(measured, conditions)


# -- parameters under `--quick`: durations and counts are reduced, and never above the requested ones -----------------


def shorter(seconds: float, times: float, least: float) -> float:
    """*seconds* / *times*, but at least *least* unless *seconds* is less."""
    return min(seconds, max(least, seconds / times))


def fewer(count: int, times: int, least: int) -> int:
    """The same for a count."""
    return min(count, max(least, count // times))


def first(values: tuple[N, ...], standard: tuple[N, ...], many: int) -> tuple[N, ...]:
    """The first *many* of the *standard* values; a list given by the user is not shortened."""
    return values[:many] if values == standard else values
