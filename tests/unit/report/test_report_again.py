"""A run is reported again from its folder; a killed run is measured first and marked as incomplete."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from example_runs import run_of
from summary_text import summary_lines
from typed_documents import typed

from fastllmload.errors import RunFolderError
from fastllmload.records.run import read_document
from fastllmload.report.documents import subject

GOLDEN = Path(__file__).parents[2] / "golden" / "terminal"


@pytest.fixture
def measuring(monkeypatch):
    """Fakes for reading, measuring and judging, which record their calls."""
    whole = typed(json.loads((GOLDEN / "run.json").read_text()))
    figures = {"metrics": whole.metrics, "completed": 3, "failed": 0}
    asked = []
    core, judge = types.ModuleType("core"), types.ModuleType("judge")
    core.measure = lambda run: asked.append(run.directory) or run.changed(**figures).document
    judge.judged = lambda run: run.changed(certificate=whole.certificate).document
    summary = types.ModuleType("summary")
    summary.added = lambda run: run.document
    monkeypatch.setitem(sys.modules, "fastllmload.telemetry.summary", summary)
    monkeypatch.setitem(sys.modules, "fastllmload.metrics.run.measure", core)
    monkeypatch.setitem(sys.modules, "fastllmload.certificate.judge", judge)

    undamaged = run_of([])
    monkeypatch.setattr(
        subject, "load", lambda folder: replace(undamaged, directory=folder, document=read_document(folder))
    )
    return asked


def written(folder, document):
    (folder / "run.json").write_text(json.dumps(document))
    return "\n".join(line.text for line in summary_lines(subject.document_of(folder)[1]))


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
