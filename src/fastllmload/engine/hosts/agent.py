"""An agent: runs the workers of one host for a driver on another one. `python -m fastllmload.engine.hosts.agent`.

Settings: `AgentConfig`, a line of JSON on stdin. It does here what the supervisor does for a run on one host (the same
workers, row writer, watch, samples), in a folder of its own with the layout of a run folder. When the link to the driver
ends, it ends the workers, keeps the folder and exits. A driver that does not read for a while stops nothing: beats that
would have to wait are left out, since each contains all that has changed since the last one.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import msgspec

from fastllmload import __version__
from fastllmload._ext.record import counters as k
from fastllmload.certificate.ceiling import cpu_model
from fastllmload.documents.fields import joined
from fastllmload.documents.run_parts.hosts import Tap, WatchFacts
from fastllmload.engine.hosts.clock.driver_clock import DriverClock
from fastllmload.engine.hosts.kept.folder import PREFIX, HostRecord, KeptFolder, write_finished, write_record
from fastllmload.engine.hosts.kept.summary import DOCUMENT, QUESTIONS, MergedHost, SummaryProcess, SummarySpec
from fastllmload.engine.hosts.link.beats import Beats
from fastllmload.engine.hosts.link.connection import Link, LinkError, connect
from fastllmload.engine.hosts.link.files import FileRefused, Incoming
from fastllmload.engine.hosts.link.messages import (
    AgentConfig,
    AgentFacts,
    Chunk,
    Collect,
    Control,
    Failed,
    FileEnd,
    Finish,
    Finished,
    Incident,
    KillWorker,
    Message,
    Release,
    Seen,
    StartWorkers,
    Stop,
    Summarize,
    Summarized,
    WorkersStarted,
)
from fastllmload.engine.hosts.link.sender import NICE, SenderSpec
from fastllmload.engine.recording.tap import TapProcess, open_tap, refusal, stamp_source
from fastllmload.engine.workers.affinity import check_pinned_cpus
from fastllmload.engine.workers.fleet import LocalFleet, environment
from fastllmload.engine.workers.spec import WorkerSpec, classes_of
from fastllmload.errors import FastLLMLoadError
from fastllmload.host import limits, probe
from fastllmload.plan.plan import BODIES, Plan
from fastllmload.records.event_totals import PART
from fastllmload.records.hosts import CLOCK
from fastllmload.records.integrity import EVENTS, TEXT
from fastllmload.records.samples import SampleLog
from fastllmload.records.tap_times import SEGMENTS, WATCHED
from fastllmload.settings import Client

SENDER = (sys.executable, "-m", "fastllmload.engine.hosts.link.sender")
BEAT_S, POLL_S = 0.25, 0.02  # between beats; between checks of states while no clock runs
WAITING_S = 1.0  # between beats before there are workers
DRIVER_S = 3600.0  # for the driver to check the target and build its plans, before it answers agents
SILENT_NS = 60_000_000_000  # a worker without a heartbeat for this long hangs
LOST_STOP_S, ENDING_S = 1.0, 10.0  # for workers after the loss of the driver; for the driver to close the link
ROWS = ("workers", "hosts")  # folders whose files go to the driver
KEPT = (EVENTS, TEXT, SEGMENTS, WATCHED)  # names of files that stay here with --collect summary
LATE_NS = 5_000_000  # the instant at which the measurement starts must be known this long before
FOLLOW_S = 1.0  # between corrections of the schedule
BYTES_PER_S = 32e6  # of files while the clock runs
Task = StartWorkers | Stop | Finish | Summarize | Collect | Release


class Agent:
    """The workers of one host, from the connection to the driver to the last file."""

    def __init__(self, config: AgentConfig, link: Link, folder: Path) -> None:
        self.config, self.link, self.folder = config, link, folder
        self.clock = DriverClock(config)
        self.incoming = Incoming(
            folder, lambda path: path.startswith(("plans/", "tls/")) or path in (DOCUMENT, QUESTIONS)
        )
        self.own = folder / "hosts" / str(config.host)
        self.fleet: LocalFleet | None = None
        self.tap: TapProcess | None = None
        self.first = self.files_port = 0
        self.keeps_events = False  # --collect summary
        self.summary: SummaryProcess | None = None
        self.control = Control()
        self.log: SampleLog | None = None
        self.sender: subprocess.Popen[bytes] | None = None
        self.isolation = contextlib.ExitStack()
        self.beats = Beats(link)
        self.todo: list[Task] = []  # what takes long, in order of arrival
        self.record: BinaryIO | None = None  # of its folder; open while there is an agent
        self.kept: KeptFolder | None = None  # of an earlier agent
        self.terminated = False
        self._due = self._follow_due = 0.0

    def run(self) -> int:
        """Work until the driver needs nothing more. Returns the exit code."""
        try:
            self.link.send(facts(self.folder))
            while not self.terminated:
                self.step()
                if self.todo and self._do(self.todo.pop(0)):
                    return 0
        except (LinkError, FileRefused) as problem:
            if self.summary is not None:  # the driver has what it waits for, or has to do without it
                self.summary.kill()
                self._remove_plans()
                return 0
            print(f"the driver is lost: {problem}", file=sys.stderr)
        finally:
            self.clock.close()
        self._end_alone()
        return 1

    # -- messages ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Process what the driver sent and report, after a short wait. LinkError."""
        begun = self.fleet is not None
        wait = max(0.0, min(POLL_S if begun and not self._clock_runs() else BEAT_S, self._due - time.monotonic()))
        writing = [self.link] if self.link.pending else []
        select.select([self.link], writing, [], wait if begun else BEAT_S)
        self.link.flush()
        for message in self.link.receive():
            self._handle(message)
        if self.fleet is not None:
            self._report(self.fleet)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + WAITING_S
            self.beats.idle()

    def _clock_runs(self) -> bool:
        return self.control.start_ns > 0

    def _handle(self, message: Message) -> None:
        if isinstance(message, Chunk):
            self.incoming.write(message)
        elif isinstance(message, FileEnd):
            self.incoming.finish(message)
        elif isinstance(message, Control):
            self._apply(message)
        elif isinstance(message, Seen):
            self.beats.seen = message.number
        elif isinstance(message, KillWorker) and self.fleet is not None:
            self.fleet.members[message.worker - self.first].process.kill()
        elif isinstance(message, Task):
            self.todo.append(message)

    def _apply(self, wanted: Control) -> None:
        """Pass to the workers what has changed."""
        known, self.control = self.control, wanted
        fleet = self.fleet
        if fleet is None:
            return
        if (wanted.phase, wanted.start_ns) != (known.phase, known.start_ns) and not wanted.start_ns:
            fleet.begin_phase(wanted.phase)
        if wanted.watch and not known.watch:
            fleet.begin_watch()
        if wanted.start_ns and wanted.start_ns != known.start_ns:
            at_ns = self.clock.start(wanted.start_ns)
            left_ns = at_ns - time.monotonic_ns()
            fleet.start_clock(at_ns)
            if self.sender is None:  # until now the workers needed the CPUs to start
                self._start_sender(self.folder, ROWS)
            if left_ns < LATE_NS and wanted.phase == fleet.members[0].spec.phases[-1].number:
                when = f"{abs(left_ns) / 1e6:.1f} ms {'before' if left_ns >= 0 else 'after'} it"
                fleet.incident("host-late", f"it got the instant of the start {when}: its first requests are late")
        if wanted.command != known.command:
            fleet.command(wanted.command)

    def _do(self, message: Task) -> bool:
        """Do what takes long; whether it was the last. The driver gets beats meanwhile."""
        if isinstance(message, StartWorkers):
            self._start(message)
        elif isinstance(message, Summarize):
            self._answer()
        elif isinstance(message, Collect):
            self._send_kept(message)
        elif isinstance(message, Release):
            self._release(message.remove)
            return True
        elif (fleet := self.fleet) is not None:
            if isinstance(message, Finish):
                self._finish(fleet)
                return self.summary is None
            patience_s = message.patience_s
            self._meanwhile(lambda: fleet.stop(patience_s))
        return False

    def _meanwhile(self, work: Callable[[], object]) -> None:
        """Do *work* in a thread and continue to report. Its exception is raised here."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - raised in the other thread
                failed.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            while thread.is_alive():
                self.step()
        except BaseException:
            for process in (self.sender, self.summary):
                if process is not None:
                    process.kill()  # *work* may wait for it
            raise
        finally:
            thread.join()
        if failed:
            raise failed[0]

    # -- the workers ---------------------------------------------------------------------------------------------------

    def _start(self, start: StartWorkers) -> None:
        """Check the plans and start the workers; a failure is reported to the driver."""
        try:
            checked = self.incoming.checked()
            if checked.problem is not None or checked.differing:
                raise FileRefused(checked.problem or f"other bytes arrived of {', '.join(checked.differing)}")
            check_pinned_cpus(start.pinned)
            specs = own_specs(start, self.folder)
            self._meanwhile(lambda: verify_plans(specs[0]))
            self._meanwhile(self.clock.wait)
            self.own.mkdir(parents=True)
            self.record = write_record(self.folder, HostRecord(start.spec.run_id, self.config.host))
            reader = self._start_tap(start)
            self.fleet = LocalFleet.start(specs)
        except (FastLLMLoadError, FileRefused, OSError) as problem:
            code = problem.code if isinstance(problem, FastLLMLoadError) else "host-unusable"
            self.link.send(Failed(code, problem.message if isinstance(problem, FastLLMLoadError) else str(problem)))
            return
        self.first, self.keeps_events = start.first, start.collect == "summary"
        self.files_port = start.files_port
        self.beats.begin([spec.worker for spec in specs], self.folder, classes_of(specs[0]))
        self.log = SampleLog(self.own / "samples.npy")
        cpus = self.isolation.enter_context(self.fleet.isolated(None, (reader,), start.pinned))
        pids = tuple(member.pid for member in self.fleet.members)
        own = tuple(cpus.get(start.first + number) for number in range(start.count))
        self.link.send(WorkersStarted(pids, own, stamp_source(start.spec.timestamps, reader is not None)))

    def _start_tap(self, start: StartWorkers) -> int | None:
        """The process id of the reader of this host's packet ring; None without one. HostLimitError: it was asked for.

        Segments go to the driver, which joins them to the rows; where events stay here, they stay with them.
        """
        client = Client(timestamps=start.spec.timestamps, transport=start.spec.transport, pin=start.pinned)
        self.tap = open_tap(client, start.spec.targets, start.events_per_s, start.count, own_cores())
        if self.tap is None:
            return None
        return self.tap.start(self.own)

    def _start_sender(self, folder: Path, parts: tuple[str, ...]) -> None:
        """It runs where this process may, since that is isolated from the workers."""
        spec = SenderSpec(
            address=self.config.address,
            port=self.files_port,
            key=self.config.key,
            host=self.config.host,
            folder=str(folder),
            parts=parts,
            bytes_per_s=BYTES_PER_S,
            kept=KEPT if self.keeps_events else (),
        )
        self.sender = subprocess.Popen(
            SENDER, stdin=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0, env=environment()
        )
        os.setpriority(os.PRIO_PROCESS, self.sender.pid, NICE)
        assert self.sender.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: `_finish` reports that
            self.sender.stdin.write(msgspec.json.encode(spec) + b"\n")
            self.sender.stdin.flush()

    def _report(self, fleet: LocalFleet) -> None:
        """Send a beat when one is due, or when a worker's state has changed."""
        now, changed = time.monotonic(), self.beats.changed(fleet.members)
        if now < self._due and not changed:
            return
        self._due = now + BEAT_S
        fleet.end_stuck(time.monotonic_ns() - SILENT_NS)
        fleet.watch()
        rows = fleet.samples(time.monotonic_ns(), self.control.phase)
        if self.log is not None and self._clock_runs():
            self.log.append(rows)
        self.beats.send(fleet, rows, with_histograms=changed)
        if self._clock_runs() and now > self._follow_due:
            self._follow_due = now + FOLLOW_S
            self._follow_clock(fleet)
        for code, sentence in fleet.update():
            self.link.send(Incident(code, sentence))

    def _follow_clock(self, fleet: LocalFleet) -> None:
        """Let the schedule follow the driver's clock, and keep what is known of it."""
        shift_ns = self.clock.shift_ns()
        for member in fleet.members:
            member.words[k.W_CLOCK_SHIFT] = shift_ns
        self.clock.save(self.own / CLOCK)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self, fleet: LocalFleet) -> None:
        """Complete the files, send them, and report the end. The folder is removed when the driver has all of it."""
        self._meanwhile(lambda: fleet.stop(0.0))
        tap = self._stop_tap()
        self.isolation.close()
        self.clock.save(self.own / CLOCK)
        self._follow_due = math.inf  # what is saved stays: rows are moved into the driver's clock by it
        self._remove_inputs()  # on a full disk the following steps need some room
        log, self.log = self.log, None
        assert log is not None
        log.close()
        watched: list[WatchFacts] = []
        unwritten = None
        try:
            self._meanwhile(lambda: watched.append(fleet.finish(self.own)))
        except OSError as error:
            unwritten = f"files cannot be completed: {(error.strerror or str(error)).lower()}"
        finished = finished_of(fleet, watched[0] if watched else WatchFacts(), tap)
        if unwritten is None:
            write_finished(self.own, finished)
        if self.sender is None:  # no clock has run
            self._start_sender(self.folder, ROWS)
        problem = self._send_rest() or unwritten
        merged = MergedHost()
        if self.keeps_events and problem is None:
            merged, problem = self._merge()
        kept = str(self.folder) if problem is not None or self.keeps_events else None
        self.link.send(
            msgspec.structs.replace(
                finished, kept=kept, problem=problem, events=merged.events, last_event_ns=merged.last_event_ns,
                tap=None if tap is None else joined(tap, merged.tap),
            )
        )  # fmt: skip
        if kept is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.summary is None:
            self._await_close()

    def _await_close(self) -> None:
        """Let what was sent arrive."""
        with contextlib.suppress(LinkError):  # the driver closes the link when it has all that it waits for
            self.link.drain(ENDING_S)
            until = time.monotonic() + ENDING_S
            while time.monotonic() < until:
                select.select([self.link], [], [], BEAT_S)
                self.link.receive()

    def _merge(self) -> tuple[MergedHost, str | None]:
        """Merge this host's rows and send them; a clause when that failed."""
        self.summary = summary = SummaryProcess(SummarySpec(folder=str(self.folder), host=self.config.host))
        found: list[MergedHost | str] = []
        self._meanwhile(lambda: found.append(summary.merged()))
        if isinstance(found[0], str):
            self.summary = None
            return MergedHost(), found[0]
        return found[0], self._send_summary()

    def _answer(self) -> None:
        """Answer the driver's questions. The folder stays, with what this host measured."""
        assert self.summary is not None
        summary, found = self.summary, list[str | None]()
        self._meanwhile(lambda: found.append(summary.answer()))
        self._remove_plans()
        problem = found[0] or self._send_summary()
        for copied in (self.own / PART).glob("*.npy"):
            copied.unlink()
        self.link.send(Summarized(problem))

    def _send_summary(self) -> str | None:
        self._start_sender(self.folder, (f"hosts/{self.config.host}/{PART}",))
        return self._send_rest()

    def _stop_tap(self) -> Tap | None:
        """Let the rest of the packet ring be written; what it saw, None without one."""
        tap, self.tap = self.tap, None
        if tap is None:
            return None
        problems: list[str | None] = []
        self._meanwhile(lambda: problems.append(tap.stop()))
        for problem in problems:
            if problem is not None:
                self.link.send(Incident("tap-ended", problem))
        return tap.facts

    def _send_rest(self) -> str | None:
        """Let the sender send what is left; a clause when not all of it is at the driver."""
        sender = self.sender
        assert sender is not None
        output: list[bytes] = []

        def wait() -> None:
            output.append(sender.communicate()[1])

        self._meanwhile(wait)
        if sender.returncode == 0:
            return None
        lines = output[0].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process that sends files ended with exit code {sender.returncode}"

    def _send_kept(self, wanted: Collect) -> None:
        """Send what an earlier agent has kept; the folder stays as it is until Release."""
        kept = self.kept = KeptFolder(wanted.folder)
        try:
            self._meanwhile(lambda: kept.check(HostRecord(wanted.run_id, self.config.host)))
        except FastLLMLoadError as problem:
            self.link.send(Failed(problem.code, problem.message))
            return
        self.files_port = wanted.files_port
        self._start_sender(kept.path, ROWS)
        self.link.send(Finished(missing={}, write_failed=False, kept=wanted.folder, problem=self._send_rest()))

    def _release(self, remove: bool) -> None:
        assert self.kept is not None
        problem = self.kept.remove() if remove else None
        kept = str(self.kept.path) if problem is not None or not remove else None
        self.link.send(Finished(missing={}, write_failed=False, kept=kept, problem=problem))
        shutil.rmtree(self.folder, ignore_errors=True)
        self._await_close()

    def _remove_inputs(self) -> None:
        """Remove what contains bodies and TLS keys."""
        for name in ("tls",) if self.keeps_events else ("plans", "tls"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for bodies in self.folder.glob(f"plans/*/{BODIES}"):
            bodies.unlink()

    def _remove_plans(self) -> None:
        shutil.rmtree(self.folder / "plans", ignore_errors=True)

    def _end_alone(self) -> None:
        """End the workers without a driver, and keep the folder."""
        self.link.close()
        if self.sender is not None:
            self.sender.kill()
            self.sender.communicate()
        if self.fleet is not None:
            self.fleet.stop(LOST_STOP_S)
        if self.tap is not None:
            self.tap.stop()
        if self.fleet is not None:
            self.clock.save(self.own / CLOCK)
            watched = self.fleet.finish(self.own)
            write_finished(self.own, finished_of(self.fleet, watched, None if self.tap is None else self.tap.facts))
        self.isolation.close()
        if self.log is not None:
            self.log.close()
        self._remove_inputs()
        self._remove_plans()
        if self.fleet is None:
            shutil.rmtree(self.folder, ignore_errors=True)


def own_specs(start: StartWorkers, folder: Path) -> list[WorkerSpec]:
    """The specs of this host's workers, with paths of this host."""
    replace, spec = msgspec.structs.replace, start.spec
    tls = {name: str(folder / path) for name in ("cacert", "cert", "key") if (path := getattr(spec, name)) is not None}
    phases = tuple(replace(phase, plan_dir=str(folder / phase.plan_dir)) for phase in spec.phases)
    return [
        replace(
            spec,
            worker=start.first + number,
            supervisor_pid=os.getpid(),
            rows_dir=str(folder / spec.rows_dir / str(start.first + number)),
            phases=phases,
            pin_cpu=start.pinned[number % len(start.pinned)] if start.pinned else None,
            **tls,
        )
        for number in range(start.count)
    ]


def finished_of(fleet: LocalFleet, watched: WatchFacts, tap: Tap | None) -> Finished:
    """The last report about *fleet*; *watched*: what its `finish` returned; *tap*: what the packet ring saw."""
    return Finished(missing=dict(fleet.missing), write_failed=fleet.write_failed, watch=watched, tap=tap)


def verify_plans(spec: WorkerSpec) -> None:
    for phase in spec.phases:
        Plan.open(Path(phase.plan_dir)).verify()


def facts(folder: Path) -> AgentFacts:
    return AgentFacts(
        name=platform.node(), version=__version__, pid=os.getpid(), folder=str(folder),
        cores=own_cores(), ports=limits.port_capacity(), files=limits.file_limit().hard,
        cpu=cpu_model() or "", kernel=platform.release(), python=platform.python_version(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), no_ring=refusal(),
    )  # fmt: skip


def own_cores() -> int:
    return max(1, int(probe.cores()))


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it
    line = sys.stdin.buffer.readline()
    if line == b"":  # the run does not need this host
        return 0
    config = msgspec.json.decode(line, type=AgentConfig)
    limits.raise_nofile()
    try:
        link = connect(config.address, config.tcp_port, bytes.fromhex(config.key), config.host, "agent", DRIVER_S)
    except (OSError, LinkError) as problem:
        print(f"no connection to the driver at {config.address}:{config.tcp_port}: {problem}", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{config.host}-", dir=config.folder or None))
    agent = Agent(config, link, folder)

    def terminate(number: int, frame: FrameType | None) -> None:
        agent.terminated = True

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, terminate)
    return agent.run()


if __name__ == "__main__":
    sys.exit(main())
