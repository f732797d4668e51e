"""The agents of a run as the driver sees them: started, connected, prepared, and lost.

One call of `poll`, four times a second, does all communication: no thread and no wait while the clock runs. A host is lost
when its link ends, when Ray or the machine says that its agent ended, and when nothing has come from it for SILENT_S in
which the driver itself ran.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fastllmload import __version__
from fastllmload.engine.hosts.clock.exchange import ClockResponder
from fastllmload.engine.hosts.link.connection import Link, LinkError, Listener, listen
from fastllmload.engine.hosts.link.messages import (
    CHUNK_BYTES,
    AgentConfig,
    AgentFacts,
    Beat,
    Chunk,
    Failed,
    FileEnd,
    Finished,
    Incident,
    Message,
    Seen,
    StartWorkers,
    Summarized,
    WorkersStarted,
)
from fastllmload.engine.hosts.placement.local import Handle, PlacedHost, Placement
from fastllmload.engine.workers.fleet import environment
from fastllmload.engine.workers.sizing import HostLimits
from fastllmload.engine.workers.spec import WorkerSpec
from fastllmload.errors import HostLimitError, InputError
from fastllmload.files import checksum
from fastllmload.host.limits import FileLimit
from fastllmload.plan.plan import Plan

CONNECTING_S = 60.0  # for all agents to start and connect
STARTING_S = 120.0  # for agents to check their plans and start workers
SILENT_S = 10.0
AWAKE_S = 1.0  # of the time since the last poll at most this much counts as silence: the driver may have been frozen
HANDLES_S = 2.0  # between questions whether agents have ended
AHEAD = 4 << 20  # bytes of files that wait for one link at most
STEP_S = 0.005
SEEN_EVERY = 8  # beats
TLS = ("cacert", "cert", "key")  # fields of a worker's spec that name files


@dataclass(eq=False)
class RemoteHost:
    """A host of the run. *lost*: why it is lost; *late*: it got the instant of the start too late; *asked*: it answers
    questions about its events (--collect summary), which makes it *running* again.
    """

    number: int
    place: PlacedHost
    handle: Handle
    link: Link | None = None
    facts: AgentFacts | None = None
    first: int = 0  # of its workers
    count: int = 0
    events_per_s: float = 0.0  # that they expect
    started: WorkersStarted | None = None
    finished: Finished | None = None
    lost: str | None = None
    late: bool = False
    silent_s: float = 0.0
    asked: bool = False

    @property
    def title(self) -> str:
        return f"host {self.number} ({self.place.name})"

    @property
    def running(self) -> bool:
        return self.lost is None and (self.finished is None or self.asked)


class HostGroup:
    """The agents that *placement* starts, with the host *numbers* 0, 1, ... or others. HostLimitError, InputError: a host
    cannot take part.
    """

    def __init__(self, placement: Placement, numbers: Sequence[int] | None = None) -> None:
        self.placement = placement
        self.key = os.urandom(32)
        self._listener = Listener(listen_at(placement.driver_address), self.key, "agent")
        self.responder = ClockResponder(self.key, environment(), placement.driver_address)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._by_link: dict[int, RemoteHost] = {}
        self._polled = self._handles_asked = time.monotonic()
        self.hosts: list[RemoteHost] = []
        self.early: list[tuple[RemoteHost, Message]] = []  # reports of workers of hosts that have started before others
        places = placement.hosts()
        numbers = range(len(places)) if numbers is None else numbers
        try:
            handles = placement.start([self._config(number) for number in numbers])
        except BaseException:
            self.close()
            raise
        self.hosts = [RemoteHost(*each) for each in zip(numbers, places, handles, strict=True)]

    def _config(self, host: int) -> AgentConfig:
        return AgentConfig(
            address=self.placement.driver_address,
            tcp_port=self._listener.port,
            udp_port=self.responder.port,
            key=self.key.hex(),
            host=host,
        )

    @property
    def running(self) -> list[RemoteHost]:
        return [host for host in self.hosts if host.running]

    # -- before the run ------------------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Wait until every agent is connected and has reported its host; all have this version."""
        self._until(lambda host: host.facts is not None, CONNECTING_S, "did not connect to the driver")
        others = [host for host in self.hosts if host.facts is not None and host.facts.version != __version__]
        if others:
            named = ", ".join(f"{host.title} has {host.facts.version}" for host in others if host.facts is not None)
            raise InputError(
                "hosts-differ", f"all hosts must have the driver's version {__version__}: {named}; install it there"
            )

    def keep(self, count: int) -> list[RemoteHost]:
        """Continue with the first *count* hosts, and return the others, which have no part in the run: their agents end."""
        kept, others = self.hosts[:count], self.hosts[count:]
        for host in others:
            self.lose(host, "it is not needed")
        self.hosts = kept
        return others

    def cores(self) -> list[int]:
        """Of each host, after `gather`."""
        return [host.facts.cores for host in self.hosts if host.facts is not None]

    def limits(self) -> list[HostLimits]:
        """Of each host, after `gather`."""
        return [
            HostLimits(host.title, FileLimit(host.facts.files or 0, host.facts.files), host.facts.ports)
            for host in self.hosts
            if host.facts is not None
        ]

    def refuse_without_ring(self) -> None:
        """HostLimitError, after `gather`, where a host cannot open a packet socket."""
        refused: dict[str, list[str]] = {}
        for host in self.hosts:
            if host.facts is not None and host.facts.no_ring is not None:
                refused.setdefault(host.facts.no_ring, []).append(host.title)
        if refused:
            named = "; ".join(f"{', '.join(titles)}: {why}" for why, titles in refused.items())
            raise HostLimitError("tap-unavailable", f"--timestamps tap: {named}")

    def assign(self, counts: Sequence[int], events_per_s: float = 0.0) -> None:
        """Give each host its number of workers, and its share of the events that all expect."""
        first = 0
        for host, count in zip(self.hosts, counts, strict=True):
            host.first, host.count = first, count
            host.events_per_s = events_per_s * count / sum(counts)
            first += count

    def send_files(self, files: Sequence[tuple[Path, str]]) -> None:
        """Send files to all agents; each has a path relative to the agent's folder."""
        streams = {host: stream(files) for host in self.hosts}
        while streams or any(host.link is not None and host.link.pending for host in self.hosts):
            for host, messages in list(streams.items()):
                if not self._fill(host, messages):
                    del streams[host]
            self._refuse_failed(self.poll(STEP_S))

    def send_document(self, host: RemoteHost, content: bytes, path: str) -> None:
        """Send a small file to *host*, which may be lost meanwhile."""
        for offset in range(0, len(content), CHUNK_BYTES):
            self.send(host, Chunk(path, offset, content[offset : offset + CHUNK_BYTES]))
        self.send(host, FileEnd(path, len(content), zlib.crc32(content)))

    def _fill(self, host: RemoteHost, messages: Iterator[Message]) -> bool:
        """Whether more is to be sent to *host* later."""
        while host.link is not None and host.link.pending < AHEAD:
            message = next(messages, None)
            if message is None:
                return False
            self.send(host, message)
        return host.link is not None

    def start(self, specs: Sequence[WorkerSpec], pinned: Sequence[int], collect: str, files_port: int) -> None:
        """Let the agents start their workers, and wait until they have. *specs*: of all workers, as on this machine."""
        self.send_files([(Path(path), f"tls/{name}") for name in TLS if (path := getattr(specs[0], name)) is not None])
        for host in self.hosts:
            self.send(
                host,
                StartWorkers(
                    spec=relative(specs[host.first]), first=host.first, count=host.count, pinned=tuple(pinned),
                    collect=collect, files_port=files_port, events_per_s=host.events_per_s,
                ),
            )  # fmt: skip
        self._until(lambda host: host.started is not None, STARTING_S, "did not start its workers")

    def _until(self, done: Callable[[RemoteHost], bool], seconds: float, problem: str) -> None:
        until = time.monotonic() + seconds
        while not all(done(host) for host in self.hosts):
            self._refuse_failed(self.poll(0.1))
            late = [host for host in self.hosts if not done(host)]
            if late and time.monotonic() > until:
                refused = "".join(f"; a connection was refused: {why}" for why in self._listener.refused[-1:])
                raise HostLimitError("host-unusable", f"{late[0].title} {problem} within {seconds:g} s{refused}")

    def _refuse_failed(self, messages: Sequence[tuple[RemoteHost, Message]]) -> None:
        """HostLimitError when a host failed or was lost: nothing has been sent yet, and the run needs all of them."""
        for host, message in messages:
            if isinstance(message, Failed):
                raise HostLimitError(message.code, f"{host.title}: {message.sentence}")
            if isinstance(message, WorkersStarted):
                host.started = message
            elif isinstance(message, (Beat, Incident)):
                self.early.append((host, message))
        for host in self.hosts:
            if host.lost is not None:
                raise HostLimitError("host-unusable", f"{host.title} was lost before the run began: {host.lost}")

    # -- communication -------------------------------------------------------------------------------------------------

    def poll(self, seconds: float = 0.0) -> list[tuple[RemoteHost, Message]]:
        """What agents have sent; waits for at most *seconds*. Hosts that are lost are marked."""
        found: list[tuple[RemoteHost, Message]] = []
        for number, _ in self._epoll.poll(seconds):
            if number == self._listener.fileno():
                for host in self._accept():
                    found += self._receive(host)
            elif number in self._by_link:
                found += self._receive(self._by_link[number])
        now = time.monotonic()
        awake, self._polled = min(now - self._polled, AWAKE_S), now
        ask = now - self._handles_asked > HANDLES_S
        if ask:
            self._handles_asked = now
        for host in self.running:
            self._check(host, awake, ask)
        return found

    def _accept(self) -> Iterator[RemoteHost]:
        for hello, link in self._listener.accept():
            host = next((host for host in self.hosts if host.number == hello.host), None)
            if host is None or host.link is not None:
                link.close()
                continue
            host.link = link
            self._by_link[link.fileno()] = host
            self._epoll.register(link, select.EPOLLIN)
            yield host

    def _receive(self, host: RemoteHost) -> list[tuple[RemoteHost, Message]]:
        assert host.link is not None
        try:
            messages = host.link.receive()
        except LinkError as problem:
            self.lose(host, str(problem))
            return []
        host.silent_s = 0.0
        for message in messages:
            if isinstance(message, AgentFacts):
                host.facts = message
            elif isinstance(message, Beat) and message.number % SEEN_EVERY == 0:
                self.send(host, Seen(message.number))
            elif isinstance(message, Finished):
                host.finished = message
            elif isinstance(message, Summarized):
                host.asked = False
        return [(host, message) for message in messages]

    def _check(self, host: RemoteHost, awake_s: float, ask: bool) -> None:
        if host.link is not None:
            host.silent_s += awake_s
            if host.link.pending:
                with self._losing(host):
                    host.link.flush()
        if host.silent_s > SILENT_S:
            self.lose(host, f"nothing was received from it for {SILENT_S:g} s")
            host.handle.kill()  # its workers may still send
        elif ask and (how := host.handle.poll()) is not None:
            self.lose(host, how)

    def send(self, host: RemoteHost, message: Message) -> None:
        if host.link is not None and host.lost is None:
            with self._losing(host):
                host.link.send(message)

    @contextlib.contextmanager
    def _losing(self, host: RemoteHost) -> Iterator[None]:
        try:
            yield
        except LinkError as problem:
            self.lose(host, str(problem))

    def lose(self, host: RemoteHost, why: str) -> None:
        """The host no longer takes part; its agent ends when its link is closed. One that has ended is not lost."""
        if host.link is not None:
            self._by_link.pop(host.link.fileno(), None)
            host.link.close()
            host.link = None
        if host.running:
            how = host.handle.poll()
            host.lost = why if how in (None, why) else f"{why}; {how}"

    def close(self) -> None:
        """End the agents, which end their workers when their link is closed."""
        for host in self.hosts:
            if host.link is not None:
                host.link.close()
                host.link = None
        self._listener.close()
        self._epoll.close()
        self.placement.close()
        self.responder.stop()


class StartingAgents:
    """The agents of a run, which a thread starts while the driver checks its target and builds its plans."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._group: HostGroup | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="agents")
        self._thread.start()

    def _start(self) -> None:
        try:
            self._placement.find()
            self._group = HostGroup(self._placement)
        except BaseException as problem:  # noqa: BLE001 - raised in the other thread
            self._problem = problem

    def refuse_failed(self) -> None:
        """Raise what has prevented the start so far."""
        if self._problem is not None:
            raise self._problem

    def wait(self, warn: Callable[[str], object]) -> HostGroup:
        """All agents, as soon as they are started. *warn* gets each warning about their hosts."""
        self._thread.join()
        self.refuse_failed()
        assert self._group is not None
        for warning in self._placement.warnings:
            warn(f"warning: {warning}")
        return self._group

    def close(self) -> None:
        """End the agents, also those that are still being started."""
        if self._thread.is_alive():
            self._placement.interrupt()
        self._thread.join()
        if self._group is not None:
            self._group.close()


def listen_at(address: str) -> socket.socket:
    """HostLimitError where the driver cannot listen."""
    try:
        return listen(address)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise HostLimitError("listen-failed", f"agents cannot reach the driver at {address}: {why}") from problem


def stream(files: Sequence[tuple[Path, str]]) -> Iterator[Message]:
    """The messages that carry *files*."""
    for place, path in files:
        size = place.stat().st_size
        with open(place, "rb", buffering=0) as file:
            offset = 0
            while data := file.read(CHUNK_BYTES):
                yield Chunk(path, offset, data)
                offset += len(data)
        yield FileEnd(path, size, checksum(place))


def plan_files(plans: Sequence[Plan]) -> list[tuple[Path, str]]:
    """All files of *plans*, each with its path below an agent's folder."""
    return [
        (path, f"plans/{plan.directory.name}/{path.name}")
        for plan in plans
        for path in sorted(plan.directory.iterdir())
        if path.is_file()
    ]


def relative(spec: WorkerSpec) -> WorkerSpec:
    """*spec* with the paths of `plan_files` and of its TLS files below an agent's folder."""
    replace = msgspec.structs.replace
    phases = tuple(replace(phase, plan_dir=f"plans/{Path(phase.plan_dir).name}") for phase in spec.phases)
    tls = {name: f"tls/{name}" for name in TLS if getattr(spec, name) is not None}
    return replace(spec, rows_dir="workers", phases=phases, **tls)
