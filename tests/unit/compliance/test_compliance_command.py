"""`fastllmload compliance` on folders: exit code, texts, JSON, comparisons, folders that are none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_builder import Case, Cases
from compliance_scenes import plain, throughput, ttft

from fastllmload.cli.main import main

pytestmark = pytest.mark.slow


def written(case: Case, folder: Path) -> Path:
    """A run folder of *case*."""
    case.run(folder)
    np.save(folder / "requests.npy", case.rows)
    np.save(folder / "tokens.npy", case.events)
    (folder / "run.json").write_text(json.dumps(case.manifest))
    return folder


def written_procedure(cases: Cases, folder: Path) -> Path:
    document = dict(cases.procedure or {})
    document["levels"] = []
    for number, level in enumerate(cases.levels):
        written(level, folder / "levels" / f"{number:03d}")
        document["levels"].append({**(level.entry or {}), "name": level.name, "folder": f"levels/{number:03d}"})
    (folder / "procedure.json").write_text(json.dumps(document))
    return folder


def test_a_compliant_run_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict comes first, then what was judged."""
    assert main(["compliance", str(written(plain().run, tmp_path / "run"))]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split(maxsplit=1) == ["verdict", "CONDITIONALLY COMPLIANT"]


def test_a_run_that_is_not_compliant_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do about it."""
    cases = plain()
    cases.undeclare("sut.boundary")
    assert main(["compliance", str(written(cases.run, tmp_path / "run"))]) == 1
    assert "do: --declare sut.boundary=model_engine" in capsys.readouterr().out


def test_json_has_everything_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document; --all adds every requirement."""
    folder = str(written(plain().run, tmp_path / "run"))
    assert main(["compliance", folder, "--json"]) == 0
    short = json.loads(capsys.readouterr().out)
    assert main(["compliance", folder, "--json", "--all"]) == 0
    long = json.loads(capsys.readouterr().out)
    assert "requirements" not in short and len(long["requirements"]) == 653
    assert short["verdict"] == long["verdict"] == "conditionally compliant"


def test_all_lists_every_requirement_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line each, with its state."""
    assert main(["compliance", str(written(plain().run, tmp_path / "run")), "--all"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("IETF-", "BLOG-", "ASIAI-", "SG-", "ETALON-")) for line in printed) == 653


def test_a_procedure_is_judged_with_its_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder with procedure.json and its levels."""
    folder = written_procedure(throughput(), tmp_path / "procedure")
    assert main(["compliance", str(folder)]) == 0
    assert "UNCONDITIONALLY COMPLIANT" in capsys.readouterr().out
    for file in (folder / "levels" / "001").iterdir():
        if file.is_file():
            file.unlink()
    assert main(["compliance", str(folder)]) == 1
    assert "levels/001 is missing" in capsys.readouterr().out


def test_two_systems_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--against adds what the draft asks of comparisons."""
    ours = str(written(plain().run, tmp_path / "a"))
    other = plain().declare(sut__boundary="application_gateway", guardrails__configuration="default")
    theirs = str(written(other.run, tmp_path / "b"))
    assert main(["compliance", ours, "--against", theirs]) == 1
    assert "IETF-6.1-b: false" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_broken_document_is_one_sentence(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, naming the file."""
    (tmp_path / "procedure.json").write_bytes(content)
    assert main(["compliance", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "procedure.json" in printed and printed.count("\n") == 1


@pytest.mark.parametrize("name", ["", "gone"])
def test_a_folder_that_is_none(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one sentence."""
    assert main(["compliance", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def damages(data: bytes) -> dict[str, bytes | None]:
    return {"gone": None, "empty": b"", "half": data[: len(data) // 2], "garbage": b"\x00\xff" * 50, "list": b"[]"}


@pytest.mark.parametrize("name", ["run.json", "requests.npy", "tokens.npy", "plan/plan.json", "plan/schedule.npy"])
def test_a_damaged_file_is_a_sentence_or_not_compliant(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never a trace, never compliance that rests on what cannot be read."""
    folder = written(plain().run, tmp_path / "run")
    whole = (folder / name).read_bytes()
    for how, content in damages(whole).items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        code = main(["compliance", str(folder)])
        printed = capsys.readouterr()
        assert code in (1, 2), f"{name} {how}: {printed.err}"
        assert "Traceback" not in printed.err
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize("name", ["search", "sweep"])
def test_a_search_is_not_a_test_of_the_draft(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence says what can be judged instead."""
    (tmp_path / f"{name}.json").write_text("{}")
    assert main(["compliance", str(tmp_path)]) == 2
    assert "levels" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.json", "requests.npy", "tokens.npy"])
def test_a_level_that_cannot_be_read_is_reported(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A procedure is judged without it, says so, and does not comply; a warm-up that was cut off is not evidence."""
    folder = written_procedure(throughput(), tmp_path / "procedure")
    (folder / "levels" / "001" / name).write_bytes(b"{")
    (folder / "preparation" / "01-001-warm-up").mkdir(parents=True)
    assert main(["compliance", str(folder)]) == 1
    printed = capsys.readouterr()
    assert "levels/001 is missing" in printed.out and name in printed.out and printed.err == ""


def test_what_is_damaged_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing can be read of any level, the reasons name the file, not a test that was never run."""
    folder = written_procedure(ttft(), tmp_path / "procedure")
    (folder / "levels/000/tokens.npy").write_bytes(b"{")
    assert main(["compliance", str(folder)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "level was measured" not in printed
    assert "levels/000/tokens.npy" in printed and "restore its files" in printed


def test_a_reader_may_leave_early(tmp_path: Path) -> None:
    """`| head` has seen enough: no trace, and the verdict's exit code."""
    folder = written(plain().run, tmp_path / "run")
    program = [sys.executable, "-m", "fastllmload", "compliance", str(folder), "--all"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def changed(folder: Path, **entries: Any) -> None:
    """procedure.json with other *entries*."""
    path = folder / "procedure.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.mark.parametrize(("keep", "words"), [
    (slice(1, None), "levels/000 exists, and procedure.json"),
    (slice(None, -1), " exists, and procedure.json"),
])  # fmt: skip
def test_a_level_removed_from_the_list_is_reported(
    keep: slice, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder gives it away."""
    folder = written_procedure(throughput(), tmp_path / "p")
    changed(folder, levels=json.loads((folder / "procedure.json").read_text())["levels"][keep])
    assert main(["compliance", str(folder)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert words in printed and "no level may" in printed


def test_a_level_that_is_gone_from_the_list_and_the_folder_leaves_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Levels are numbered in the order in which they were asked for."""
    folder = written_procedure(throughput(), tmp_path / "p")
    levels = json.loads((folder / "procedure.json").read_text())["levels"]
    numbered = [{**level, "number": number} for number, level in enumerate(levels)]
    changed(folder, levels=numbered)
    assert main(["compliance", str(folder)]) == 0
    changed(folder, levels=numbered[1:])
    shutil.rmtree(folder / "levels" / "000")
    capsys.readouterr()
    assert main(["compliance", str(folder)]) == 1
    assert "but not level 0" in capsys.readouterr().out


@pytest.mark.parametrize(("folder_name", "status"), [("levels/007.cut-1", "done"), ("levels/007", "running")])
def test_discarded_and_running_levels_are_not_missing(
    folder_name: str, status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written_procedure(throughput(), tmp_path / "p")
    changed(folder, status=status)
    (folder / folder_name).mkdir()
    assert main(["compliance", str(folder)]) == (0 if status == "done" else 1)
    assert "may be left out" not in capsys.readouterr().out


def test_what_has_no_key_word_is_listed_separately(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run of each system breaks no key word; the advice to measure three is named, with what to do."""
    folder, other = (str(written(plain().run, tmp_path / name)) for name in ("a", "b"))
    assert main(["compliance", folder, "--against", other]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "without a key word" in printed and "IETF-6.3-b false: runs per system: 1; do: measure 3 each" in printed
    main(["compliance", folder, "--against", other, "--json"])
    entries = json.loads(capsys.readouterr().out)["beside"]
    assert {"IETF-6.3-b", "IETF-6.4-e"} <= {entry["id"] for entry in entries}
    assert all(entry["id"].startswith("IETF-") and entry["remedy"] for entry in entries)


def test_a_folder_is_not_compared_with_itself_or_with_another_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence each, exit code 2."""
    run = str(written(plain().run, tmp_path / "run"))
    other = str(written(plain().run, tmp_path / "other"))
    first, second = (str(written_procedure(scene(), tmp_path / name)) for name, scene in
                     (("ttft", ttft), ("throughput", throughput)))  # fmt: skip
    for against, words in (
        ([run, run], "run is given twice"),
        ([run, other, other], "other is given twice"),
        ([first, second], "is the test ttft and"),
        ([run, first], "is a run outside of a test and"),
    ):
        options = [word for folder in against[1:] for word in ("--against", folder)]
        assert main(["compliance", against[0], *options]) == 2
        printed = capsys.readouterr().err
        assert words in printed and printed.count("\n") == 1


def test_what_is_compared_with_must_have_come_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unfinished or quick test of another system carries no comparison."""
    folder = str(written_procedure(ttft(), tmp_path / "a"))
    other = written_procedure(ttft(), tmp_path / "b")
    assert main(["compliance", folder, "--against", str(other)]) == 0
    changed(other, status="interrupted")
    assert main(["compliance", folder, "--against", str(other)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "b: the procedure" in printed and "ended as interrupted" in printed
