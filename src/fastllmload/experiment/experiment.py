"""The folder, the target and the measured levels of a procedure, search or sweep.

A procedure is ordinary code that asks for levels one after the other. A level that is finished in the folder is taken
from there. So a procedure that was killed is simply started again: the same code asks for the same levels in the same
order, gets the finished ones at once, and continues where it stopped. No other state is stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from fastllmload.documents.experiment import ExperimentDocument, HookEntry, LevelEntry
from fastllmload.documents.run import RunDocument
from fastllmload.engine import public_settings
from fastllmload.engine.hosts.placement.cluster import require_ray
from fastllmload.engine.run import execute
from fastllmload.engine.simulated_target import engine_options, needs_engine
from fastllmload.errors import InputError, Interrupted, TargetError
from fastllmload.experiment.console import Console
from fastllmload.experiment.journal import Journal, utc
from fastllmload.experiment.level.result import Level, finished, quarantine, slug
from fastllmload.experiment.level.settings import changed, digest
from fastllmload.experiment.preparation import hooks
from fastllmload.experiment.preparation.hooks import NOT_YET, await_answer, unreachable_reason
from fastllmload.experiment.preparation.steps import PreparationStep, PreparationSteps
from fastllmload.records.folder_lock import runs_below
from fastllmload.records.run import DONE
from fastllmload.report.text.doubts import bound
from fastllmload.settings import RunSettings, Secret, Target
from fastllmload.simulator.process import SimulatorProcess

LEVELS, PREPARATION = "levels", "preparation"
SETTLE_S = 5.0  # idle between two levels (spec/procedures 0.10)
KEPT = 2_000  # characters of a hook's output
FAILURES = 0.5  # of the last 100 requests: cascading failure (IETF 7.4)
REFUSED, STOPPED = 3, 4  # exit codes of a run


@dataclass
class Experiment:
    """A context manager: the simulated engine, if that is the target, lives as long as the experiment.

    *base*: settings that all levels share. *commands*: hook name → shell command, each limited to *hook_s*.
    *settle_s*: pause between levels.
    """

    folder: Path
    base: RunSettings
    secret: Secret | None
    journal: Journal[ExperimentDocument]
    console: Console
    commands: dict[str, str] = field(default_factory=dict)
    operator: bool = False
    settle_s: float = SETTLE_S
    warm: bool = True  # False: no warm-up before a level
    cold: bool = False  # no warm-up because the first request must find a system that has just become ready
    steps: PreparationSteps = field(default_factory=PreparationSteps)
    levels: list[Level] = field(default_factory=list)
    last_preparation: Path = Path()
    hook_s: float = hooks.TIMEOUT_S
    _number: int = 0
    _recorded: set[int] = field(default_factory=set)  # levels whose entries were made by this start
    _prepared: int = 0
    _ran: bool = False
    _engine: SimulatorProcess | None = None
    _no_token_counts: set[Target] = field(default_factory=set)  # targets whose events do not state their tokens

    def __enter__(self) -> Self:
        if self.base.hosts.address is not None:
            if self.base.hosts.collect == "summary":
                raise InputError(
                    "option-not-applicable",
                    "--collect summary: load levels are judged by their events; use --collect rows",
                )
            require_ray()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.journal.save()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._engine is not None:
            self._engine.stop()

    @property
    def quick(self) -> bool:
        """Durations and counts are scaled down."""
        return self.journal.document.quick

    @property
    def simulated(self) -> bool:
        """The target is our own simulated engine."""
        return needs_engine(self.base.target)

    # -- levels -------------------------------------------------------------------------------------------------------

    def level(
        self, name: str, settings: RunSettings, may_die: bool = False, before: Callable[[], None] | None = None
    ) -> Level:
        """The finished level *name*: measured now, or found in the folder. *may_die*: a target that does not answer after
        the level is a finding, and the caller recovers it. *before*: called first if the level is measured now.

        Levels are numbered in the order in which they are asked for. Interrupted if the user stopped it, TargetError if
        the target does not answer any more; what was measured stays in the level's folder.
        """
        number = self._number
        self._number += 1
        folder = self.folder / LEVELS / f"{number:03d}-{slug(name)}"
        mark = digest(settings, self.steps.state)
        level = self._found(number, name, settings, folder, mark)
        if level is None:
            if self._ran and self.settle_s > 0:
                time.sleep(self.settle_s)
            if before is not None:
                before()
            self.steps.do()
            seconds = settings.load.duration
            self.console.begin(number, name, seconds)
            document = self.run(folder, settings, mark, may_die)
            level = Level(number, name, settings, folder, document)
            self._ran = True
        else:
            self.console.begin(number, name, None)
        self.console.ended(level)
        self.levels.append(level)
        self.record(level)
        if level.cascading:
            self.journal.warn("cascading-failures", cascaded(level))
        if level.document.control is not None and level.document.control.profiled:
            self.journal.warn("profiled", "the servers were profiled (--between profile), which slows them down")
        least = bound(level.document.metric("ttft"), "p99")
        if least is not None:
            self.journal.warn(
                "requests-unfinished",
                f"level {level.number} ({level.name}): requests did not end, so its P99 of TTFT is {least} ms; its "
                "latencies in tables are lower bounds",
            )
        return level

    def set_target(self, settings: RunSettings) -> None:
        """Measure the following levels on the target of *settings*; a simulated engine of another kind is restarted."""
        if settings.target.simulate != self.base.target.simulate and self._engine is not None:
            self._engine.stop()
            self._engine = None
        self.base = settings

    @property
    def next_level(self) -> int:
        """Number of the level that is being prepared."""
        return self._number - 1

    def was_started(self, name: str) -> bool:
        """Whether any request of the level asked for last, *name*, was sent."""
        return (self.folder / LEVELS / f"{self._number - 1:03d}-{slug(name)}").exists()

    def entry(self, level: Level) -> LevelEntry:
        """The level's entry in procedure.json; empty where this start has not made one yet."""
        found = self.journal.document.level(level.number) if level.number in self._recorded else None
        return found or LevelEntry()

    def earlier(self, level: Level) -> LevelEntry:
        """The entry that an earlier start made for a level that was found finished; empty if it made none."""
        if not level.resumed:
            return LevelEntry()
        return next((entry for entry in self.journal.before if entry.folder == level.folder_name), LevelEntry())

    def record(self, level: Level, **facts: Any) -> None:
        """Write the level's entry in procedure.json, with *facts* added (criteria, verdict …)."""
        entries = self.journal.document.levels
        if level.number not in self._recorded:
            entries = (*(one for one in entries if one.number != level.number), self._new_entry(level))
            self._recorded.add(level.number)
        self.journal.put(
            levels=tuple(
                msgspec.structs.replace(one, **facts) if one.number == level.number else one for one in entries
            )
        )

    def _new_entry(self, level: Level) -> LevelEntry:
        return LevelEntry(
            number=level.number,
            name=level.name,
            folder=level.folder_name,
            phase="measure",
            state=self.steps.state,
            loop="closed" if level.settings.load.concurrency is not None else "open",
            load=level.load if math.isfinite(level.load) else str(level.load),
            certificate=level.verdict,
            completed=level.document.completed,
            failed=level.document.failed,
            req_s=level.figure("req_s"),
            output_tok_s=level.figure("output_tok_s"),
            ttft_p50_ms=level.figure("ttft", "p50"),
            ttft_p99_ms=level.figure("ttft", "p99"),
            tpot_p99_ms=level.figure("tpot", "p99"),
        )

    def quarantine_unused_levels(self) -> None:
        """Rename the folders of levels that an earlier start measured and this one did not ask for, because a repeated
        level led to other levels. Warn about each and remove its entry.
        """
        self.journal.put(levels=tuple(one for one in self.journal.document.levels if one.number in self._recorded))
        asked = {level.folder.name for level in self.levels}
        for folder in runs_below(self.folder / LEVELS):
            if folder.name not in asked:
                moved = quarantine(folder)
                self.journal.warn(
                    "level-unused",
                    f"{LEVELS}/{folder.name} was measured by an earlier start, but the test did not need it "
                    f"this time: no figure includes it, and it is kept as {moved}",
                )

    def _found(self, number: int, name: str, settings: RunSettings, folder: Path, mark: str) -> Level | None:
        if not folder.exists():
            return None
        document, problem = finished(folder)
        if document is None:
            self._discard(number, name, folder, problem)
            return None
        if document.metadata.get("level") != mark:
            raise InputError(
                "experiment-changed",
                f"{folder} was measured with other settings than this procedure asks for now; start the procedure as "
                "it was, or name a new folder with --output",
            )
        return Level(number, name, settings, folder, document, resumed=True)

    def _discard(self, number: int, name: str, folder: Path, problem: str | None) -> None:
        """Rename the folder of a level that cannot be used, so that it is measured again. *problem*: how it is damaged;
        None for one that was cut off.
        """
        where = f"the old run is kept as {quarantine(folder)}"
        if problem is None:
            self.console.say(f"level {number} ({name}) was cut off and is measured again; {where}")
            return
        warning = f"level {number} ({name}) is damaged and is measured again: {problem}; {where}"
        self.journal.warn("level-damaged", warning)
        self.console.warn("level-damaged", warning)

    def run(self, folder: Path, settings: RunSettings, mark: str = "", may_die: bool = False) -> RunDocument:
        """Measure one run into *folder*. Returns its run.json. A cut-off run in that folder is renamed first."""
        quarantine(folder)
        metadata = (*settings.output.metadata, *((("level", mark),) if mark else ()))
        asked = changed(
            settings,
            output={"directory": str(folder), "metadata": metadata, "ui": "none", "strict": False, "save_plan": None},
        )
        if asked.load.stop_on_failures is None:
            asked = changed(asked, load={"stop_on_failures": FAILURES})
        if asked.target in self._no_token_counts and asked.workload.continuous_usage == "auto":
            asked = changed(asked, workload={"continuous_usage": "off"})
        view = self.console.view()
        try:
            code = execute(asked, self.secret, view, self.engine())
        except Interrupted:  # before its first request: nothing was measured
            raise Interrupted("interrupted", "") from None
        except TargetError as problem:
            raise self._with_history(settings, problem) from None
        if code == STOPPED:
            raise Interrupted(
                "interrupted", f"interrupted; {folder} holds what was measured of this level, start again to continue"
            )
        document = view.document
        if document.target.continuous_usage is False and document.target.token_ids is False:
            self._no_token_counts.add(asked.target)
        if (code == REFUSED or document.failed) and not may_die and self.is_unreachable():
            moved = quarantine(folder)
            raise TargetError(
                "target-lost", f"the target does not answer any more; {moved} holds what was measured of this level"
            )
        if document.status != DONE:
            why = "; ".join(document.incidents) or f"status {document.status}"
            raise TargetError("level-cut-short", f"{folder} could not be measured to its end: {why}")
        return document

    def _with_history(self, settings: RunSettings, problem: TargetError) -> TargetError:
        """*problem*, with the last level that the same target answered, if any: the error alone would suggest that the URL
        is wrong.
        """
        answered = [
            level for level in self.levels
            if level.document.completed and level.settings.target == settings.target
        ]  # fmt: skip
        if not answered:
            return problem
        last = answered[-1]
        return TargetError(
            "target-lost",
            f"the target answered level {last.number} ({last.name}), but not the checks before the next level: "
            f"{problem.message}",
        )

    # -- the system ---------------------------------------------------------------------------------------------------

    def engine(self) -> SimulatorProcess | None:
        """The simulated engine, started when it is first needed; None for a real target."""
        if self.simulated and self._engine is None:
            self._engine = SimulatorProcess(engine_options(self.base.target, self.base.classes)).start()
        return self._engine

    def switch(self, group: str, name: str) -> None:
        """Run hook *name* before the next level that is measured; the name is the state of *group*."""
        self.steps.want(PreparationStep(group, name, lambda: self.do_hook(name)))

    def prepare(self, group: str, name: str, action: Callable[[], object]) -> None:
        """Run *action* before the next level that is measured."""
        self.steps.want(PreparationStep(group, name, action))

    def preparation(self, name: str, settings: RunSettings) -> RunDocument:
        """Measure a run that prepares the system (warm-up, probes, filling a cache). It is kept, but in no result."""
        self._prepared += 1
        parent = self.folder / PREPARATION
        folder = parent / f"{self.journal.document.starts:02d}-{self._prepared:03d}-{slug(name)}"
        self.last_preparation = folder
        self.console.say(f"preparation: {name}")
        return self.run(folder, changed(settings, control={"between": ()}))

    def command(self, name: str, kept: int = hooks.TAIL) -> HookEntry:
        """Run the command of hook *name*, for *hook_s* at most; progress is printed."""
        return hooks.run_hook(name, self.commands[name], timeout_s=self.hook_s, kept=kept, say=self.console.say)

    def do_hook(self, name: str) -> float:
        """Run hook *name* now. Returns the seconds until the target answered after it."""
        began, began_s = utc(), time.monotonic()
        if self.simulated:
            done = self._restart(name)
        elif name in self.commands:
            self.console.say(f"hook {name}: {self.commands[name]}")
            done = self.command(name)
        else:
            done = hooks.ask_operator(name)
        ready_s = self.await_ready()
        output = (done.output or "")[-KEPT:]
        entry = msgspec.structs.replace(done, at_utc=began, ready_after_s=ready_s, output=output)
        self.journal.put(steps=(*self.journal.document.steps, entry))
        return time.monotonic() - began_s

    def _restart(self, name: str) -> HookEntry:
        began = time.monotonic()
        if self._engine is not None:
            self._engine.stop()
        fields = tuple((f"set.{field}", value) for field, value in hooks.SIMULATED[name].items())
        kept = tuple(pair for pair in self.base.target.simulate if pair[0] not in dict(fields))
        target = msgspec.structs.replace(self.base.target, simulate=(*kept, *fields))
        self._engine = SimulatorProcess(engine_options(target, self.base.classes)).start()
        return HookEntry(name=name, how="simulated engine", seconds=time.monotonic() - began, status=0, output="")

    def await_ready(self) -> float:
        """Wait until the target answers after a hook; seconds. TargetError if it does not within READY_S."""
        return await_answer(lambda: self._unreachable_reason(NOT_YET), self.console.say)

    def is_unreachable(self) -> bool:
        """Whether the target gives no HTTP response any more."""
        return self._unreachable_reason() is not None

    def _unreachable_reason(self, refused: tuple[int, ...] = ()) -> str | None:
        engine = self.engine()
        urls = (engine.url,) if engine is not None else self.base.target.urls
        return unreachable_reason(self.base, urls, self.secret, refused)


def cascaded(level: Level) -> str:
    """The warning for a level that was stopped early."""
    share = level.settings.load.stop_on_failures or FAILURES
    return (
        f"level {level.number} ({level.name}) was stopped early: more than {share:.0%} of the last 100 requests failed "
        "(cascading failure, IETF 7.4)"
    )


def recorded_settings(settings: RunSettings) -> dict[str, Any]:
    """The settings as plain values for procedure.json: without secrets, without output paths and without `strict`, which
    only sets the exit code.
    """
    redact = public_settings.redactor(settings, None)
    return public_settings.public_values(settings, redact, ("directory", "ui", "save_plan", "strict"))
