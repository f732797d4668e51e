"""A reader that leaves early and a terminal of few characters change neither what is done nor the exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import says

from fastllmload.cli.streams import ASCII_FOR, TolerantStream

pytestmark = pytest.mark.slow

SHOWN = ("plan", "--rate", "50", "--num-requests", "200", "--show")


def patient(encoding: str) -> tuple[TolerantStream, io.BytesIO]:
    inner = io.BytesIO()
    return TolerantStream(io.TextIOWrapper(inner, encoding=encoding)), inner


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("ascii", b"##--. ?rger 5 -"), ("latin-1", "##--. \xe4rger 5 \xb7".encode("latin-1"))],
)
def test_what_an_encoding_lacks_is_written_plainly(encoding: str, written: bytes) -> None:
    stream, inner = patient(encoding)
    stream.write("██░░… ärger 5 ·")
    stream.flush()
    assert inner.getvalue() == written


def test_utf8_is_written_as_it_is() -> None:
    stream, inner = patient("utf-8")
    stream.write("█ é 日")
    stream.flush()
    assert inner.getvalue().decode() == "█ é 日"


def test_every_plain_sign_is_ascii() -> None:
    assert all(chr(plain).isascii() and not chr(sign).isascii() for sign, plain in ASCII_FOR.items())


def begun(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fastllmload", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [SHOWN, ("--help",), ("doctor", "--help")])
def test_a_reader_that_has_gone_before_the_first_word(arguments: tuple[str, ...]) -> None:
    process = begun(*arguments)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(), said) == (0, b"")
    process.stderr.close()


def test_the_exit_code_of_a_gate_outlives_its_reader(tmp_path: Path) -> None:
    process = begun("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read().startswith(b"fastllmload: ")
    assert process.wait() == 2
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("report /nowhere", 2),
        ("--rte 5", 2),
        ("procedure ttft --quick --rate 50 -n 100 --osl 2 --warmup 5 --allow-nonconforming --hook restart=true", 0),
    ],
)
def test_both_streams_into_a_pipe_without_a_reader(arguments: str, code: int, tmp_path: Path) -> None:
    """`2>&1 | head -1`: sentences and warnings go nowhere, and change neither what is done nor the exit code."""
    folder = tmp_path / "made"
    words = [sys.executable, "-m", "fastllmload", *arguments.split()]
    if code == 0:
        words += ["--output", str(folder), "--simulate", "null=true"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(words, stdout=writing, stderr=writing, check=False)
    finally:
        os.close(writing)
    assert ended.returncode == code
    if code == 0:
        assert json.loads((folder / "procedure.json").read_bytes())["status"] == "done"


def test_a_chart_where_there_are_no_blocks() -> None:
    process = begun(*SHOWN, PYTHONIOENCODING="latin-1")
    out, said = process.communicate()
    assert (process.returncode, said) == (0, b"")
    assert b"#" in out and out.isascii()


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", "--version", 0),
        (">&- 2>&-", "--version", 0),
        ("<&- >&- 2>&-", "report /nowhere", 2),
        ("2>&-", "--rate x", 2),
    ],
)
def test_standard_streams_that_the_caller_closed(closed: str, arguments: str, code: int) -> None:
    """No file of a run gets their numbers, and nothing ends as a bug."""
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m fastllmload {arguments} {closed}', sys.executable], capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", b"")


@pytest.mark.parametrize("arguments", [" ".join(SHOWN), "--version", "--help", "plan --help"])
def test_where_standard_output_has_no_room(arguments: str) -> None:
    """The command finishes, and then reports that its output was not written."""
    command = f'"$0" -m fastllmload {arguments} > /dev/full'
    ended = subprocess.run(["/bin/sh", "-c", command, sys.executable], capture_output=True, check=False, text=True)
    assert ended.returncode == 2
    assert says(ended.stderr, "output-not-writable", "standard output", "No space left")
    assert len(ended.stderr.splitlines()) == 1


def test_an_exit_code_of_its_own_outlives_a_full_disk(tmp_path: Path) -> None:
    command = f'"$0" -m fastllmload report {tmp_path}/none > /dev/full'
    ended = subprocess.run(["/bin/sh", "-c", command, sys.executable], capture_output=True, check=False, text=True)
    assert ended.returncode == 2 and f"{tmp_path}/none" in ended.stderr
    assert "standard output" not in ended.stderr  # it had nothing to say there


@pytest.mark.parametrize("command", ["report", "export", "compliance"])
def test_a_name_that_is_too_long_or_leads_in_a_circle(command: str, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name, why in (("x" * 300, "file name too long: " + "x" * 60 + "..."), (f"{tmp_path}/a", "")):
        ended = subprocess.run(
            [sys.executable, "-m", "fastllmload", command, name], capture_output=True, check=False, text=True
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"fastllmload: {why}") and "Traceback" not in ended.stderr
