"""Where a procedure works: its folder, its target, and the levels that it has measured.

A procedure is ordinary code that asks for levels one after the other. A level that is finished in the folder is taken
from there, so a procedure that was killed is simply started again: the same code asks for the same levels in the same
order, gets the finished ones at once, and goes on where it stopped. Nothing else has to be remembered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastllmload.engine import public_settings
from fastllmload.engine.run import execute
from fastllmload.engine.simulated_target import options_of
from fastllmload.errors import InputError, Interrupted, TargetError
from fastllmload.experiment.console import Console
from fastllmload.experiment.journal import Journal, utc
from fastllmload.experiment.level.folder import finished, put_aside, slug
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import changed, digest
from fastllmload.experiment.preparation import hooks
from fastllmload.experiment.preparation.readiness import NOT_YET, await_answer, silence
from fastllmload.experiment.preparation.steps import PreparationStep, PreparationSteps
from fastllmload.records.folder_lock import runs_below
from fastllmload.records.run import DONE
from fastllmload.settings import RunSettings, Secret, Target
from fastllmload.simulator.process import SimulatorProcess

LEVELS, PREPARATION = "levels", "preparation"
SETTLE_S = 5.0  # idle between two levels (procedures.md 0.10)
KEPT = 2_000  # characters of a hook's output
FAILURES = 0.5  # of the last 100 requests: cascading failure (IETF 7.4)
REFUSED, STOPPED = 3, 4  # exit codes of a run


@dataclass
class Experiment:
    """A context manager: the simulated engine, if that is the target, lives as long as the lab.

    *base*: settings that all levels share. *commands*: hook name → shell command, each of which may take *hook_s*.
    *settle_s*: pause between levels.
    """

    folder: Path
    base: RunSettings
    secret: Secret | None
    journal: Journal
    console: Console
    commands: dict[str, str] = field(default_factory=dict)
    operator: bool = False
    settle_s: float = SETTLE_S
    warm: bool = True  # False: no warm-up is done before a level
    cold: bool = False  # because the first request shall find a system that has just become ready
    steps: PreparationSteps = field(default_factory=PreparationSteps)
    levels: list[Level] = field(default_factory=list)
    last_preparation: Path = Path()
    hook_s: float = hooks.TIMEOUT_S
    _number: int = 0
    _recorded: set[int] = field(default_factory=set)  # levels whose entries are of this start
    _prepared: int = 0
    _ran: bool = False
    _engine: SimulatorProcess | None = None
    _silent: set[Target] = field(default_factory=set)  # whose events do not say what they carry: asked once

    def __enter__(self) -> Self:
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
        return bool(self.journal.document["quick"])

    @property
    def simulated(self) -> bool:
        """The target is our own simulated engine."""
        return not self.base.target.urls and self.base.target.unix_socket is None

    # -- levels -------------------------------------------------------------------------------------------------------

    def level(
        self, name: str, settings: RunSettings, may_die: bool = False, before: Callable[[], None] | None = None
    ) -> Level:
        """The finished level *name*: measured now, or found in the folder. *may_die*: a target that does not answer any
        more behind it is what the level found, and the caller brings it back. *before*: done first where it is measured.

        Levels are numbered in the order in which they are asked for. Interrupted when the user stopped it, TargetError
        when the target was gone; what was measured stays in the level's folder.
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
            self.journal.note("warnings", cascaded(level))
        return level

    def aim(self, settings: RunSettings) -> None:
        """Levels to come are for the target of *settings*; a simulated engine of another kind is started anew."""
        if settings.target.simulate != self.base.target.simulate and self._engine is not None:
            self._engine.stop()
            self._engine = None
        self.base = settings

    @property
    def next_level(self) -> int:
        """Number of the level that is being prepared."""
        return self._number - 1

    def began(self, name: str) -> bool:
        """Whether anything of the level asked for last, *name*, was sent."""
        return (self.folder / LEVELS / f"{self._number - 1:03d}-{slug(name)}").exists()

    def entry(self, level: Level) -> dict[str, Any]:
        """The level's entry in procedure.json; empty where this start has not made one yet."""
        if level.number not in self._recorded:
            return {}
        entries: list[dict[str, Any]] = self.journal.document["levels"]
        return next((entry for entry in entries if entry.get("number") == level.number), {})

    def earlier(self, level: Level) -> dict[str, Any]:
        """What an earlier start recorded of a level that was found finished; empty where it recorded nothing."""
        if not level.resumed:
            return {}
        return next((entry for entry in self.journal.before if entry.get("folder") == level.folder_name), {})

    def record(self, level: Level, **facts: Any) -> None:
        """The level's entry in procedure.json; *facts* are added to it (criteria, verdict …)."""
        entry = self.entry(level)
        if not entry:
            entries = [one for one in self.journal.document["levels"] if one.get("number") != level.number]
            entry = {
                "number": level.number,
                "name": level.name,
                "folder": level.folder_name,
                "phase": "measure",
                "state": list(self.steps.state),
                "loop": "closed" if level.settings.load.concurrency is not None else "open",
                "load": level.load if math.isfinite(level.load) else str(level.load),
                "certificate": (level.document.get("certificate") or {}).get("verdict"),
                "completed": level.document.get("completed"),
                "failed": level.document.get("failed"),
                "req_s": level.figure("req_s"),
                "output_tok_s": level.figure("output_tok_s"),
                "ttft_p50_ms": level.figure("ttft", "p50"),
                "ttft_p99_ms": level.figure("ttft", "p99"),
                "tpot_p99_ms": level.figure("tpot", "p99"),
            }
            self.journal.document["levels"] = [*entries, entry]
            self._recorded.add(level.number)
        entry.update(facts)
        self.journal.save()

    def put_leftovers_aside(self) -> None:
        """Levels of an earlier start that this one did not ask for, because a level measured anew led it elsewhere: they
        are kept, marked, and told. Their entries go.
        """
        entries = self.journal.document["levels"]
        self.journal.document["levels"] = [one for one in entries if one.get("number") in self._recorded]
        asked = {level.folder.name for level in self.levels}
        for folder in runs_below(self.folder / LEVELS):
            if folder.name not in asked:
                kept = put_aside(folder)
                self.journal.note(
                    "warnings", f"{LEVELS}/{folder.name} was measured by an earlier start, and the test did not come to it "
                    f"this time: it is in no figure, and kept as {kept}"
                )  # fmt: skip

    def _found(self, number: int, name: str, settings: RunSettings, folder: Path, mark: str) -> Level | None:
        if not folder.exists():
            return None
        document, problem = finished(folder)
        if document is None:
            self._set_aside(number, name, folder, problem)
            return None
        if (document.get("metadata") or {}).get("level") != mark:
            raise InputError(
                f"{folder} was measured with other settings than this procedure asks for now; start the procedure as "
                "it was, or name a new folder with --output"
            )
        return Level(number, name, settings, folder, document, resumed=True)

    def _set_aside(self, number: int, name: str, folder: Path, problem: str | None) -> None:
        """A level that cannot be taken is measured again. *problem*: what is wrong with one that is damaged."""
        kept = put_aside(folder)
        where = f"what there is of it is kept as {kept}"
        if problem is None:
            self.console.say(f"level {number} ({name}) was cut off and is measured again; {where}")
            return
        told = f"level {number} ({name}) is damaged and is measured again: {problem}; {where}"
        self.journal.note("warnings", told)
        self.console.warn(told)

    def run(self, folder: Path, settings: RunSettings, mark: str = "", may_die: bool = False) -> dict[str, Any]:
        """One run into *folder*, which may hold a run that was cut off: that one is moved aside. Its run.json."""
        put_aside(folder)
        metadata = (*settings.output.metadata, *((("level", mark),) if mark else ()))
        asked = changed(
            settings,
            output={"directory": str(folder), "metadata": metadata, "ui": "none", "strict": False, "save_plan": None},
        )
        if asked.load.stop_on_failures is None:
            asked = changed(asked, load={"stop_on_failures": FAILURES})
        if asked.target in self._silent and asked.workload.continuous_usage == "auto":
            asked = changed(asked, workload={"continuous_usage": "off"})
        view = self.console.view()
        try:
            code = execute(asked, self.secret, view, self.engine())
        except Interrupted:  # before its first request: there is nothing of it
            raise Interrupted from None
        except TargetError as problem:
            raise self._refused(settings, problem) from None
        if code == STOPPED:
            raise Interrupted(f"interrupted; {folder} holds what was measured of this level, start again to go on")
        document = view.document
        told = document.get("target") or {}
        if told.get("continuous_usage") is False and told.get("token_ids") is False:
            self._silent.add(asked.target)
        if (code == REFUSED or document.get("failed")) and not may_die and self.gone():
            kept = put_aside(folder)
            raise TargetError(f"the target does not answer any more; {kept} holds what was measured of this level")
        if document.get("status") != DONE:
            why = "; ".join(document.get("incidents", ())) or f"status {document.get('status')}"
            raise TargetError(f"{folder} could not be measured to its end: {why}")
        return document

    def _refused(self, settings: RunSettings, problem: TargetError) -> TargetError:
        """*problem*, told as what it is where the same target answered a level before: its last words alone would send
        the reader to look for a wrong URL.
        """
        answered = [
            level for level in self.levels
            if level.document.get("completed") and level.settings.target == settings.target
        ]  # fmt: skip
        if not answered:
            return problem
        last = answered[-1]
        return TargetError(
            f"the target answered level {last.number} ({last.name}), but not what is asked before the next: {problem}"
        )

    # -- the system ---------------------------------------------------------------------------------------------------

    def engine(self) -> SimulatorProcess | None:
        """The simulated engine, started when it is first needed; None for a real target."""
        if self.simulated and self._engine is None:
            self._engine = SimulatorProcess(options_of(self.base.target.simulate)).start()
        return self._engine

    def switch(self, group: str, name: str) -> None:
        """Have hook *name* done before the next level that really runs; it says the state of *group*."""
        self.steps.want(PreparationStep(group, name, lambda: self.do_hook(name)))

    def prepare(self, group: str, name: str, action: Callable[[], None]) -> None:
        """Have *action* done before the next level that really runs."""
        self.steps.want(PreparationStep(group, name, action))

    def preparation(self, name: str, settings: RunSettings) -> dict[str, Any]:
        """A run that prepares the system (warm-up, probes, filling a cache); kept, never part of a result."""
        self._prepared += 1
        parent = self.folder / PREPARATION
        folder = parent / f"{self.journal.document['starts']:02d}-{self._prepared:03d}-{slug(name)}"
        self.last_preparation = folder
        self.console.say(f"preparation: {name}")
        return self.run(folder, settings)

    def command(self, name: str, kept: int = hooks.TAIL) -> hooks.HookResult:
        """What the command of hook *name* said and did; its time is bounded, and told while it passes."""
        return hooks.run_hook(name, self.commands[name], timeout_s=self.hook_s, kept=kept, say=self.console.say)

    def do_hook(self, name: str) -> float:
        """Have it done at once; seconds until the target answered behind it."""
        began, began_s = utc(), time.monotonic()
        if self.simulated:
            done = self._restart(name)
        elif name in self.commands:
            self.console.say(f"hook {name}: {self.commands[name]}")
            done = self.command(name)
        else:
            done = hooks.ask_operator(name)
        ready_s = self.await_ready()
        self.journal.document["steps"].append(
            {"name": name, "at_utc": began, "how": done.how, "seconds": done.seconds, "status": done.status,
             "ready_after_s": ready_s, "output": done.output[-KEPT:]}
        )  # fmt: skip
        self.journal.save()
        return time.monotonic() - began_s

    def _restart(self, name: str) -> hooks.HookResult:
        began = time.monotonic()
        if self._engine is not None:
            self._engine.stop()
        fields = tuple((f"set.{field}", value) for field, value in hooks.SIMULATED[name].items())
        kept = tuple(pair for pair in self.base.target.simulate if pair[0] not in dict(fields))
        self._engine = SimulatorProcess(options_of((*kept, *fields))).start()
        return hooks.HookResult(name, "simulated engine", time.monotonic() - began, 0, "")

    def await_ready(self) -> float:
        """Seconds until the target answers behind a hook. TargetError when it never does."""
        return await_answer(lambda: self._silence(NOT_YET), self.console.say)

    def gone(self) -> bool:
        """Whether nothing speaks HTTP there any more."""
        return self._silence() is not None

    def _silence(self, refused: tuple[int, ...] = ()) -> str | None:
        engine = self.engine()
        urls = (engine.url,) if engine is not None else self.base.target.urls
        return silence(self.base, urls, self.secret, refused)


def cascaded(level: Level) -> str:
    """Of a level that was stopped early."""
    share = level.settings.load.stop_on_failures or FAILURES
    return (
        f"level {level.number} ({level.name}) was stopped early: more than {share:.0%} of the last 100 requests failed "
        "(cascading failure, IETF 7.4)"
    )


def told(settings: RunSettings) -> dict[str, Any]:
    """What the procedure was asked, as plain values, without secrets, without where its files go, and without what the
    exit code is to say of the client.
    """
    found = public_settings.told(settings, public_settings.redactor(settings, None))
    for name in ("directory", "ui", "save_plan", "strict"):
        found["output"].pop(name)
    return found
