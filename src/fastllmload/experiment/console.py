"""Progress output of an experiment: a line when a level begins, one when it ends, and its messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.documents.run import RunDocument
from fastllmload.errors import coded
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.result import Level
from fastllmload.report.terminal.outlet import on_screen

if TYPE_CHECKING:
    from fastllmload.report.terminal.snapshot import Snapshot


class Console:
    """Prints plain, redacted lines. *quiet*: warnings only, and without *warnings* nothing."""

    def __init__(self, redact: Callable[[str], str], quiet: bool = False, warnings: bool = True) -> None:
        self._redact = redact
        self._quiet = quiet
        self._warnings = warnings

    def say(self, line: str) -> None:
        if not self._quiet:
            print(on_screen(self._redact(line)), flush=True)

    def warn(self, code: str, line: str) -> None:
        if self._warnings:
            print(on_screen(self._redact(f"warning: {coded(code, line)}")), file=sys.stderr, flush=True)

    def announce(self, book: Journal[ExperimentDocument], *lines: str, finished: str = "levels") -> None:
        """What an experiment is going to do. *finished*: what it does not measure again."""
        if book.document.manifest.simulated:
            self.say("SIMULATED ENGINE: the target is fastllmload's own simulator, not a server")
        for line in lines:
            self.say(line)
        if book.resumed:
            self.say(f"started again: finished {finished} are taken from the folder")

    def begin(self, number: int, name: str, seconds: float | None) -> None:
        length = "" if seconds is None else f", about {seconds:,.0f} s"
        self.say(f"level {number}: {name}{length}")

    def ended(self, level: Level) -> None:
        self.say("  " + level_line(level))

    def view(self) -> LevelView:
        return LevelView(self)


def level_line(level: Level) -> str:
    """`4,210 ok, 0 failed; 13.9 req/s, 2,180 output tok/s; TTFT P99 312 ms, TPOT P99 24.1 ms`."""

    def ms(name: str) -> str:
        value, open_end = level.figure(name, "p99"), level.document.metric(name).at_least("p99") is not None
        return "n/a" if value is None else f"{'>=' * open_end}{value:,.4g} ms"

    again = " (found finished)" if level.resumed else ""
    limited = "" if level.verdict in ("valid", None) else f"; client {level.verdict}"
    return (
        f"{level.completed:,} ok, {level.failed:,} failed; "
        f"{level.req_s:,.4g} req/s, "
        f"{level.output_tok_s:,.5g} output tok/s; TTFT P99 {ms('ttft')}, TPOT P99 {ms('tpot')}{limited}{again}"
    )


class LevelView:
    """The view of one level's run. It prints the run's messages only."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.document = RunDocument()

    def banner(self, lines: Sequence[str]) -> None:
        """Not printed: target and plan are the same for all levels."""

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        """Not printed: the experiment prints each level."""

    def due(self, t: float) -> bool:
        return False

    def update(self, snapshot: Snapshot) -> None:
        """An experiment has no live view: its output is a log."""

    def message(self, text: str) -> None:
        self._console.say(f"  {text}")

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        self.document = document

    def close(self) -> None:
        """There is nothing to close."""
