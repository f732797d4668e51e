"""Every option that names a file, with what is no such file: one sentence and exit code 2, soon; never a trace."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.cli import main as entry
from fastllmload.engine.preflight import tls
from fastllmload.files import read_bounded
from fastllmload.plan.archive import load_plan
from fastllmload.plan.plan import DOCUMENT, REQUIRED

pytestmark = pytest.mark.slow

RUN = ("run", "--url", "https://127.0.0.1:9/v1", "--model", "m", "--num-requests", "2")
CLOSED = (*RUN, "--concurrency", "1")
COMMANDS: tuple[tuple[str, ...], ...] = (
    (*CLOSED, "--cacert", "FILE"),
    (*CLOSED, "--cert", "FILE", "--key", "FILE"),
    (*CLOSED, "--config", "FILE"),
    (*CLOSED, "--api-key-file", "FILE"),
    (*RUN[:5], "--plan", "FILE"),
    (*CLOSED, "--tokenizer", "FILE"),
    (*CLOSED, "--workload", "custom", "--dataset-path", "FILE"),
    (*RUN, "--rate-series", "FILE"),
    ("plan", "--verify", "FILE"),
    ("report", "FILE"),
    ("export", "FILE"),
    ("compliance", "FILE"),
    ("compare", "FILE", "FILE"),
    ("simulate", "--port", "0", "--profile", "FILE"),
)
KINDS = ("missing", "pipe", "folder", "zeros", "nested", "line", "bytes")


def odd_file(folder: Path, kind: str) -> Path:
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "nested":
        path.write_text("[" * 200_000)
    elif kind == "line":
        path.write_bytes(b"x" * 10_000_000)
    elif kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00" * 1000)
    return Path("/dev/zero") if kind == "zeros" else path


@functools.cache
def ended(command: tuple[str, ...]) -> dict[str, tuple[str, int, str]]:
    """(file, exit code, what was said) of *command* with each kind of file."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(odd_file(Path(folder), kind)) for kind in KINDS]
        asked = [[path if word == "FILE" else word for word in command] for path in paths]
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("forked_commands.py")], input=json.dumps(asked), cwd=folder,
            capture_output=True, text=True, timeout=60 * len(KINDS), check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {kind: (path, *found) for kind, path, found in zip(KINDS, paths, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[-2:]) + command[0])
def test_no_such_file(command: tuple[str, ...], kind: str) -> None:
    path, code, said = ended(command)[kind]
    assert code == 2, said
    assert "Traceback" not in said
    assert Path(path).name in said, "the sentence names the file"


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"x" * 200_000))
    writer.start()
    assert read_bounded(tmp_path / "pipe") == b"x" * 200_000
    writer.join()


def test_a_pipe_whose_writer_is_slow_or_writes_nothing(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(write)
    assert read_bounded(f"/dev/fd/{read}") == b""
    os.close(read)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"exec >{tmp_path}/pipe; sleep 2.5; echo late"]) as writer:
        assert read_bounded(tmp_path / "pipe") == b"late\n"
    assert writer.returncode == 0


@pytest.mark.parametrize("path", ["/", "/dev/zero"])
def test_what_is_refused_is_closed_again(path: str) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="device|directory"):
        read_bounded(path)
    assert os.listdir("/proc/self/fd") == before


def test_a_tls_file_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LARGEST_OPTION", 10)
    (tmp_path / "ca").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="more than 10 bytes"):
        tls.check_readable(str(tmp_path / "ca"))


def test_an_encrypted_plan_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.plan", "w") as archive:
        for name in sorted(REQUIRED | {DOCUMENT}):
            archive.writestr(name, b"")
    data = bytearray((tmp_path / "one.plan").read_bytes())
    place = data.find(b"PK\x01\x02")
    while place >= 0:  # the central directory's flags
        data[place + 8] |= 1
        place = data.find(b"PK\x01\x02", place + 1)
    (tmp_path / "one.plan").write_bytes(data)
    with raises_code("plan-file-invalid", "one.plan", "encrypted"):
        load_plan(tmp_path / "one.plan", tmp_path / "to")


@pytest.mark.parametrize("error", [AssertionError("ours"), NameError("ours"), NotImplementedError("ours")])
def test_a_bug_is_not_blamed_on_the_folder(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> int:
        raise error

    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(entry, "_invoke", fails)
    assert entry.main(["report", str(tmp_path)]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_small_file_takes_little_memory_whatever_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"x" * 3_000_000)
    tracemalloc.start()
    try:
        assert read_bounded(path, most=1 << 30) == b"x" * 3_000_000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    with pytest.raises(OSError, match="the limit of 2,999,999 bytes"):
        read_bounded(path, most=2_999_999)
