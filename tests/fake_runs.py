"""A stand-in for `engine.run.execute`: writes a finished run.json at once, so that labs are tested without a clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typed_documents import typed

from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.experiment import experiment as module
from fastllmload.experiment.console import Console
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.journal import Journal
from fastllmload.settings import Load, Output, RunSettings, Target

DONE = {
    "schema_version": 1,
    "status": "done",
    "completed": 10,
    "failed": 0,
    "metrics": {"output_tok_s": {"value": 100.0}},
    "phases": [],
}


@dataclass
class FakeRuns:
    """Called in place of `execute`; *asked* are the settings of each call, *answer* what run.json says."""

    asked: list[RunSettings] = field(default_factory=list)
    answer: Callable[[RunSettings], dict[str, Any]] = lambda settings: {}
    code: int = 0

    def __call__(self, settings: RunSettings, secret: object, view: Any, simulator: object) -> int:
        self.asked.append(settings)
        folder = Path(str(settings.output.directory))
        folder.mkdir(parents=True)
        document = {**DONE, "metadata": dict(settings.output.metadata), **self.answer(settings)}
        (folder / "run.json").write_text(json.dumps(document))
        view.finish(typed(document), str(folder))
        return self.code

    @property
    def folders(self) -> list[str]:
        """Names of the folders that were written, in order."""
        return [Path(str(settings.output.directory)).name for settings in self.asked]


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    """Runs of every lab from now on."""
    runs = FakeRuns()
    monkeypatch.setattr(module, "execute", runs)
    return runs


def made(folder: Path, **fields: Any) -> Experiment:
    """A lab against a server that is never asked anything."""
    settings = RunSettings(
        target=Target(urls=("http://127.0.0.1:1",)), load=Load(rate=1.0, duration=1.0), output=Output(ui="none")
    )
    book = Journal(folder, ProcedureDocument, "ttft", {"test": {}, "quick": False, "run": {}})
    return Experiment(folder, settings, None, book, Console(str, quiet=True), settle_s=0.0, **fields)
