"""A real run as a process, watched for the API key from its first line to its last file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.records.layout import OK
from fastllmload.records.run import load

KEY = "sk-canary-7f3a91c0d5e2"
FAST = (
    "--isl",
    "16",
    "--osl",
    "8",
    "--warmup",
    "0",
    "--no-telemetry",
    "--tokenizer",
    "none",
)  # to load one takes 0.3 s
EMBEDDED = (*FAST, "--simulate", "ttft_ms=5", "itl_ms=2")
COMMAND = (sys.executable, "-m", "fastllmload")
LONGEST_S = 90.0


@dataclass
class Ended:
    """How a run ended and what it left. *sentences*: lines that fastllmload ended with; *document*: its run.json."""

    code: int
    out: str
    err: str
    document: dict[str, Any] | None
    folder: Path

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def sentences(self) -> list[str]:
        mark = "fastllmload: "
        return [line.removeprefix(mark) for line in self.err.splitlines() if line.startswith(mark)]

    def kept(self, code: int, status: str) -> dict[str, Any]:
        """A run.json of that status with completed requests, their rows, the exit code and no traceback."""
        assert self.code == code and "Traceback" not in self.said, self.said
        assert self.document is not None and self.document["status"] == status, self.said
        rows = load(self.folder).rows
        succeeded = int((rows["status"] == OK).sum())
        assert succeeded >= self.document["completed"] > 0
        return self.document

    def refused(self, code: int, *parts: str) -> None:
        """One sentence with all *parts*, the exit code, no trace, and no folder left."""
        assert self.code == code, self.said
        assert len(self.sentences) == 1 and "Traceback" not in self.said, self.said
        for part in parts:
            assert part in self.sentences[0]
        assert self.document is None and not self.folder.exists()


@dataclass
class Going:
    """A run in progress; `end()` waits for it."""

    process: subprocess.Popen[bytes]
    folder: Path
    leaks: set[str] = field(default_factory=set)
    seen: set[tuple[int, str]] = field(default_factory=set)  # processes, each with the command line that it had

    @property
    def out(self) -> Path:
        return self.folder.with_suffix(".out")

    @property
    def err(self) -> Path:
        return self.folder.with_suffix(".err")

    def text(self) -> str:
        return self.out.read_text(errors="replace")

    def family(self, word: str = "") -> list[int]:
        """Living children whose command line contains *word*."""
        listed = of_process(self.process.pid, f"task/{self.process.pid}/children").split()
        return [int(pid) for pid in listed if not word or word in of_process(int(pid), "cmdline")]

    def note_leaks(self) -> None:
        """Notes where the key can be seen of the processes of the run, once its own command line has been blanked."""
        if not self.out.stat().st_size:
            return
        own = of_process(self.process.pid, "cmdline")
        for pid in [self.process.pid, *self.family()]:
            command = own if pid == self.process.pid else of_process(pid, "cmdline")
            if (pid, command) in self.seen:
                continue
            self.seen.add((pid, command))
            shown = command if command == own else command + of_process(pid, "environ")  # of a fork before exec: ours
            if KEY in shown:
                self.leaks.add(command[:80])

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait until *happened*; the run must not end before."""
        deadline = time.monotonic() + LONGEST_S
        while not happened():
            assert time.monotonic() < deadline and self.process.poll() is None, self.text() + self.err.read_text()
            self.note_leaks()
            time.sleep(0.01)

    def child(self, word: str) -> int:
        """The one living child whose command line contains *word*."""
        (found,) = self.family(word)
        return found

    def until_said(self, words: str) -> None:
        self.until(lambda: words in self.text())

    def until_answered(self, phase: str = "measure") -> None:
        """The clock of *phase* runs and tokens come in."""
        self.until_said(f"{phase}:")
        events = [self.folder / "workers" / "0" / "tokens.npy"]
        self.until(lambda: all(path.exists() and filled(path) for path in events))

    def until_ok(self) -> None:
        """A request of worker 0 came to its end."""
        self.until_answered()
        rows = self.folder / "workers" / "0" / "requests.npy"
        self.until(lambda: (found := mapped(rows)) is not None and bool((found["status"] == OK).any()))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> Ended:
        deadline = time.monotonic() + LONGEST_S
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the run did not end: {self.text()}")
            self.note_leaks()
            time.sleep(0.02)
        return self.ended()

    def ended(self) -> Ended:
        """What a run that is over has left; the key is nowhere in it."""
        assert self.leaks == set()
        out, err = self.text(), self.err.read_text(errors="replace")
        assert KEY not in out + err
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            assert KEY.encode() not in path.read_bytes(), path
        manifest = self.folder / "run.json"
        document = json.loads(manifest.read_text()) if manifest.exists() else None
        return Ended(self.process.returncode, out, err, document, self.folder)


def begin(
    folder: Path, *options: str, wrap: Sequence[str] = (), program: Sequence[str] = COMMAND, **environment: str
) -> Going:
    """Start a run into *folder*, plain lines to files next to it. *wrap*: a command that the run is the end of;
    *program*: what is run in place of fastllmload.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [*wrap, *program, "-o", str(folder), "--ui", "plain", "-H", f"X-Api-Key: {KEY}", *options]
    with open(folder.with_suffix(".out"), "wb") as out, open(folder.with_suffix(".err"), "wb") as err:
        given = {**os.environ, "OPENAI_API_KEY": KEY, **environment}
        return Going(subprocess.Popen(command, stdout=out, stderr=err, env=given), folder)


def run(
    folder: Path, *options: str, wrap: Sequence[str] = (), program: Sequence[str] = COMMAND, **environment: str
) -> Ended:
    return begin(folder, *options, wrap=wrap, program=program, **environment).end()


def of_process(pid: int, name: str) -> str:
    """A file of /proc; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int) -> bool:
    return of_process(pid, "stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


def await_end(pids: Sequence[int]) -> None:
    """Every one of *pids* ends by itself within ten seconds."""
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, [of_process(pid, "cmdline") for pid in pids]
        time.sleep(0.02)


def filled(events: Path) -> bool:
    """More than 20 events are stamped in a file that a worker is writing."""
    found = mapped(events)
    return found is not None and len(found) > 20 and bool(found["t_ns"][20])


def mapped(path: Path) -> np.ndarray | None:
    """The array of a file that a worker is writing; None before its head is there."""
    try:
        return np.load(path, mmap_mode="r")
    except (EOFError, ValueError, FileNotFoundError):
        return None


def report(folder: Path, reading: str = "report") -> subprocess.CompletedProcess[str]:
    """`fastllmload report` of the folder, or another command that reads it."""
    return subprocess.run([*COMMAND, reading, str(folder)], capture_output=True, text=True, timeout=60)
