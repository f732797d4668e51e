"""Report files are written again from a folder; a failure is one sentence and does not affect other files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import codes, says
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.cli import main as entry
from fastllmload.errors import RunFolderError
from fastllmload.records.run import Run, load
from fastllmload.report.documents import forms as files
from fastllmload.report.documents.subject import document_of


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    write_workers(folder, draw_requests(5, Shape(requests=40)), workers=2)
    write_manifest(folder, "running", [duration_phase(ORIGIN_NS, 5.0)])
    return folder


def measured(folder: Path) -> Run:
    return load(folder).with_document(document_of(folder)[1])


def test_a_killed_run_gets_its_report_files_when_it_is_reported(killed: Path) -> None:
    assert not (killed / "report.html").exists()
    assert entry.main(["report", str(killed)]) == 0
    assert "INCOMPLETE" in (killed / "report.html").read_text(encoding="utf-8")
    assert (killed / "report.md").exists()


def test_a_damaged_file_affects_only_its_chart(killed: Path) -> None:
    run = measured(killed)
    for name in ("stalls.npy", "histograms.npy"):
        (killed / name).write_bytes(b"not an array")
    assert files.write_again(lambda: run) == []
    page = (killed / "report.html").read_text(encoding="utf-8")
    assert page.count("stalls.npy cannot be read") == 1
    assert page.count("histograms.npy cannot be read") == 3
    (killed / "stalls.npy").unlink()
    (killed / "worker_stalls.npy").write_bytes(b"not an array")
    assert files.write_again(lambda: run) == []
    page = (killed / "report.html").read_text(encoding="utf-8")
    assert page.count("worker_stalls.npy cannot be read") == 1


def test_a_run_is_reported_and_exported_without_its_samples(killed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Readable files are used; an unreadable one is named in a sentence."""
    (killed / "samples.npy").write_bytes(b"not an array")
    assert entry.main(["report", str(killed)]) == 0
    printed = capfd.readouterr()
    assert says(printed.err, "run-file-damaged", "samples.npy", "the rest of")
    assert "ok," in printed.out and (killed / "report.html").exists()
    assert entry.main(["export", str(killed), "--format", "jsonl"]) == 0
    printed = capfd.readouterr()
    assert len(printed.out.splitlines()) == 40 and "samples.npy" not in printed.err  # nothing of it is in an export
    assert [text.partition(" ")[0] for text in load(killed).damage] == [str(killed / "samples.npy")]


def test_a_failed_report_does_not_affect_the_others(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        raise RunFolderError("run-file-damaged", "x.npy is truncated")

    monkeypatch.setitem(files.WRITERS, "report.html", damaged)
    run = measured(killed)
    problems = files.write_again(lambda: run)
    (problem,) = problems
    assert says(problem, "run-file-damaged", "report.html", "x.npy")
    assert (killed / "report.md").exists()


def test_unreadable_rows_are_one_sentence(killed: Path) -> None:
    document = document_of(killed)[1]
    rows = killed / "workers" / "0" / "requests.npy"
    rows.write_bytes(rows.read_bytes()[:20])
    problems = files.write_again(lambda: load(killed).with_document(document))
    assert says(problems[0], "run-file-damaged", "requests.npy")
    assert problems[-1].startswith("latency.hlog ")
    assert "DAMAGED FILES" in (killed / "report.html").read_text()


def test_a_read_only_folder_is_not_changed(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(killed)
    monkeypatch.setattr(os, "access", lambda *_: False)
    (problem,) = files.write_again(lambda: run)
    assert says(problem, "report-not-written", "report")
    assert not (killed / "report.html").exists()


def test_a_full_disk_is_reported_for_each_file(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(killed)

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    problems = files.write_reports(run)
    assert set(codes(problems)) == {"report-not-written"}
    assert problems[0].startswith("report.html ") and "No space left" in problems[0]
