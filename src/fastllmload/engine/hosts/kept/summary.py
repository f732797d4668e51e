"""What driver, agent and the process that summarises a host's events (`summarizer.py`) pass to each other."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import msgspec

from fastllmload.documents.run_parts.hosts import Tap
from fastllmload.engine.workers.fleet import environment

PROCESS = (sys.executable, "-m", "fastllmload.engine.hosts.kept.summarizer")
DOCUMENT, QUESTIONS = "run.json", "questions.json"  # that the driver sends


class SummarySpec(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    host: int


class MergedHost(msgspec.Struct, frozen=True, kw_only=True):
    """*last_event_ns* is in the driver's clock; *tap*: what joining the segments of the packet ring found."""

    events: int | None = None
    last_event_ns: int | None = None
    tap: Tap = Tap()


class SummaryProcess:
    """The process, as the agent sees it."""

    def __init__(self, spec: SummarySpec) -> None:
        self._process = subprocess.Popen(
            PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
            env=environment(),
        )  # fmt: skip
        self._write(msgspec.json.encode(spec))

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: what reads its answer reports that
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def merged(self) -> MergedHost | str:
        """What it has merged, or a clause that says why it did not."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return msgspec.json.decode(line, type=MergedHost) if line else self.end()

    def answer(self) -> str | None:
        """Let it answer the questions; a clause when it did not."""
        self._write(b"")
        problem = self.end()
        return None if self._process.returncode == 0 else problem

    def end(self) -> str:
        """Wait for its end; a clause that says how it ended."""
        _, errors = self._process.communicate()
        lines = errors.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process that summarises events ended with code {self._process.returncode}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
