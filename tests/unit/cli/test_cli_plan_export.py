"""`plan` builds, saves, describes and verifies without sending; `export` writes to a file or a pipe."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from types import MappingProxyType

import pytest
from refusals import says

from fastllmload.cli import main as entry
from fastllmload.documents.run import FileFacts, RunDocument
from fastllmload.export import rows as export
from fastllmload.records import run

SMALL = ["--rate", "20", "--duration", "1", "--isl", "8", "--osl", "4"]


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch):
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def said(capsys, *arguments, code=0):
    assert entry.main(list(arguments)) == code
    return capsys.readouterr()


def digest_in(text):
    return next(line.split()[-1] for line in text.splitlines() if line.startswith("digest"))


def test_the_same_options_give_the_same_plan_by_every_way(capsys, tmp_path):
    """Built, saved by an option, saved by the command, described and verified: one digest, one file."""
    built = said(capsys, "plan", *SMALL).out
    by_option = said(capsys, "plan", "build", *SMALL, "--save-plan", str(tmp_path / "a")).out
    by_command = said(capsys, "plan", "save", str(tmp_path / "b"), *SMALL).out
    described = said(capsys, "plan", "describe", str(tmp_path / "a")).out
    verified = said(capsys, "plan", "verify", str(tmp_path / "b")).out
    digest = digest_in(built)
    assert [digest_in(text) for text in (by_option, by_command, described)] == [digest] * 3
    assert verified.splitlines()[-1] == digest
    assert by_option.endswith(f"{tmp_path / 'a'}\n")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_plan_is_shown_before_anything_is_sent(capsys, tmp_path):
    """Pictures after the description, of a plan that is built and of a saved one; the wait for P99.9 is named."""
    built = said(capsys, "plan", *SMALL, "--show", "--save-plan", str(tmp_path / "a")).out
    described = said(capsys, "plan", "describe", str(tmp_path / "a"), "--show").out
    for text in (built, described):
        assert "P99.9 needs 10,000 " in text and "at this rate" in text
        assert [line.split("  ")[0] for line in text.splitlines() if "mean" in line][-4:] == [
            "rate", "gaps", "input length", "output length",
        ]  # fmt: skip


def test_verify_as_an_option(capsys, tmp_path):
    """`plan --verify FILE` is `plan verify FILE`, and takes nothing else."""
    said(capsys, "plan", "save", str(tmp_path / "a"), *SMALL)
    by_command = said(capsys, "plan", "verify", str(tmp_path / "a")).out
    assert said(capsys, "plan", "--verify", str(tmp_path / "a")).out == by_command
    err = said(capsys, "plan", "--verify", str(tmp_path / "a"), "--rate", "5", code=2).err
    assert says(err, "options-conflict", "--verify")


def test_a_sequence_from_the_command_line(capsys, tmp_path):
    """Of a plan that is built and of a saved one: the same file, and its hash."""
    file = tmp_path / "a.jsonl"
    said(capsys, "plan", "save", str(tmp_path / "a"), *SMALL)
    out = said(capsys, "plan", *SMALL, "--sequence", str(file)).out
    assert hashlib.sha256(file.read_bytes()).hexdigest() in out
    said(capsys, "plan", "describe", str(tmp_path / "a"), "--sequence", str(tmp_path / "b.jsonl"))
    assert (tmp_path / "b.jsonl").read_bytes() == file.read_bytes()
    said(capsys, "plan", *SMALL, "--save", str(tmp_path / "c.jsonl"))
    assert (tmp_path / "c.jsonl").read_bytes() == file.read_bytes()


def test_lengths_beyond_the_context_make_no_plan(capsys, tmp_path):
    file = tmp_path / "a"
    err = said(capsys, "plan", "save", str(file), *SMALL, "--context-limit", "11", code=2).err
    assert says(err, "context-exceeded", "of 11 tokens")
    assert not file.exists()


def test_the_plans_own_options_are_in_its_help(capsys):
    text = said(capsys, "plan", "--help").out
    assert all(flag in text for flag in ("--show", "--sequence", "--verify", "--prefix-share"))


def test_another_seed_is_another_plan(capsys):
    first, second = (digest_in(said(capsys, "plan", *SMALL, "--seed", seed).out) for seed in "01")
    assert first != second


def test_a_changed_plan_is_refused(capsys, tmp_path):
    file = tmp_path / "plan"
    said(capsys, "plan", "save", str(file), *SMALL)
    content = bytearray(file.read_bytes())
    at = content.index(b'"messages"')
    content[at + 1] ^= 1
    file.write_bytes(content)
    err = said(capsys, "plan", "verify", str(file), code=2).err
    assert err.startswith("fastllmload: ")
    assert err.count("\n") == 1


def test_the_model_of_a_plan(capsys):
    assert "model simulated" in said(capsys, "plan", *SMALL).out
    assert "model m" in said(capsys, "plan", *SMALL, "--simulate", "model=m").out
    assert "model x" in said(capsys, "plan", *SMALL, "-u", "http://h", "-m", "x").out
    assert "--model is missing" in said(capsys, "plan", *SMALL, "-u", "http://h", code=2).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], ("load-missing", "--rate")),
        (["plan", "--plan", "f"], ("option-not-applicable", "--plan", "plan describe FILE")),
        (["plan", "save", "f", "--save-plan", "g", "--rate", "1"], ("option-not-applicable", "--save-plan")),
        (["plan", "describe", "/nowhere/plan"], ("plan-file-invalid", "/nowhere/plan", "not exist")),
        (["plan", "verfy"], ("usage", "'verfy'", "verify?")),
    ],
)
def test_a_file_other_than_a_plan_is_one_sentence(capsys, arguments, words):
    assert says(said(capsys, *arguments, code=2).err, *words)


@pytest.fixture
def rows(monkeypatch):
    class Whole(str):
        """Acts as a run in which nothing is damaged."""

        damaged = MappingProxyType({})
        document = RunDocument(files={"requests.npy": FileFacts(bytes=0, crc32=0)})
        lost = staticmethod(lambda *names: None)
        where_events_are = None

    monkeypatch.setattr(run, "load", lambda folder: Whole(str(folder)))
    monkeypatch.setattr(export, "export_jsonl", lambda found, file: file.write(f"jsonl of {found}\n".encode()))
    monkeypatch.setattr(export, "export_csv", lambda found, file: file.write(f"csv of {found}, \u00e9\n"))


@pytest.mark.parametrize(("form", "text"), [("jsonl", "jsonl of r\n"), ("csv", "csv of r, \u00e9\n")])
def test_export_to_a_file(rows, tmp_path, form, text):
    file = tmp_path / "out"
    assert entry.main(["export", "r", "--format", form, "-o", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == text


def test_export_to_standard_output(rows, capfdbinary):
    assert entry.main(["export", "r"]) == 0
    assert entry.main(["export", "r", "--format", "csv"]) == 0
    assert capfdbinary.readouterr().out.decode() == "jsonl of r\ncsv of r, \u00e9\n"


def test_export_to_a_folder_that_is_not_there(rows, capsys, tmp_path):
    err = said(capsys, "export", "r", "-o", str(tmp_path / "no" / "out"), code=2).err
    assert says(err, "output-not-writable", tmp_path / "no" / "out", "No such file")


ENDLESS = """
import sys
from fastllmload.cli.main import main
from fastllmload.documents.run import FileFacts, RunDocument
from fastllmload.export import rows as export
from fastllmload.records import run

class Whole:
    damaged = {}
    document = RunDocument(files={"requests.npy": FileFacts(bytes=0, crc32=0)})
    lost = staticmethod(lambda *names: None)
    where_events_are = None

run.load = lambda folder: Whole()

def export_jsonl(found, file):
    for _ in range(100_000):
        file.write(b"x" * 99 + b"\\n")

export.export_jsonl = export_jsonl
sys.exit(main(["export", "r"]))
"""


def test_a_closed_pipe_is_not_a_failure():
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"x" * 99 + b"\n"
        process.stdout.close()
        said_on_stderr = process.stderr.read()
        assert process.wait(timeout=20) == 0
    assert said_on_stderr == b""


def test_standard_output_without_room_is_one_sentence():
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-c", ENDLESS], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (
        ended.returncode == 2
        and ended.stderr.count(b"\n") == 1
        and says(ended.stderr.decode(), "output-not-writable", "standard output", "No space left", "-o")
    )
