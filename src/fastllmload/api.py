"""The Python API: `run` does one run, `load` reads a run folder. Metrics and objectives are functions of their results."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastllmload.records.run import Run
    from fastllmload.report.terminal.snapshot import Snapshot
    from fastllmload.report.terminal.view import Ui


def run(**options: object) -> Run:
    """Do one run, wait until it ends and return it, as `load` does.

    *options* are those of the command line, with `_` for `-`: `run(url="http://host:8000/v1", rate=20, duration=300,
    goodput={"ttft": 200, "tpot": 50})`. Times are seconds or strings with a unit ("5m"), repeatable options take a list,
    labels and objectives a dict, switches True or False. Nothing is printed unless *ui* is given ("plain", "live").
    Without a target, the simulated engine is used. May be called inside a running event loop (a notebook).

    InputError: a wrong option or a limit of this host; TargetError: the target could not be reached; Interrupted: Ctrl-C
    before the first request. A run that was interrupted later is returned with `incomplete` set.
    """
    from fastllmload.cli.options.raw import from_table
    from fastllmload.cli.options.resolve import resolve_merged
    from fastllmload.engine.run import execute
    from fastllmload.redact import Redactor

    given = {name: value for name, value in options.items() if value is not None}
    redact = Redactor([])
    settings, secret = resolve_merged(from_table({"ui": "none", **given}, "", ""), os.environ, redact)
    view = FolderRecorder(_view(settings.output.ui, redact))
    execute(settings, secret, view)
    return load(view.folder)


def load(directory: str | os.PathLike[str]) -> Run:
    """Read the run in folder *directory*. `rows` (one per request) and `events` (one per token event) are mapped, not
    copied.

    `metrics`, `certificate` and the rest of run.json are in `manifest`; for a run that was killed they are computed now.
    RunFolderError when the folder is not a run folder, is truncated, or has another schema version.
    """
    from dataclasses import replace

    from fastllmload.records import run as folder
    from fastllmload.report.documents.subject import document_of

    found = folder.load(directory)
    if found.manifest.get("metrics") is None:
        return replace(found, manifest=document_of(found.directory))
    return found


def _view(mode: str, redact: Any) -> Ui:
    from fastllmload.report.terminal.view import make_ui

    return make_ui(mode, io.StringIO() if mode == "none" else sys.stdout, redact)


class FolderRecorder:
    """A view that forwards every call to *view* and records the folder of the run."""

    def __init__(self, view: Ui) -> None:
        self._view = view
        self.folder = ""

    def banner(self, lines: Sequence[str]) -> None:
        self._view.banner(lines)

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        self._view.phase(name, planned, seconds)

    def due(self, t: float) -> bool:
        return self._view.due(t)

    def update(self, snapshot: Snapshot) -> None:
        self._view.update(snapshot)

    def message(self, text: str) -> None:
        self._view.message(text)

    def finish(self, document: Mapping[str, Any], folder: str | None = None) -> None:
        assert folder is not None  # the engine always passes it
        self.folder = folder
        self._view.finish(document, folder)

    def close(self) -> None:
        self._view.close()
