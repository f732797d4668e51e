"""The report of an unfinished procedure: its levels, its deviations, and how to continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden_file import GOLDEN
from refusals import code_of
from typed_documents import typed_procedure

from fastllmload.cli import main as entry
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.experiment.incomplete import how_to_continue, with_final_remarks, with_levels
from fastllmload.experiment.report.procedure import lines, page
from fastllmload.report.html.page import render
from fastllmload.report.render.markdown import render_page

COMMAND = ["fastllmload", "procedure", "capacity", "--quick", "--header", "a b", "-o", "kept"]
SHORT = "the mean e2e latency of 1.2 s is more than a tenth of the level's 6 s: too short for the completion criterion"


def document(**entries: Any) -> ProcedureDocument:
    return typed_procedure(killed(**entries))


def killed(**entries: Any) -> dict[str, Any]:
    """As the last save before a SIGKILL leaves it: no tables, no sentences, no title."""
    level = {"load": 4.0, "output_tok_s": 379.25, "req_s": 18.5, "ttft_p99_ms": 24.5, "certificate": "valid"}
    levels = [
        {**level, "number": number, "name": f"{slots} slots", "folder": f"levels/{number:03d}-{slots}-slots",
         "criteria": {"warnings": [f"{SHORT}; take 300 s or more"]}}
        for number, slots in enumerate((4, 8))
    ]  # fmt: skip
    return {
        "schema_version": 1, "procedure": "capacity", "status": "running", "quick": True, "section": "5.5",
        "command": COMMAND, "started_utc": "2026-01-01T00:00:00Z", "levels": levels, "findings": {}, "tables": [],
        "plots": [], "deviations": ["the warm-up was left out (IETF 4.5.1)"], "warnings": [], "parameters": {},
        "manifest": {"declarations": {}, "simulated": True, "urls": []}, **entries,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = killed()
    run = (GOLDEN / "report" / "run.json").read_text()
    for level in found["levels"]:
        (tmp_path / level["folder"]).mkdir(parents=True)
        (tmp_path / level["folder"] / "run.json").write_text(run)
    (tmp_path / "procedure.json").write_text(json.dumps(found))
    return tmp_path


@pytest.mark.parametrize("form", ["terminal", "full", "markdown", "html"])
def test_a_killed_procedure_shows_its_levels_and_how_to_go_on(
    folder: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    assert entry.main(["report", str(folder), "--as", form]) == 0
    said = capsys.readouterr().out
    assert "Concurrent Request Capacity" in said and "5.5 capacity" not in said
    assert "8 slots" in said and "379.2" in said
    assert "2 levels are finished" in said and "measured again" in said and "same --output continues" in said
    assert "simulated engine" in said or "SIMULATED ENGINE" in said
    assert "INCOMPLETE" in said


def test_a_killed_procedure_has_the_warnings_and_deviations_of_its_end() -> None:
    found = with_final_remarks(document())
    assert [(text[:11], code_of(text)) for text in found.warnings] == [("levels 0, 1", "level-too-short")]
    warm_up, quick, simulated = found.deviations
    assert "(IETF 4.5.1)" in warm_up and quick.startswith("--quick: ") and "simulated engine" in simulated
    assert with_final_remarks(found) == found
    real = with_final_remarks(document(quick=False, manifest={"simulated": False}))
    assert real.deviations == (warm_up,)


def test_what_is_done_is_left_as_it_is() -> None:
    done = document(status="done")
    assert with_levels(with_final_remarks(done)) == done


def test_an_interrupted_procedure_says_how_to_go_on_and_keeps_its_own_words() -> None:
    found = document(status="interrupted", title="Concurrent Request Capacity", sentences=["one"])
    assert with_final_remarks(found).deviations == found.deviations
    for text in ("\n".join(lines(found)), render_page(page(found)), render(page(found))):
        assert "continues it" in text and "8 slots" in text and "one" in text


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (COMMAND, ": fastllmload procedure capacity --quick --header 'a b' -o kept"),
        (["fastllmload", "procedure", "ttft"], "this folder as --output continues it: fastllmload procedure ttft"),
        (["fastllmload", "procedure", "ttft", "--output=x"], "same --output continues it: "),
        ("withheld", "same --output continues it"),
    ],
)
def test_the_command_is_there_to_be_copied(command: Any, words: str) -> None:
    said = how_to_continue(document(command=command, levels=[]))
    assert said.startswith("not finished: ") and words in said
    assert command != "withheld" or said.endswith("continues it")


def test_one_level_is_named() -> None:
    found = with_final_remarks(document(levels=killed()["levels"][:1]))
    assert found.warnings == (f"level 0 (4 slots): {SHORT}; take 300 s or more [level-too-short]",)
    assert "1 level is finished" in found.sentences[0]
