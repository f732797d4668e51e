"""Starts, watches, commands and reaps worker processes. Communicates with them through shared memory only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.engine.recording.row_process import RowProcess
from fastllmload.engine.workers.spec import WorkerSpec
from fastllmload.records.shared_memory import SharedWords

STARTING_S = 60.0
LASTING = (k.W_IN_FLIGHT, k.W_CONNECTIONS, k.W_IDLE)
WORKER = (sys.executable, "-m", "fastllmload.engine.workers.worker")


@dataclass
class Member:
    spec: WorkerSpec
    shared: SharedWords
    process: subprocess.Popen[bytes]
    log: Path
    died: bool = False
    stuck: bool = False  # it made no progress for 60 s and was killed

    @property
    def words(self) -> npt.NDArray[np.int64]:
        return self.shared.words

    @property
    def pid(self) -> int:
        return self.process.pid


def launch(spec: WorkerSpec, life: int) -> Member:
    """Start one worker in its own process group (docs/decisions/02-processes.md). *life*: a descriptor to keep open."""
    rows = Path(spec.rows_dir)
    log = rows / "stderr.txt"
    shared = SharedWords.create()
    spec = msgspec.structs.replace(spec, words_memory=shared.descriptor)
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE, stdout=errors, stderr=errors, process_group=0, env=environment(),
            pass_fds=(spec.rows_memory, spec.texts_memory, spec.words_memory, life),
        )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: watch() detects that, and its log contains the reason
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.close()
    return Member(spec, shared, process, log)


def environment() -> dict[str, str]:
    """The supervisor's environment without the API key: workers get it on stdin, the row writer does not need it."""
    return {name: text for name, text in os.environ.items() if name != "OPENAI_API_KEY"}


@dataclass
class Fleet:
    """All workers of a run. A member that ends before its state is FINISHED has died; the others continue."""

    rows: RowProcess
    members: list[Member] = field(default_factory=list)

    @classmethod
    def start(cls, specs: Sequence[WorkerSpec]) -> Fleet:
        """Start one process per spec. When one of them cannot be started, all are stopped."""
        fleet = cls(RowProcess(specs, environment()))
        try:
            fleet.rows.start()
            for spec, rows, texts in zip(specs, fleet.rows.memories, fleet.rows.texts, strict=True):
                spec = msgspec.structs.replace(spec, rows_memory=rows, texts_memory=texts)
                fleet.members.append(launch(spec, fleet.rows.life))
        except BaseException:
            fleet.stop()
            fleet.rows.finish()
            raise
        return fleet

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if not member.died]

    def watch(self) -> list[Member]:
        """Members whose death this call detected."""
        found = []
        for member in self.alive:
            if member.process.poll() is not None and member.words[k.W_STATE] != k.FINISHED:
                member.died = True
                found.append(member)
        return found

    def end_stuck(self, since_ns: int) -> None:
        """Kill members of the running phase without a heartbeat since *since_ns*: no load is better than a hang."""
        for member in self.alive:
            running = member.words[k.W_STATE] in (k.RUNNING, k.DRAINING)
            if running and max(member.words[k.W_HEARTBEAT_NS], member.words[k.W_START_NS]) < since_ns:
                member.stuck = True
                member.process.kill()
                member.process.wait()

    def command(self, word: int) -> None:
        for member in self.members:
            member.words[k.W_COMMAND] = word

    def begin_phase(self, number: int) -> None:
        """Let every worker load phase *number*; `start_clock` follows when all are READY."""
        for member in self.members:
            member.words[k.W_START_NS] = 0
            member.words[k.W_PHASE] = number

    def ready(self, number: int) -> bool:
        return all(self.is_ready(member, number) for member in self.alive)

    @staticmethod
    def is_ready(member: Member, number: int) -> bool:
        """Whether *member* waits for the clock of phase *number*."""
        return bool(member.words[k.W_STATE] == k.READY and member.words[k.W_PHASE_DONE] == number)

    def start_clock(self, at_ns: int) -> None:
        for member in self.members:
            member.words[k.W_START_NS] = at_ns

    def phase_ended(self, number: int) -> bool:
        """Whether all workers have ended the phase; one that ended before the phase began, on command, counts too."""
        return all(
            member.words[k.W_PHASE_DONE] > number or member.words[k.W_STATE] in (k.FINISHED, k.FAILED)
            for member in self.alive
        )

    def sending_over(self) -> bool:
        return all(member.words[k.W_STATE] not in (k.RUNNING, k.READY) for member in self.alive)

    def total(self, word: int) -> int:
        """Sum over all members; for current levels such as W_IN_FLIGHT over living members only."""
        members = self.alive if word in LASTING else self.members
        return int(sum(member.words[word] for member in members))

    def words(self) -> npt.NDArray[np.int64]:
        """The counters of counters.pxd, summed over all members."""
        found: npt.NDArray[np.int64] = np.sum([member.words[: k.WORDS] for member in self.members], axis=0)
        return found

    def histogram(self, number: int) -> npt.NDArray[np.int64]:
        merged = histogram.empty()
        for member in self.members:
            histogram.add(merged, member.shared.histogram(number))
        return merged

    def stop(self, patience_s: float = 10.0) -> None:
        """End all workers by ABORT, then SIGTERM, then SIGKILL."""
        self.command(k.ABORT)
        self._await(patience_s)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for member in self.members:
                if member.process.poll() is None:
                    os.kill(member.pid, number)
            self._await(3.0)

    def join(self, patience_s: float = 60.0) -> list[Member]:
        """Wait for workers to close their files after their last phase. Returns those that died meanwhile."""
        self._await(patience_s)
        return self.watch()

    def _await(self, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        for member in self.members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.0, until - time.monotonic()))

    def last_message(self, member: Member, redact: Callable[[str], str]) -> str:
        lines = self.log_of(member, redact).splitlines()
        return lines[-1] if lines else "nothing on stderr"

    def log_of(self, member: Member, redact: Callable[[str], str]) -> str:
        """Everything that a worker wrote to stderr: nothing, or the traceback of its death."""
        try:
            return redact(member.log.read_text(errors="replace").strip())
        except OSError:
            return ""
