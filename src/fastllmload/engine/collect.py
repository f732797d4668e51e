"""Collects what the hosts of a run have kept, and concludes the run with it: `fastllmload collect` (docs/many-hosts.md).

The files of a host come to `.work/collected` of the run folder. When all bytes of a host are there, they replace what was
there of it before, and what was merged is merged once more with them (`records.worker_files`). Only after that a folder on a
host is removed. A collection that is killed leaves a run folder that can be read and collected again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from fastllmload import __version__
from fastllmload.documents.fields import without
from fastllmload.documents.run import Phase, RunDocument
from fastllmload.documents.run_parts.hosts import HostEntry, WatchFacts
from fastllmload.engine.finalize import HOST_LIMIT, RunStatus, finalize
from fastllmload.engine.hosts.fleet import ReceiverProcess
from fastllmload.engine.hosts.group import CONNECTING_S, HostGroup, RemoteHost
from fastllmload.engine.hosts.kept.folder import read_finished
from fastllmload.engine.hosts.link.messages import AgentFacts, Collect, Failed, Finished, Message, Release
from fastllmload.engine.hosts.placement.cluster import AGENT, LOCAL, inspect, refuse_differences
from fastllmload.engine.hosts.placement.host_actor import HostFacts, facts_here
from fastllmload.engine.hosts.placement.local import LocalHost, LocalPlacement, Placement
from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.run_controller import MEASURE, not_written
from fastllmload.engine.run_plans import RunPhase
from fastllmload.errors import InputError, RunFolderError, coded
from fastllmload.host.probe import is_own
from fastllmload.plan.plan import Plan
from fastllmload.records import layout
from fastllmload.records.error_texts import NAME as TEXTS
from fastllmload.records.error_texts import remaining_texts
from fastllmload.records.event_totals import TOTALS
from fastllmload.records.hosts import ALONE, LOST, host_folder, read_clocks
from fastllmload.records.integrity import EVENTS, ROWS, TEXT, find_damage
from fastllmload.records.run import DONE, read_document
from fastllmload.records.worker_files import MERGED, open_remaining
from fastllmload.report.terminal.view import Ui
from fastllmload.settings import Hosts

WORKERS, COLLECTED, REPLACED = "workers", "collected", "replaced"
CONCLUDED = (DONE, "interrupted", "partial")  # run.json "status" of a run that its driver concluded
GONE = "host-folder-gone"
MEASURED = ("files", "metrics", "certificate")  # of run.json: what is not so any more while files are replaced
WAIT_S = 0.1


def collect(path: Path, address: str | None, keep: bool, ui: Ui) -> int:
    """Collect what the hosts of the run in *path* have kept and return the exit code. InputError.

    *address*: of the Ray cluster, if it is not the one that the run used. *keep*: do not remove folders on hosts.
    """
    refuse(path, read_document(path))
    folder = Folder.open(path)
    try:
        document = folder.document
        keeping = [host for host in document.hosts if host.folder is not None]
        if not keeping:
            ui.message("no host keeps files of this run: nothing is left to collect")
            return 0
        with reaching(keeping, address or document.config.hosts.address) as (group, away):
            return Collection(folder, document, group, away, keep, ui).run()
    finally:
        folder.clean()


def refuse(path: Path, document: RunDocument) -> None:
    """InputError where nothing can be collected."""
    if not document.hosts:
        raise InputError("hosts-none", f"the run of {path} had one host only: all of it is in its folder")
    if document.tool.version != __version__:
        raise InputError(
            "hosts-differ",
            f"{path} was recorded by version {document.tool.version}, this is {__version__}: use the former",
        )


@contextmanager
def reaching(hosts: Sequence[HostEntry], address: str | None) -> Iterator[tuple[HostGroup, dict[int, str]]]:
    """Agents on those of *hosts* that can be reached; and why others cannot, by number. InputError."""
    placement, found = reached(hosts, address)
    away = {
        host.host: coded("host-away", f"{title(host)} is not {where(address)}") for host in hosts if host not in found
    }
    group = HostGroup(placement, [host.host for host in found])
    try:
        for remote, host in zip(group.hosts, found, strict=True):
            remote.first, remote.count = min(host.workers, default=0), len(host.workers)
        yield group, away
    finally:
        group.close()


def where(address: str | None) -> str:
    return "this machine" if on_this_machine(address) else f"in the Ray cluster {address}"


def on_this_machine(address: str | None) -> bool:
    return address is None or address == LOCAL


def title(host: HostEntry) -> str:
    return f"host {host.host} ({host.name})"


def reached(hosts: Sequence[HostEntry], address: str | None) -> tuple[Placement, list[HostEntry]]:
    """The placement of agents, and the hosts that it has, in its order. InputError."""
    if on_this_machine(address):
        here = [host for host in hosts if is_own(str(host.address))]
        if not here:
            raise InputError("option-missing", f"{title(hosts[0])} is another machine: name its Ray cluster with --ray")
        places = [LocalHost(str(host.name), str(host.address)) for host in here]
        return LocalPlacement(len(places), places), here
    placement = inspect(Hosts(address=address), AGENT)
    try:
        nodes = placement.hosts()
        found = [(host, node) for host in hosts if (node := node_of(host, nodes)) is not None]
        placement.use([node for _, node in found])
        refuse_differences(facts_here("", ""), placement.hosts())
    except BaseException:
        placement.abandon()
        raise
    return placement, [host for host, _ in found]


def node_of(host: HostEntry, nodes: Sequence[HostFacts]) -> HostFacts | None:
    """The node with the address of *host*, or else the only one with its name."""
    of_name = [node for node in nodes if node.name == host.name]
    alike = [node for node in nodes if node.address == host.address] or (of_name if len(of_name) == 1 else [])
    return alike[0] if alike else None


@dataclass
class Collection:
    """One collection. *away*: why files of a host did not come; *arrived*: hosts whose files did; *complete*: hosts that had
    sent everything, and removed their folder, before the driver could note that.
    """

    folder: Folder
    document: RunDocument
    group: HostGroup
    away: dict[int, str]
    keep: bool
    ui: Ui
    arrived: set[int] = field(default_factory=set)
    complete: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.path = self.folder.path
        self.staged = self.folder.work / COLLECTED
        self.entries = {host.host: host for host in self.document.hosts}

    def run(self) -> int:
        self._receive()
        for sentence in self.away.values():
            self.ui.message(sentence)
        if self._figures_would_be_lost():
            apart = f"{self.path} has no events (--collect summary): they are collected from all hosts, or from none"
            self.ui.message(coded("events-elsewhere", apart))
        elif self.arrived or self.complete:
            document = self._conclude()
            self._release()
            self.ui.finish(document, folder=str(self.path))
        return HOST_LIMIT if self.away else 0

    def _figures_would_be_lost(self) -> bool:
        """Whether a host that is away has reported on its events: with those of the others only, less would be known."""
        known = (self.path / TOTALS).exists() and self.folder.document.status in CONCLUDED
        return known and any(self.entries[number].status != LOST for number in self.away)

    # -- what comes from hosts -----------------------------------------------------------------------------------------

    def _receive(self) -> None:
        self.staged.mkdir(mode=0o700)
        receiver = ReceiverProcess(self.group, self.staged)
        receiver.start()
        until = time.monotonic() + CONNECTING_S
        try:
            while self.group.running:
                for host, message in self.group.poll(WAIT_S):
                    self._process(host, message, receiver.port)
                receiver.restarted()
                for host in self.group.running:
                    if host.facts is None and time.monotonic() > until:
                        self.group.lose(host, f"did not connect within {CONNECTING_S:g} s")
        finally:
            receiver.close()
        for host in self.group.hosts:
            if host.lost is not None and host.number not in self.complete:
                self.away.setdefault(host.number, coded("host-away", f"{host.title} was lost: {host.lost}"))

    def _process(self, host: RemoteHost, message: Message, port: int) -> None:
        if isinstance(message, AgentFacts):
            asked = Collect(
                folder=str(self.entries[host.number].folder), run_id=str(self.document.run_id), files_port=port
            )
            self.group.send(host, asked)
        elif isinstance(message, Failed):
            if message.code == GONE and read_finished(host_folder(self.path, self.entries[host.number])) is not None:
                self.complete.add(host.number)
            else:
                self.away[host.number] = coded(message.code, f"{host.title}: {message.sentence}")
            self.group.lose(host, message.sentence)
        elif isinstance(message, Finished) and message.problem is not None:
            kept = f"{host.title} keeps its files in {message.kept}: {message.problem}"
            self.away[host.number] = coded("host-files-kept", kept)
        elif isinstance(message, Finished):
            self.arrived.add(host.number)

    def _release(self) -> None:
        """Let hosts remove what is in the run folder now."""
        hosts = [host for host in self.group.hosts if host.number in self.arrived]
        for host in hosts:
            host.finished = None
            self.group.send(host, Release(remove=not self.keep))
        while any(host.running for host in hosts):
            self.group.poll(WAIT_S)
        for host in hosts:
            problem = host.lost if host.finished is None else host.finished.problem
            if problem is not None:
                left = f"{host.title} still has the folder {self.entries[host.number].folder}: {problem}"
                self.ui.message(coded("host-folder-left", left))

    # -- the run folder ------------------------------------------------------------------------------------------------

    def _conclude(self) -> RunDocument:
        found = self.folder.document
        driver_lost = found.status not in CONCLUDED
        self._reopen()
        if driver_lost:
            self.incident("driver-lost", "the driver was lost before the run had ended: hosts ended by themselves")
        for number in sorted(self.arrived):
            self._replace(self.entries[number])
        if (self.path / WORKERS / MERGED).is_dir():
            texts = self.path / WORKERS / MERGED / TEXTS
            texts.unlink(missing_ok=True)
            texts.write_bytes(msgspec.json.encode(remaining_texts(self.path, self.document.error_texts)))
        missing: Counter[str] = Counter()
        write_failed, hosts = False, []
        for host in found.hosts:
            finished = read_finished(host_folder(self.path, host))
            hosts.append(self._described(host, finished, driver_lost))
            if finished is not None and host.host in self.arrived:
                missing.update(finished.missing)
                write_failed |= finished.write_failed
        lost = {worker for host in hosts if host.status == LOST for worker in host.workers}
        workers = (replace(each, died=each.died or each.worker in lost) for each in found.workers)
        self.folder.update(hosts=tuple(hosts), workers=tuple(workers))
        unwritten = ", ".join(f"{count:,} {name}" for name, count in missing.items() if count)
        if (unwritten or write_failed) and not found.disk_full:
            self.folder.update(disk_full=True)
            self.incident("disk-full" if write_failed else "disk-slow", not_written(write_failed, unwritten))
        if driver_lost:
            *before, last = found.phases
            self.folder.update(phases=(*before, self._ended(last)))
        disk_full = bool(self.folder.document.disk_full)
        status = RunStatus(
            interrupted=found.status == "interrupted",
            disk_full=disk_full,
            killed=int(driver_lost or (found.status == "partial" and not disk_full)),
        )
        measured = [phase for phase in found.phases if phase.name == MEASURE]
        phases = [RunPhase(MEASURE, layout.MEASURE, Plan.read_record(self.path / "plan")) for _ in measured]
        return finalize(self.folder, phases, status)

    def _reopen(self) -> None:
        """Make the folder one whose rows are not merged yet. RunFolderError where they were changed."""
        document, workers = self.folder.document, self.path / WORKERS
        damage = find_damage(self.path, document)
        for name in (ROWS, EVENTS, TEXT):
            if name in damage and (self.path / ROWS).exists():
                raise RunFolderError("run-file-damaged", f"{damage[name]}; nothing can be added to this run")
        incidents = (text for text in document.incidents if not text.endswith("[host-file-cut]"))
        self.folder.document = replace(without(document, MEASURED), incidents=tuple(incidents))
        self.folder.save()
        workers.mkdir(exist_ok=True)
        if (self.path / ROWS).exists():
            for merged in workers.glob("[0-9]*"):  # their removal was not completed
                shutil.rmtree(merged)
            (workers / MERGED).mkdir(exist_ok=True)
            for name in (TEXT, EVENTS, ROWS):  # rows last: a folder without them is not a merged one
                if (self.path / name).exists():
                    (self.path / name).replace(workers / MERGED / name)
        for name in (EVENTS, TEXT):  # of a merge that was not completed
            (self.path / name).unlink(missing_ok=True)

    def _replace(self, host: HostEntry) -> None:
        """Put what came of *host* in the place of what was there of it; not where that has more rows."""
        here, there = rows_by_worker(self.path / WORKERS), rows_by_worker(self.staged / WORKERS)
        parts = [
            f"hosts/{host.host}",
            *(f"{WORKERS}/{worker}" for worker in host.workers if here[worker] <= there[worker]),
        ]
        for worker in host.workers:
            if here[worker] > there[worker]:
                few = f"{title(host)} has {there[worker]:,} rows of worker {worker}"
                self.incident("host-rows-missing", f"{few}; {here[worker]:,} were copied during the run, and kept")
        for number, part in enumerate(parts):
            if (self.staged / part).is_dir():
                replaced = self.folder.work / REPLACED / f"{host.host}-{number}"
                replaced.parent.mkdir(exist_ok=True)
                if (self.path / part).exists():
                    os.rename(self.path / part, replaced)
                (self.path / part).parent.mkdir(exist_ok=True)
                os.rename(self.staged / part, self.path / part)
        self.incident("host-collected", f"{title(host)}: its files were collected after the run")

    def _described(self, host: HostEntry, finished: Finished | None, driver_lost: bool) -> HostEntry:
        """*host* of run.json, completed by the last report of its agent."""
        found = without(host, ("events", "last_event_ns"))  # of events that stayed there
        if host.host in self.arrived | self.complete:
            found = replace(found, folder=host.folder if self.keep and host.host in self.arrived else None)
        if finished is not None:
            unwritten = finished.write_failed or any(finished.missing.values())
            watched = host.watch if finished.watch == WatchFacts() else finished.watch
            found = replace(found, watch=watched, disk_full=unwritten or host.disk_full, tap=finished.tap or host.tap)
        if driver_lost or (host.status == LOST and host.host in self.arrived):
            known = finished is not None and host.host not in self.away
            found = replace(found, status=ALONE if known else LOST)
        return found

    def _ended(self, phase: Phase) -> Phase:
        """The *phase* in which the driver was lost, which ends with the last dispatch."""
        last = last_dispatch(self.path, self.folder.document.hosts) if phase.drained_ns is None else None
        if last is None:
            return phase
        return replace(phase, end_ns=last + 1 if phase.end_ns is None else min(phase.end_ns, last + 1))

    def incident(self, code: str, sentence: str) -> None:
        """Record and show what happened, unless an earlier collection has recorded it."""
        if coded(code, sentence) not in self.folder.document.incidents:
            self.folder.incident(code, sentence)
            self.ui.message(coded(code, sentence))


def rows_by_worker(folder: Path) -> Counter[int]:
    """How many requests that were dispatched have a row in *folder*, `workers` of a run."""
    found: Counter[int] = Counter()
    for each in folder.iterdir() if folder.is_dir() else ():
        if (each / ROWS).exists():
            rows = open_remaining(each / ROWS, layout.REQUEST)[0]
            workers, counts = np.unique(rows["worker"][rows["t_dispatch"] > 0], return_counts=True)
            for worker, count in zip(workers.tolist(), counts.tolist(), strict=True):
                found[worker] = max(found[worker], count)
    return found


def last_dispatch(folder: Path, hosts: Sequence[HostEntry]) -> int | None:
    """When the last request was dispatched, in the driver's clock; None where that is not known."""
    clocks, merged = read_clocks(folder, hosts), folder / WORKERS / MERGED / ROWS
    found = [last_of(merged)]
    for host in (each for each in hosts if each.host in clocks):
        last = max((last_of(folder / WORKERS / str(worker) / ROWS) for worker in host.workers), default=0)
        found.append(int(clocks[host.host].to_driver(last)) if last else 0)
    return max(found) or None


def last_of(path: Path) -> int:
    """The last dispatch of the rows in *path*; 0 without any."""
    return int(open_remaining(path, layout.REQUEST)[0]["t_dispatch"].max(initial=0)) if path.exists() else 0
