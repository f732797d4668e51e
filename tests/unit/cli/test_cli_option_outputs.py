"""Every option that names a file to be written, with other things than files: nothing is replaced; a stream is written."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from real_run import real_run
from refusals import says

from fastllmload.cli.main import main
from fastllmload.files import replace_with, writing
from fastllmload.records.run import load
from fastllmload.report.documents.forms import write_reports
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.serve import truth_path

pytestmark = pytest.mark.slow

PLAN = ("plan", "--rate", "20", "--num-requests", "5", "--isl", "8", "--osl", "4")
COMMANDS: tuple[tuple[str, ...], ...] = (
    (*PLAN, "--save-plan", "FILE"),
    (*PLAN, "--sequence", "FILE"),
    ("plan", "save", "FILE", *PLAN[1:]),
    ("export", "RUN", "--format", "csv", "-o", "FILE"),
    ("report", "RUN", "-o", "FILE"),
    ("compare", "RUN", "RUN", "--json", "FILE"),
    ("compare", "RUN", "RUN", "--html", "FILE"),
    ("run", *PLAN[1:], "--warmup", "0", "-o", "NEW", "--save-plan", "FILE"),
)
REFUSED = (*COMMANDS, ("simulate", "--port", "0", "--truth", "FILE"))
every = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]} {command[-2]}")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(real_run(), tmp_path_factory.mktemp("outputs") / "run"))


def given(command: tuple[str, ...], file: Path, run: Path) -> list[str]:
    names = {"FILE": str(file), "RUN": str(run), "NEW": str(file.parent / "new")}
    return [names.get(word, word) for word in command]


def device(folder: Path) -> Path:
    """A null device of our own, where we may make one: replacing it replaces no real one."""
    path = folder / "null"
    if os.geteuid() != 0:
        path.symlink_to("/dev/null")
        return path
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        pytest.skip("no device can be made and opened here")
    return path


def odd(folder: Path, kind: str) -> Path:
    path = folder / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    return path


def end_of(command: list[str]) -> int:
    try:
        return main(command)
    except SystemExit as end:  # of `simulate`
        assert isinstance(end.code, int)
        return end.code


def left(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_rdev


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket"])
@pytest.mark.parametrize("command", REFUSED, ids=lambda command: f"{command[0]} {command[-2]}")
def test_refused(
    tmp_path: Path, run_folder: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], kind: str
) -> None:
    """A folder, a socket, a pipe without a reader: one sentence that says which, and all of it stays."""
    path = odd(tmp_path, kind)
    before = left(path)
    assert end_of(given(command, path, run_folder)) == 2
    (sentence,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("fastllmload: "))
    assert f"it is a {kind}" in sentence and str(path) in sentence
    assert left(path) == before and os.listdir(tmp_path) == [kind]


@every
@pytest.mark.parametrize("linked", [False, True], ids=["device", "link"])
def test_a_device_is_written_to(tmp_path: Path, run_folder: Path, command: tuple[str, ...], linked: bool) -> None:
    path = device(tmp_path)
    if linked:
        path = tmp_path / "link"
        path.symlink_to("null")
    before = left(path), left(tmp_path / "null")
    assert main(given(command, path, run_folder)) == 0
    assert (left(path), left(tmp_path / "null")) == before
    assert set(os.listdir(tmp_path)) <= {"null", "link", "new"}


@every
def test_a_pipe_gets_what_a_file_gets(tmp_path: Path, run_folder: Path, command: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert main(given(command, tmp_path / "pipe", run_folder)) == 0
    reader.join()
    shutil.rmtree(tmp_path / "new", ignore_errors=True)
    assert main(given(command, tmp_path / "file", run_folder)) == 0
    assert len(got[0]) == (tmp_path / "file").stat().st_size
    assert got[0] == (tmp_path / "file").read_bytes() or command[0] in ("run", "compare")  # those have a time of day


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old").write_bytes(b"x")
    (tmp_path / "link").symlink_to("elsewhere/old")
    assert main([*PLAN, "--save-plan", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "elsewhere" / "old").stat().st_size > 1000
    assert os.listdir(tmp_path / "elsewhere") == ["old"]


def test_standard_output_under_its_other_name(tmp_path: Path) -> None:
    """The plan goes where standard output goes, before what is said; neither overwrites the other."""
    assert main([*PLAN, "--save-plan", str(tmp_path / "file")]) == 0
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    command = [sys.executable, "-m", "fastllmload", *PLAN, "--save-plan", str(tmp_path / "stdout")]
    with open(tmp_path / "both", "wb") as both:
        subprocess.run(command, stdout=both, check=True, timeout=60)
    whole, plan = (tmp_path / "both").read_bytes(), (tmp_path / "file").read_bytes()
    assert whole.startswith(plan) and b"digest" in whole[len(plan) :]
    assert (tmp_path / "stdout").is_symlink()


def test_a_pipe_whose_reader_comes_late(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"sleep 0.3; cat {tmp_path}/pipe"], stdout=subprocess.PIPE) as reader:
        with writing(tmp_path / "pipe") as file:
            file.write(b"late")
        assert reader.communicate(timeout=10)[0] == b"late"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, device])
def test_a_report_file_of_a_run_replaces_no_such_thing(
    tmp_path: Path, run_folder: Path, make: Callable[[Path], object]
) -> None:
    """In a run's folder only files and links are replaced; the other reports are written all the same."""
    folder = Path(shutil.copytree(run_folder, tmp_path / "run"))
    (folder / "report.md").unlink()
    if make is device:
        device(tmp_path).rename(folder / "report.md")
        if (folder / "report.md").is_symlink():
            pytest.skip("only root makes devices")
    else:
        make(folder / "report.md")
    before = left(folder / "report.md")
    run = load(folder)
    (problem,) = write_reports(run)
    assert says(problem, "report-not-written", "report.md") and "move it away" in problem
    assert left(folder / "report.md") == before
    assert not list(folder.glob("*.part"))


def test_a_link_in_a_run_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("target")
    replace_with(tmp_path / "link", "new")
    assert not (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"mine"


def test_a_device_has_no_truth_logs_next_to_it(tmp_path: Path) -> None:
    path = str(device(tmp_path))
    assert truth_path(SimulatorOptions(truth=path), 1) == path
    assert truth_path(SimulatorOptions(truth=str(tmp_path / "log")), 1) == str(tmp_path / "log.1")
