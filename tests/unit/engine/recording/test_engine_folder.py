"""The run folder: created before the run, valid at all times, named by time and plan, removed for a rejected run."""

import json
import math
import os

import pytest
from refusals import raises_code
from typed_documents import typed

from fastllmload.documents.run import Environment, Phase
from fastllmload.engine.finalize import RunStatus, exit_code
from fastllmload.engine.public_settings import public, public_values, redactor
from fastllmload.engine.recording.folder import Folder
from fastllmload.errors import RunFolderError
from fastllmload.records.folder_lock import clean_up_killed
from fastllmload.records.run import load
from fastllmload.settings import Load, RunSettings, Secret, Target, TrafficClass, Workload


def test_a_rejected_run_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Folder.create(None).clean()
    Folder.create("named").clean()
    assert list(tmp_path.iterdir()) == []


def test_an_unnamed_folder_gets_a_unique_name_from_time_and_digest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = set()
    for _ in range(3):
        folder = Folder.create(None)
        folder.set_name("0123456789abcdef")
        folder.begin(RunSettings(), Environment())
        folder.clean()
        names.add(folder.path.name)
    assert len(names) == 3 and all("-01234567" in name for name in names)


def test_a_folder_that_is_not_empty_is_rejected(tmp_path):
    (tmp_path / "file").touch()
    with raises_code("output-not-empty", tmp_path, "not empty"):
        Folder.create(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_created_is_rejected(tmp_path):
    (tmp_path / "file").touch()
    with raises_code("output-not-writable", "--output"):
        Folder.create(str(tmp_path / "file" / "run"))


def test_the_first_document_has_status_running(tmp_path):
    folder = Folder.create(str(tmp_path / "run"))
    folder.begin(RunSettings(load=Load(rate=math.inf)), Environment(host="h"), run_id="12345678")
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (found["status"], found["run_id"], found["environment"]["host"]) == ("running", "12345678", "h")
    folder.clean()
    assert not folder.work.exists() and folder.path.exists()


def test_stored_settings_have_the_folders_name_and_no_secret(tmp_path):
    settings = RunSettings(
        target=Target(
            urls=("http://user:pass-word@h/v1",),
            headers=(("Authorization", "Bearer sk-1234"), ("X-Team", "blue sk-1234"), ("X-Api-Key", "other-key")),
        )
    )
    redact = redactor(settings, Secret("sk-1234"))
    stored = public(settings, redact, tmp_path)
    text = repr(stored)
    assert "sk-1234" not in text and "pass-word" not in text and "other-key" not in text
    assert stored.output.directory == str(tmp_path) and stored.target.headers[1] == ("X-Team", "blue ***")
    assert "dXNlcjpwYXNzLXdvcmQ" not in redact("Authorization: Basic dXNlcjpwYXNzLXdvcmQ=")


VALID = {"completed": 5, "certificate": {"verdict": "valid"}}
SUSPECT = {"completed": 5, "certificate": {"verdict": "suspect"}}

STAYED = {"gave_up": 0, "slow_readers": 0}


@pytest.mark.parametrize(
    ("document", "run_status", "strict", "code"),
    [
        (VALID, RunStatus(), True, 0),
        (SUSPECT, RunStatus(), False, 0),
        (SUSPECT, RunStatus(), True, 1),
        ({"completed": 0, "certificate": {"verdict": "invalid"}}, RunStatus(), True, 3),
        (
            {
                "completed": 0,
                "certificate": {"verdict": "valid"},
                "users": {"left_by_plan": 6, **STAYED},
                "counts": {"dispatched": 6},
            },
            RunStatus(),
            True,
            0,
        ),
        ({"completed": 0, "users": {"left_by_plan": 5, **STAYED}, "counts": {"dispatched": 6}}, RunStatus(), False, 3),
        ({"completed": 0, "users": {"left_by_plan": 0, **STAYED}, "counts": {"dispatched": 0}}, RunStatus(), False, 3),
        (VALID, RunStatus(disk_full=True), False, 2),
        (VALID, RunStatus(killed=1), False, 2),
        (VALID, RunStatus(crashed=1), False, 70),
        ({"completed": 0}, RunStatus(interrupted=True), False, 4),
        (VALID, RunStatus(interrupted=True, crashed=1, disk_full=True), True, 4),
    ],
)
def test_exit_codes(document, run_status, strict, code):
    assert exit_code(typed(document), run_status, strict) == code


@pytest.mark.parametrize(
    ("run_status", "status"),
    [
        (RunStatus(), "done"),
        (RunStatus(killed=1), "partial"),
        (RunStatus(disk_full=True), "partial"),
        (RunStatus(interrupted=True, killed=1), "interrupted"),
    ],
)
def test_status(run_status, status):
    assert run_status.status == status


def test_credentials_in_bodies_are_not_stored_even_short_ones(tmp_path):
    """For the run and its classes; requests still contain them."""
    body, short = '{"api_key": "sk-12345", "top_k": 5}', '{"password": 7, "a": {"token": "x"}}'
    one = TrafficClass(name="a", load=Load(rate=1.0), workload=Workload(extra_body=short))
    target = Target(headers=(("X-Short-Token", "7"),))
    settings = RunSettings(workload=Workload(extra_body=body), classes=(one,), target=target)
    known = redactor(settings, None)
    assert known("it said sk-12345") == "it said ***"
    stored = public(settings, known, tmp_path)
    assert stored.workload.extra_body == '{"api_key": "***", "top_k": 5}'
    assert stored.classes[0].workload.extra_body == '{"password": "***", "a": {"token": "***"}}'
    assert settings.workload.extra_body == body
    assert public_values(settings, known)["target"]["headers"] == [["X-Short-Token", "***"]]


@pytest.mark.parametrize("begun", [False, True])
def test_every_command_reports_the_same_of_a_run_that_was_killed_at_its_start(tmp_path, begun):
    """With or without a run.json: nothing was measured; commands that read keep the working files, `report` removes them."""
    folder = Folder.create(str(tmp_path / "run"))
    if begun:
        folder.begin(RunSettings(), Environment())
    os.close(folder.owner)  # as the death of the supervisor does
    words = "was killed before its first request; nothing was measured"
    for _ in range(2):
        with pytest.raises(RunFolderError, match=words):
            load(folder.path)
        assert (folder.path / ".work").exists()
    with pytest.raises(RunFolderError, match=words):
        clean_up_killed(folder.path)
    assert not (folder.path / ".work").exists()
    with pytest.raises(RunFolderError, match=words if begun else "has no run.json"):
        load(folder.path)


@pytest.mark.parametrize(
    "phases", [(), (Phase(number=0, name="measure", start_ns=1, end_ns=None, bound="count", ramp_share=0.0),)]
)
def test_files_of_workers_are_kept_if_a_request_may_have_been_sent(tmp_path, phases):
    folder = Folder.create(str(tmp_path / "run"))
    folder.begin(RunSettings(), Environment())
    folder.update(phases=phases)
    (folder.path / "workers" / "0").mkdir(parents=True)
    folder.mark_failed()
    folder.clean()
    assert (folder.path / "workers").exists() is bool(phases)
    assert (folder.path / "run.json").exists() and not (folder.path / ".work").exists()
