"""`report` and `export` from the command line: forms, files, pipes, and one sentence for what cannot be done."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from golden_file import GOLDEN
from refusals import code_of, codes, says
from synthetic_run import Shape, draw_requests, write_workers

from fastllmload.cli import main as entry
from fastllmload.cli.commands.export import FORMATS
from fastllmload.cli.commands.report import FORMS
from fastllmload.report.documents import forms


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A measured run whose target and output have names."""
    found = tmp_path / "run"
    write_workers(found, draw_requests(3, Shape(requests=30)))
    (found / "run.json").write_text((GOLDEN / "report" / "run.json").read_text())
    return found


def test_the_forms_are_those_of_the_report() -> None:
    assert FORMS == forms.FORMS


@pytest.mark.parametrize("form", [form for form in FORMS if form != "html"])
@pytest.mark.parametrize("redact", [False, True])
def test_every_form_to_a_file_and_to_standard_output(
    folder: Path, capsys: pytest.CaptureFixture[str], form: str, redact: bool
) -> None:
    options = ["--as", form, *(["--redact"] if redact else [])]
    assert entry.main(["report", str(folder), *options]) == 0
    said = capsys.readouterr()
    assert entry.main(["report", str(folder), *options, "-o", str(folder / "out")]) == 0
    assert (folder / "out").read_text() == said.out != ""
    assert codes(said.err.splitlines()) == ["checksums-missing"] and "run.json" in said.err
    assert not (redact and "gpu-17" in said.out)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", ["done", "running"])
def test_a_procedure_has_the_same_forms(
    folder: Path, capsys: pytest.CaptureFixture[str], form: str, status: str
) -> None:
    """One that was killed early has neither title nor section yet."""
    found = json.loads((GOLDEN / "report" / "procedure.json").read_text()) | {"status": status}
    early = {name: value for name, value in found.items() if status == "done" or name not in ("title", "section")}
    for number, level in enumerate(early["levels"]):
        level["number"] = number  # as a lab counts
        (folder.parent / "levels").mkdir(exist_ok=True)
        (folder.parent / level["folder"]).symlink_to(folder)
    (folder.parent / "procedure.json").write_text(json.dumps(early))
    assert entry.main(["report", str(folder.parent), "--as", form]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert form in ("blog", "asiai", "json") or ("INCOMPLETE" in said.out) == (status == "running")


def test_redacted_rows_name_no_target(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert entry.main(["export", str(folder), "--redact"]) == 0
    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert {row["url"] for row in rows} == {"target-0"}
    assert entry.main(["export", str(folder), "--format", "hlog", "--redact"]) == 0
    assert b"example.test" not in capfdbinary.readouterr().out


def test_parquet_goes_into_a_folder(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="without the extra `parquet` the export of a folder to Parquet is not tested")
    assert entry.main(["export", str(folder), "--format", "parquet", "-o", str(tmp_path / "tables")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "tables" / name) for name in ("requests.parquet", "events.parquet")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "RUN", "--as", "pdf"], ("value-invalid", "'pdf'")),
        (["report", "RUN", "--as", "html", "--redact"], ("redaction-unsupported", "use --as full")),
        (["report", "RUN", "-o", "RUN/no/out"], ("output-not-writable", "--output RUN/no/out ", "No such file")),
        (["report", "RUN/nowhere"], ("not-a-run-folder", "RUN/nowhere ", "not exist")),
        (["report", "RUN/run.json"], ("not-a-run-folder", "RUN/run.json ", "is a file")),
        (["report", "RUN/run.json/x"], ("not-a-run-folder", "RUN/run.json/x ", "not exist")),
        (["export", "RUN", "--format", "parquet"], ("option-missing", "-o")),
        (
            ["export", "RUN", "--format", "parquet", "-o", "RUN/run.json"],
            ("output-not-writable", "RUN/run.json ", "is a file", "--format parquet"),
        ),
        (["export", "RUN", "-o", "RUN/no/out"], ("output-not-writable", "RUN/no/out ", "No such file")),
        (["export", "RUN", "--format", "xlsx"], ("value-invalid", "'xlsx'")),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    given = [word.replace("RUN", str(folder)) for word in arguments]
    assert entry.main(given) == 2
    said = capsys.readouterr()
    assert says(said.err, *(word.replace("RUN", str(folder)) for word in words))
    assert said.err.startswith("fastllmload: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_help_says_every_form_and_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["report", "--help"]) == 0
    assert entry.main(["export", "--help"]) == 0
    said = capsys.readouterr().out
    assert [word for word in (*FORMS, *FORMATS) if word not in said] == []


def test_levels_that_differ_from_the_report_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is gone, one that the list leaves out; a report for publication does not name loads."""
    place = folder.parent / "procedure"
    found = json.loads((GOLDEN / "report" / "procedure.json").read_text()) | {"status": "done"}
    level = {**found["levels"][0], "number": 0, "folder": "levels/000-rate-5"}
    (place / "levels").mkdir(parents=True)
    shutil.copytree(folder, place / "levels" / "000-rate-5")
    (place / "procedure.json").write_text(json.dumps({**found, "levels": [level]}))
    assert entry.main(["report", str(place)]) == 0
    assert capsys.readouterr().err == ""
    (place / "levels" / "000-rate-5").rename(place / "levels" / "000-rate-9")
    for form in ("terminal", "minimum", "full"):
        assert entry.main(["report", str(place), "--as", form]) == 0
        gone, stray = sorted(capsys.readouterr().err.splitlines(), reverse=True)
        assert codes([gone, stray]) == ["levels-differ", "levels-differ"]
        assert "levels/000-rate-5" in gone and "levels/000-rate-9" in stray
    assert entry.main(["report", str(place), "--as", "markdown", "--redact"]) == 0
    printed = capsys.readouterr().err
    assert (
        code_of(printed) == "levels-differ"
        and "2 levels" in printed
        and "procedure.json" in printed
        and "rate-" not in printed
    )
