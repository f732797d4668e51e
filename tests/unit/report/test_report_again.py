"""A run is reported again from its folder; a killed run is measured first and marked as incomplete."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest
from summary_text import summary_lines
from typed_documents import typed

from fastllmload.documents.run import RunDocument
from fastllmload.errors import RunFolderError
from fastllmload.report.documents import subject

GOLDEN = Path(__file__).parents[2] / "golden" / "terminal"


@pytest.fixture
def measuring(monkeypatch):
    """Fakes for reading, measuring and judging, which record their calls."""
    whole = json.loads((GOLDEN / "run.json").read_text())
    asked = []
    core, judge = types.ModuleType("core"), types.ModuleType("judge")
    core.measure = lambda run: asked.append(run) or {"metrics": whole["metrics"], "completed": 3, "failed": 0}
    judge.judged = lambda run: {"certificate": whole["certificate"]}
    summary = types.ModuleType("summary")
    summary.added = lambda run, measured: {"telemetry": None}
    monkeypatch.setitem(sys.modules, "fastllmload.telemetry.summary", summary)
    monkeypatch.setitem(sys.modules, "fastllmload.metrics.run.measure", core)
    monkeypatch.setitem(sys.modules, "fastllmload.certificate.judge", judge)

    class Whole(type(Path())):
        """Replaces the run of an undamaged folder."""

        document = RunDocument()
        damage_of = staticmethod(lambda *names: None)
        intact = property(lambda self: self)

    monkeypatch.setattr(subject, "load", Whole)
    return asked


def written(folder, document):
    (folder / "run.json").write_text(json.dumps(document))
    return "\n".join(line.text for line in summary_lines(typed(subject.document_of(folder))))


def test_a_killed_run_is_measured_now(measuring, tmp_path):
    whole = json.loads((GOLDEN / "run.json").read_text())
    for name in ("metrics", "certificate", "completed", "failed"):
        del whole[name]
    shown = written(tmp_path, whole | {"status": "running"})
    assert measuring == [tmp_path]
    assert "SUSPECT, INCOMPLETE (running)" in shown
    assert "3 ok, 0 failed" in shown
    assert "48.31" in shown


@pytest.mark.parametrize("status", ["done", "interrupted", "partial"])
def test_a_run_that_was_measured_is_not_measured_again(measuring, tmp_path, status):
    whole = json.loads((GOLDEN / "run.json").read_text())
    shown = written(tmp_path, whole | {"status": status})
    assert measuring == []
    assert ("INCOMPLETE" in shown) == (status != "done")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"schema_version": 99}'])
def test_a_folder_without_a_run_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError):
        subject.document_of(tmp_path)
