"""The workers of a run: what their words in shared memory say, and how those of this machine are started and end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.certificate.monitor import Watch
from fastllmload.documents.run_parts.hosts import HostEntry, WatchFacts
from fastllmload.engine.recording.class_rows import ClassCounts, ClassRows
from fastllmload.engine.recording.row_process import RowProcess
from fastllmload.engine.workers.cpu_isolation import isolate_cpus
from fastllmload.engine.workers.spec import WorkerSpec
from fastllmload.host.cpu import ProcessFigures, process_figures
from fastllmload.host.interfaces import carriers
from fastllmload.records.samples import SAMPLE, sample
from fastllmload.records.shared_memory import SharedWords
from fastllmload.settings import KEY_VARIABLES

STARTING_S = 60.0
WORDS = range(k.WORDS)
LASTING = (k.W_IN_FLIGHT, k.W_WAITING, k.W_CONNECTIONS, k.W_IDLE)
WORKER = (sys.executable, "-m", "fastllmload.engine.workers.worker")


class Process(Protocol):
    """A worker's process, on this machine or another one."""

    returncode: Any  # int once it has ended, negative for a signal; else None

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass
class Member:
    """A worker. *words*: its counters, or a copy of them; the first of them are written here."""

    spec: WorkerSpec
    words: npt.NDArray[np.int64]
    process: Process
    died: bool = False
    stuck: bool = False  # it made no progress for 60 s and was killed
    lost: bool = False  # with its host

    @property
    def pid(self) -> int:
        return self.process.pid

    def figures(self) -> ProcessFigures | None:
        """CPU time and memory of its process; None when that has ended."""
        raise NotImplementedError

    def stderr(self) -> str:
        """What it wrote to stderr: nothing, or the traceback of its death."""
        raise NotImplementedError


@dataclass
class LocalMember(Member):
    """A worker of this machine."""

    shared: SharedWords = field(kw_only=True)
    log: Path = field(kw_only=True)

    def figures(self) -> ProcessFigures | None:
        return process_figures(self.pid)

    def stderr(self) -> str:
        try:
            return self.log.read_text(errors="replace").strip()
        except OSError:
            return ""


def launch(spec: WorkerSpec, life: int) -> LocalMember:
    """Start one worker in its own process group (docs/decisions/02-processes.md). *life*: a descriptor to keep open."""
    rows = Path(spec.rows_dir)
    log = rows / "stderr.txt"
    shared = SharedWords.create()
    spec = msgspec.structs.replace(spec, words_memory=shared.descriptor)
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE, stdout=errors, stderr=errors, process_group=0, env=environment(),
            pass_fds=[
                each for each in (spec.rows_memory, spec.texts_memory, spec.words_memory, life, spec.ends_fd) if each >= 0
            ],
        )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: watch() detects that, and its log contains the reason
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.close()
    return LocalMember(spec, shared.words, process, shared=shared, log=log)


def environment() -> dict[str, str]:
    """The supervisor's environment without the API key: workers get it on stdin, the row writer does not need it."""
    return {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}


@dataclass(frozen=True)
class HostState:
    """A host of a run over many, as the driver sees it. *silent_s*: since something was received from it."""

    number: int
    name: str
    status: str  # running, late (it began after time zero), ended, lost
    silent_s: float


class Fleet:
    """All workers of a run. A member that ends before its state is FINISHED has died; the others continue.

    *lead_ns*: time that an instant takes, in addition, to reach every worker. *write_failed*: a write of rows failed;
    *missing*: rows, events and texts that are not on a disk. Both are known after `finish`.
    """

    lead_ns = 0

    def __init__(self) -> None:
        self.members: Sequence[Member] = []
        self.write_failed = False
        self.missing: Mapping[str, int] = {}
        self._incidents: list[tuple[str, str]] = []

    def incident(self, code: str, sentence: str) -> None:
        """Let the next `update` return this."""
        self._incidents.append((code, sentence))

    def entries(self) -> tuple[HostEntry, ...]:
        """The hosts of run.json; none where this machine sends the load."""
        return ()

    # -- what differs between one machine and many ---------------------------------------------------------------------

    @contextlib.contextmanager
    def isolated(
        self, engine: int | None, helpers: Sequence[int | None], pinned: Sequence[int]
    ) -> Iterator[dict[int, int]]:
        """Give the workers CPUs of their own, as `isolate_cpus`. Yields the CPU of each worker, or {}."""
        raise NotImplementedError

    def update(self) -> list[tuple[str, str]]:
        """Call several times a second. Returns the incidents since the last call, (code, sentence)."""
        found, self._incidents = self._incidents, []
        return found

    def begin_watch(self) -> None:
        """Monitor the machine from now on: all workers are READY for the measurement."""
        raise NotImplementedError

    def stop(self, patience_s: float = 10.0) -> None:
        """End all workers by ABORT, then SIGTERM, then SIGKILL."""
        raise NotImplementedError

    def finish(self, folder: Path) -> WatchFacts:
        """Complete the files in the run folder after the workers' end. Returns the watch on this machine."""
        raise NotImplementedError

    def full_disks(self) -> list[str]:
        """The disks on which rows could not be written."""
        return ["the disk"] if self.total(k.W_DISK_FULL) else []

    def sending_must_end(self) -> str | None:
        """Why no more requests may be sent, as a clause; None: they may. What cannot be recorded must not be sent."""
        return "the disk is full" if self.full_disks() else None

    # -- state and commands --------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if not member.died]

    def watch(self) -> list[Member]:
        """Members whose death this call detected."""
        found = []
        for member in self.alive:
            if member.process.poll() is not None and (member.lost or member.words[k.W_STATE] != k.FINISHED):
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
            member.words[k.W_CLOCK_SHIFT] = 0
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

    def join(self, patience_s: float = 60.0) -> list[Member]:
        """Wait for workers to close their files after their last phase. Returns those that died meanwhile."""
        self._await(patience_s)
        return self.watch()

    def _await(self, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        for member in self.members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.0, until - time.monotonic()))

    # -- counters ------------------------------------------------------------------------------------------------------

    def total(self, word: int) -> int:
        """Sum over all members; for current levels such as W_IN_FLIGHT over living members only."""
        members = self.alive if word in LASTING else self.members
        return int(sum(member.words[word] for member in members))

    def hosts(self) -> Sequence[HostState]:
        """The hosts of a run over many; none where this machine sends the load."""
        return ()

    def words_by_host(self, words: Sequence[int] = WORDS) -> npt.NDArray[np.int64]:
        """The counters *words* of counters.pxd, summed over the members of each host, int64[hosts, words]; one row on this
        machine. Current levels such as W_IN_FLIGHT are those of living members.
        """
        counters = self.living_levels(np.array([member.words[list(words)] for member in self.members]), words)
        found: npt.NDArray[np.int64] = counters.sum(axis=0, keepdims=True)
        return found

    def living_levels(self, counters: npt.NDArray[np.int64], words: Sequence[int]) -> npt.NDArray[np.int64]:
        """*counters*, the *words* of each member, without the current levels of those that died."""
        dead = [number for number, member in enumerate(self.members) if member.died]
        counters[np.ix_(dead, [column for column, word in enumerate(words) if word in LASTING])] = 0
        return counters

    def histogram(self, number: int) -> npt.NDArray[np.int64]:
        """Histogram *number* of all members together; a new array."""
        raise NotImplementedError

    def lags_by_host(self) -> npt.NDArray[np.int64]:
        """The histogram H_LAG of each host, int64[hosts, histogram.WORDS]; not a copy."""
        found: npt.NDArray[np.int64] = self.histogram(k.H_LAG)[np.newaxis]
        return found

    def class_counts(self, folder: Path, classes: int) -> Callable[[], Sequence[ClassCounts]]:
        """What says, at each call, the counts of each of the *classes* of a mix; rows of this machine are in *folder*."""
        return ClassRows(folder, [member.spec.worker for member in self.members], classes).counts

    def samples(self, t_ns: int, phase: int) -> npt.NDArray[np.void]:
        """A row of samples.npy for each living member."""
        rows = [sample(t_ns, one.spec.worker, phase, one.words, one.figures()) for one in self.alive]
        return np.concatenate(rows) if rows else np.empty(0, SAMPLE)

    # -- what a worker said --------------------------------------------------------------------------------------------

    def last_message(self, member: Member, redact: Callable[[str], str]) -> str:
        lines = self.log_of(member, redact).splitlines()
        return lines[-1] if lines else "nothing on stderr"

    def log_of(self, member: Member, redact: Callable[[str], str]) -> str:
        """Everything that a worker wrote to stderr: nothing, or the traceback of its death."""
        return redact(member.stderr())


def interfaces_of(spec: WorkerSpec) -> tuple[str, ...]:
    """The interfaces over which a worker sends to its targets."""
    addresses = dict.fromkeys(target.address for target in spec.targets if target.family != "unix")
    return carriers(addresses, spec.source_addresses)


class LocalFleet(Fleet):
    """The workers of this machine, the process that writes their rows, and the watch on the machine."""

    members: list[LocalMember]

    def __init__(self, rows: RowProcess) -> None:
        super().__init__()
        self.members = []
        self.rows = rows
        self.monitor: Watch | None = None
        self._watching = False

    @classmethod
    def start(cls, specs: Sequence[WorkerSpec]) -> LocalFleet:
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
        fleet.monitor = Watch(
            [member.shared for member in fleet.members], specs[0].worker, interfaces=interfaces_of(specs[0])
        )
        return fleet

    @contextlib.contextmanager
    def isolated(
        self, engine: int | None, helpers: Sequence[int | None], pinned: Sequence[int]
    ) -> Iterator[dict[int, int]]:
        processes = {member.spec.worker: member.pid for member in self.members}
        with isolate_cpus(processes, engine, (*helpers, self.rows.pid), pinned) as cpus:
            yield cpus

    def update(self) -> list[tuple[str, str]]:
        if self.monitor is not None and self._watching:
            self.monitor.poll()
        ended = self.rows.restarted()
        if ended is not None:
            self.incident(
                "row-writer-ended",
                f"the process that writes rows to the disk {ended}: a new process continues its work",
            )
        return super().update()

    def begin_watch(self) -> None:
        assert self.monitor is not None
        self.monitor.start()
        self._watching = True

    def histogram(self, number: int) -> npt.NDArray[np.int64]:
        merged = histogram.empty()
        for member in self.members:
            histogram.add(merged, member.shared.histogram(number))
        return merged

    def stop(self, patience_s: float = 10.0) -> None:
        self.command(k.ABORT)
        self._await(patience_s)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for member in self.members:
                if member.process.poll() is None:
                    os.kill(member.pid, number)
            self._await(3.0)

    def finish(self, folder: Path) -> WatchFacts:
        watching, self._watching = self._watching, False
        self.missing = self.rows.finish()
        self.write_failed = self.rows.write_failed
        if self.monitor is None or not watching:
            return WatchFacts()
        return self.monitor.stop(folder) or WatchFacts()
