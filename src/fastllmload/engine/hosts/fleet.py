"""The workers of many hosts as one fleet: their counters and histograms are copies that the agents keep up to date."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.hosts import HostEntry, WatchFacts
from fastllmload.documents.write import encoded
from fastllmload.engine.hosts.group import HostGroup, RemoteHost, listen_at
from fastllmload.engine.hosts.kept.summary import DOCUMENT, QUESTIONS
from fastllmload.engine.hosts.link.beats import SummedClasses, SummedHistograms, apply
from fastllmload.engine.hosts.link.connection import LinkError
from fastllmload.engine.hosts.link.messages import (
    Beat,
    Control,
    Failed,
    Finish,
    Incident,
    KillWorker,
    Message,
    Stop,
    Summarize,
    Summarized,
)
from fastllmload.engine.hosts.link.receiver import ReceiverSpec
from fastllmload.engine.recording.class_rows import ClassCounts
from fastllmload.engine.recording.totals import HISTOGRAMS
from fastllmload.engine.workers.fleet import LASTING, WORDS, Fleet, HostState, Member, environment
from fastllmload.engine.workers.spec import WorkerSpec, classes_of
from fastllmload.host.cpu import ProcessFigures
from fastllmload.records.samples import PROCESS, SAMPLE, SLOTS

if TYPE_CHECKING:
    from fastllmload.engine.hosts.kept.events import Questions

RECEIVER = (sys.executable, "-m", "fastllmload.engine.hosts.link.receiver")
LEAD_NS = 300_000_000  # for an instant to reach all hosts
WAIT_S = 0.1
STOPPING_S = 15.0  # for an agent to end its workers by signals
LATE = "host-late"  # code of an incident
LOST = -9  # exit code of a worker that was lost with its host
# A sample with its counters and figures as one array: one assignment instead of one for each
COLUMNS = np.dtype(
    {
        "names": ["columns"],
        "formats": [("<i8", (len(SLOTS) + len(PROCESS),))],
        "offsets": [SAMPLE.itemsize - 8 * (len(SLOTS) + len(PROCESS))],  # they are its last fields
        "itemsize": SAMPLE.itemsize,
    }
)
Words = npt.NDArray[np.int64]


class RemoteProcess:
    """The process of a worker on another host, as far as its agent has reported."""

    def __init__(self, fleet: HostFleet, host: RemoteHost, worker: int, pid: int) -> None:
        self._fleet, self._host, self._worker = fleet, host, worker
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self._fleet.group.send(self._host, KillWorker(self._worker))

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = WAIT_S if until is None else until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._fleet.pump(min(left, WAIT_S))
        return self.returncode


@dataclass
class RemoteMember(Member):
    host: RemoteHost = field(kw_only=True)
    used: Words = field(kw_only=True)  # ProcessFigures
    errors: str = ""

    def figures(self) -> ProcessFigures | None:
        return ProcessFigures(*self.used.tolist()) if self.used.any() and self.process.poll() is None else None

    def stderr(self) -> str:
        return self.errors


class ReceiverProcess:
    """The driver's process that writes the files of all hosts into the run folder. It ends with this process.

    It is not needed before `start`: who connects earlier waits.
    """

    def __init__(self, group: HostGroup, folder: Path) -> None:
        self._socket = listen_at(group.placement.driver_address)
        self._spec = ReceiverSpec(
            descriptor=self._socket.fileno(),
            key=group.key.hex(),
            folder=str(folder.absolute()),
            workers={host.number: (host.first, host.count) for host in group.hosts},
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Nothing if it was started before."""
        if self._process is None:
            self._process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            RECEIVER, stdin=subprocess.PIPE, pass_fds=(self._socket.fileno(),), process_group=0, env=environment()
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: `restarted` starts another one
            process.stdin.write(msgspec.json.encode(self._spec) + b"\n")
            process.stdin.flush()
        return process

    def restarted(self) -> str | None:
        """Start a new process if it has ended, and return how it ended; None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None or self._closed:
            return None
        self.close_input()
        self._process = self._launch()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self) -> None:
        self._closed = True
        self.close_input()
        if self._process is not None:
            self._process.wait()
        self._socket.close()


class HostFleet(Fleet):
    """The workers of *group*'s hosts. Agents connect to it; *on_loss* is "continue" or "stop"."""

    lead_ns = LEAD_NS
    members: list[RemoteMember]

    def __init__(self, group: HostGroup, specs: Sequence[WorkerSpec], folder: Path, on_loss: str) -> None:
        super().__init__()
        self.group = group
        self.on_loss = on_loss
        self.keeps_events = False  # --collect summary
        self.receiver = ReceiverProcess(group, folder)
        self.control = Control()
        self._clockless = False
        self.lost: set[int] = set()  # hosts whose loss is reported
        self.full: set[int] = set()  # hosts whose full disk is reported
        self.counters = np.zeros((len(specs), k.WORDS), np.int64)
        self.used = np.zeros((len(specs), len(PROCESS)), np.int64)
        self.histograms = SummedHistograms(len(HISTOGRAMS), len(group.hosts), HISTOGRAMS.index(k.H_LAG))
        self.classes = SummedClasses(classes_of(specs[0]), len(group.hosts))
        self.members = []

    @classmethod
    def start(
        cls,
        group: HostGroup,
        specs: Sequence[WorkerSpec],
        folder: Path,
        *,
        pinned: Sequence[int] = (),
        collect: str = "rows",
        on_loss: str = "continue",
    ) -> HostFleet:
        """Let all agents start their workers. When one of them cannot, the run does not begin."""
        (folder / "workers").mkdir(exist_ok=True)
        fleet = cls(group, specs, folder, on_loss)
        fleet.keeps_events = collect == "summary"
        try:
            group.start(specs, pinned, collect, fleet.receiver.port)
        except BaseException:
            fleet.receiver.close()
            raise
        fleet.members = [fleet._member(host, specs[w]) for host in group.hosts for w in workers_of(host)]
        fleet._process_all(group.early)
        return fleet

    def _member(self, host: RemoteHost, spec: WorkerSpec) -> RemoteMember:
        assert host.started is not None
        process = RemoteProcess(self, host, spec.worker, host.started.pids[spec.worker - host.first])
        return RemoteMember(spec, self.counters[spec.worker], process, host=host, used=self.used[spec.worker])

    # -- what agents report --------------------------------------------------------------------------------------------

    def pump(self, seconds: float = 0.0) -> None:
        """Process what agents have sent; wait for at most *seconds*."""
        self._process_all(self.group.poll(seconds))

    def _process_all(self, messages: Sequence[tuple[RemoteHost, Message]]) -> None:
        for host, message in messages:
            try:
                self._process(host, message)
            except LinkError as problem:
                self.group.lose(host, str(problem))
        for host in self.group.hosts:
            if host.lost is not None and host.number not in self.lost:
                self.lost.add(host.number)
                self._lose(host)

    def _process(self, host: RemoteHost, message: Message) -> None:
        if isinstance(message, Beat):
            self._apply(host, message)
        elif isinstance(message, Incident):
            host.late |= message.code == LATE
            self.incident(message.code, f"{host.title}: {message.sentence}")
        elif isinstance(message, Failed):
            self.group.lose(host, message.sentence)
        elif isinstance(message, Summarized) and message.problem is not None:
            self.group.lose(host, f"its events could not be summarised: {message.problem}")

    def _apply(self, host: RemoteHost, beat: Beat) -> None:
        own = slice(host.first, host.first + host.count)
        apply(beat.words, self.counters[own])
        if beat.figures:
            figures = np.frombuffer(beat.figures, "<i8")
            if len(figures) != self.used[own].size:
                raise LinkError("figures of another number of processes were received")
            self.used[own] = figures.reshape(self.used[own].shape)
        if beat.histograms is not None:
            self.histograms.add(host.number, beat.histograms)
        if beat.classes is not None:
            self.classes.add(host.number, beat.classes)
        for end in beat.ended:
            if not 0 <= end.worker - host.first < host.count:
                raise LinkError(f"the end of worker {end.worker} of another host was received")
            member = self.members[end.worker]
            member.errors, member.stuck = end.stderr, end.stuck
            member.process.returncode = end.returncode

    def _lose(self, host: RemoteHost) -> None:
        """Let the workers of a lost host die; those that had ended too, since their rows did not all arrive."""
        for member in (self.members[w] for w in workers_of(host)):
            member.died = member.lost = True
            member.process.returncode = LOST
        self.classes.lose(host.number)
        self.incident("host-lost", f"{host.title} was lost: {host.lost}")

    def watch(self) -> list[Member]:
        self.pump()
        return super().watch()

    def update(self) -> list[tuple[str, str]]:
        if not self.group.responder.alive and not self._clockless:
            self._clockless = True
            self.incident(
                "clock-responder-ended",
                "the process that answers hosts' clocks ended: their clocks are not compared any more",
            )
        ended = self.receiver.restarted()
        if ended is not None:
            self.incident(
                "file-receiver-ended",
                f"the process that receives the files of hosts {ended}: a new process continues its work",
            )
        for host in self._full():
            if host.number not in self.full:
                self.full.add(host.number)
                self.incident("host-disk-full", f"{host.title}: its disk is full, so it sends no more requests")
        return super().update()

    def _full(self) -> list[RemoteHost]:
        """Hosts on which rows could not be written."""
        return [host for host in self.group.hosts if self.counters[list(workers_of(host)), k.W_DISK_FULL].any()]

    def full_disks(self) -> list[str]:
        return [f"the disk of {host.title}" for host in self._full()]

    def entries(self) -> tuple[HostEntry, ...]:
        full = self._full()
        return tuple(entry(host, host in full) for host in self.group.hosts)

    def end_stuck(self, since_ns: int) -> None:
        """Agents do that, on their clocks."""

    def sending_must_end(self) -> str | None:
        lost, full = [host for host in self.group.hosts if host.lost is not None], self._full()
        if self.on_loss == "stop" and (lost or full):
            return f"{lost[0].title} was lost" if lost else f"the disk of {full[0].title} is full"
        left = [host for host in self.group.running if host not in full]
        return None if left or not full else "the disks of all hosts are full"

    # -- commands ------------------------------------------------------------------------------------------------------

    def _command(self, **changed: int | bool) -> None:
        self.control = msgspec.structs.replace(self.control, **changed)
        self._broadcast(self.control)

    def _broadcast(self, message: Message) -> None:
        for host in self.group.running:
            self.group.send(host, message)

    def command(self, word: int) -> None:
        super().command(word)
        self._command(command=word)

    def begin_phase(self, number: int) -> None:
        super().begin_phase(number)
        self._command(phase=number, start_ns=0)

    def start_clock(self, at_ns: int) -> None:
        super().start_clock(at_ns)
        self._command(start_ns=at_ns)
        self.receiver.start()

    def begin_watch(self) -> None:
        self._command(watch=True)

    @contextlib.contextmanager
    def isolated(
        self, engine: int | None, helpers: Sequence[int | None], pinned: Sequence[int]
    ) -> Iterator[dict[int, int]]:
        """Agents do that on their hosts."""
        cpus = {
            host.first + number: cpu
            for host in self.group.hosts
            if host.started is not None
            for number, cpu in enumerate(host.started.cpus)
            if cpu is not None
        }
        yield cpus

    def stop(self, patience_s: float = 10.0) -> None:
        super().command(k.ABORT)
        self._broadcast(Stop(patience_s))
        self._await(patience_s + STOPPING_S)
        for host in self.group.running:
            if any(self.members[w].process.poll() is None for w in workers_of(host)):
                self.group.lose(host, f"its workers did not end within {patience_s + STOPPING_S:g} s")
        self.pump()

    def finish(self, folder: Path) -> WatchFacts:
        """Wait for the hosts' files: as long as an agent reports that it sends them."""
        if self.keeps_events:
            document = (folder / DOCUMENT).read_bytes()
            for host in self.group.running:
                self.group.send_document(host, document, DOCUMENT)
        self.receiver.start()
        self._broadcast(Finish())
        while self.group.running:
            self.pump(WAIT_S)
            self._incidents = self.update()
        if not self.keeps_events:
            self.receiver.close()
        missing: dict[str, int] = {}
        for host in self.group.hosts:
            if host.finished is None:
                continue
            self.write_failed |= host.finished.write_failed
            for name, count in host.finished.missing.items():
                missing[name] = missing.get(name, 0) + count
            if host.finished.problem is not None:
                self.incident(
                    "host-files-kept", f"{host.title} keeps its files in {host.finished.kept}: {host.finished.problem}"
                )
        self.missing = missing
        return WatchFacts()

    def ask(self, questions: Mapping[int, Questions], document: RunDocument) -> dict[int, str]:
        """Let hosts answer *questions* about the events that stay there, with *document* as their run.json; wait for it.
        Returns why other hosts are lost to the run, as clauses by number.
        """
        content = encoded(document)
        for host in self.group.hosts:
            host.asked, host.silent_s = host.lost is None, 0.0
            problem = "it is gone" if host.finished is None or host.link is None else host.finished.problem
            if problem is not None:
                self.group.lose(host, f"its events could not be summarised: {problem}")
            elif host.number in questions:
                self.group.send_document(host, content, DOCUMENT)
                self.group.send_document(host, msgspec.json.encode(questions[host.number]), QUESTIONS)
                self.group.send(host, Summarize())
        while self.group.running:
            self.pump(WAIT_S)
            self._incidents = self.update()
        self.receiver.close()
        return {host.number: host.lost for host in self.group.hosts if host.lost is not None}

    # -- counters ------------------------------------------------------------------------------------------------------

    def total(self, word: int) -> int:
        column = self.counters[:, word]
        if word in LASTING:
            return int(column[[member.spec.worker for member in self.alive]].sum())
        return int(column.sum())

    def hosts(self) -> list[HostState]:
        return [HostState(host.number, host.place.name, state(host), host.silent_s) for host in self.group.hosts]

    def words_by_host(self, words: Sequence[int] = WORDS) -> Words:
        firsts = [host.first for host in self.group.hosts]  # each host has a worker
        found: Words = np.add.reduceat(self.living_levels(self.counters[:, list(words)], words), firsts)
        return found

    def histogram(self, number: int) -> Words:
        return self.histograms.kind(HISTOGRAMS.index(number))

    def lags_by_host(self) -> Words:
        return self.histograms.of_hosts

    def class_counts(self, folder: Path, classes: int) -> Callable[[], Sequence[ClassCounts]]:
        return self.classes.counts

    def samples(self, t_ns: int, phase: int) -> npt.NDArray[np.void]:
        living = np.array([member.spec.worker for member in self.alive], np.int64)
        rows = np.zeros(len(living), SAMPLE)
        rows["t_ns"], rows["phase"], rows["worker"] = t_ns, phase, living
        # Counters and figures are the last columns of a sample: one assignment is quicker than one for each.
        columns = rows.view(np.int64).reshape(len(rows), -1)[:, -len(SLOTS) - len(PROCESS) :]
        columns[:, : len(SLOTS)] = self.counters[:, SLOTS][living]
        columns[:, len(SLOTS) :] = self.used[living]
        rows["cpu_ns"] = np.maximum(rows["cpu_ns"], self.counters[living, k.W_CPU_NS])
        return rows


def workers_of(host: RemoteHost) -> range:
    return range(host.first, host.first + host.count)


def status(host: RemoteHost) -> str:
    if host.lost is not None:
        return "lost"
    return "running" if host.finished is None else "late" if host.late else "ended"


def state(host: RemoteHost) -> str:
    """Its status now: in contrast to that of run.json, also a host that runs is late."""
    return "late" if host.late and host.lost is None else status(host)


def entry(host: RemoteHost, disk_full: bool) -> HostEntry:
    """An entry of `hosts` of run.json."""
    found = HostEntry(
        host=host.number,
        name=host.place.name,
        address=host.place.address,
        workers=tuple(workers_of(host)),
        status=status(host),
        folder=None if host.facts is None else host.facts.folder,
        timestamps=None if host.started is None else host.started.timestamps,
        disk_full=disk_full,
    )
    end = host.finished
    if end is None:
        return found
    last = None if end.events is None else end.last_event_ns
    return msgspec.structs.replace(
        found, folder=end.kept, watch=end.watch, tap=end.tap, events=end.events, last_event_ns=last
    )
