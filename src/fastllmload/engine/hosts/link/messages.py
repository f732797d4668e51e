"""What the driver and the agents of a run send each other: MessagePack in the frames of `link.py`.

The driver is the supervisor of the run; an agent runs the workers of one host. All instants are CLOCK_MONOTONIC ns, those
of `Control` in the driver's clock.
"""

from __future__ import annotations

import msgspec

from fastllmload.documents.run_parts.hosts import Tap, WatchFacts
from fastllmload.engine.workers.spec import WorkerSpec

PROTOCOL = 3  # changes with any message
CHUNK_BYTES = 1 << 16


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The line of JSON on an agent's stdin. *folder*: where it makes its own folder; empty: the system's temporary one."""

    address: str  # of the driver
    tcp_port: int
    udp_port: int
    key: str  # of this run, hex digits; who has it may take part in the run
    host: int
    folder: str = ""

    def __repr__(self) -> str:
        return f"AgentConfig(host={self.host}, address={self.address!r}, key=***)"


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First frame of a connection. *purpose*: "agent", or "files" for that which carries files to the driver."""

    protocol: int
    host: int
    purpose: str
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, frozen=True, tag="proof"):
    proof: bytes


class AgentFacts(msgspec.Struct, frozen=True, kw_only=True, tag="facts"):
    """What an agent reports about its host once it is connected. *files*: the limit of open files, None without one.
    *no_ring*: why it cannot open a packet socket, as a clause; None: it can.
    """

    name: str
    version: str  # of fastllmload
    pid: int
    folder: str
    cores: int
    ports: int
    files: int | None
    cpu: str
    kernel: str
    python: str
    memory_bytes: int
    no_ring: str | None = None


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """Bytes of a file. *path*: relative, with `/`."""

    path: str
    offset: int
    data: bytes


class FileEnd(msgspec.Struct, frozen=True, tag="file"):
    """All bytes of a file have been sent."""

    path: str
    size: int
    crc32: int


class FilesEnd(msgspec.Struct, frozen=True, tag="files"):
    """All files have been sent; FilesChecked follows."""


class FilesChecked(msgspec.Struct, frozen=True, tag="checked"):
    """*differing*: files whose bytes are not those that were sent. *problem*: why files could not be written."""

    differing: tuple[str, ...] = ()
    problem: str | None = None


class StartWorkers(msgspec.Struct, frozen=True, kw_only=True, tag="start-workers"):
    """Start the workers *first* to *first* + *count*. *spec*: of the first one, with paths relative to the agent's folder.

    *pinned*: CPUs of the host's workers (--pin). *collect*: "rows" or "summary". *files_port*: of the driver, for files.
    *events_per_s*: that the workers of the host expect. Its `spec.timestamps` is what was asked, `auto` too.
    """

    spec: WorkerSpec
    first: int
    count: int
    pinned: tuple[int, ...] = ()
    collect: str = "rows"
    files_port: int = 0
    events_per_s: float = 0.0


class WorkersStarted(msgspec.Struct, frozen=True, tag="workers-started"):
    """The workers' processes run, on these CPUs if they were given some of their own, with stamps from *timestamps*."""

    pids: tuple[int, ...]
    cpus: tuple[int | None, ...]
    timestamps: str = "kernel"


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The agent cannot take part; it ends."""

    code: str
    sentence: str


class Control(msgspec.Struct, frozen=True, kw_only=True, tag="control"):
    """What all workers are to do: the words that the driver writes (counters.pxd). *watch*: the measurement begins."""

    phase: int = 0
    start_ns: int = 0
    command: int = 0
    watch: bool = False


class KillWorker(msgspec.Struct, frozen=True, tag="kill-worker"):
    worker: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the workers: by ABORT, after *patience_s* by signals."""

    patience_s: float


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """All workers have ended or must end now: complete the files and send them to the driver."""


class Summarize(msgspec.Struct, frozen=True, tag="summarize"):
    """Answer the driver's questions about the events that stay here (--collect summary); their file has been sent."""


class Summarized(msgspec.Struct, frozen=True, tag="summarized"):
    """The answers are at the driver; *problem*: why they are not, as a clause."""

    problem: str | None = None


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """The driver has processed the beats up to *number*."""

    number: int


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """Words that have changed: their positions (uint32) and new values (int64), little-endian."""

    positions: bytes
    values: bytes


class Increments(msgspec.Struct, frozen=True, array_like=True):
    """By how much the histograms of a host have grown, those of `totals.HISTOGRAMS` in that order: positions (uint32) in
    int64[n, histogram.WORDS], what is added there (uint32), and the least and greatest value of each, int64[n, 2].
    """

    positions: bytes
    counts: bytes
    extremes: bytes


class ClassReport(msgspec.Struct, frozen=True, array_like=True):
    """The classes of a mix on a host. *counts*: int64[n, 3], requests in flight, answered, failed. *histograms*: of each
    class TTFT and E2E.
    """

    counts: bytes
    histograms: Increments


class WorkerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's process has ended. *stderr*: its last lines. *stuck*: it made no progress and was killed."""

    worker: int
    returncode: int
    stuck: bool = False
    stderr: str = ""


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag="beat"):
    """The state of a host, four times a second. *figures*: int64[workers, 5], `host.cpu.ProcessFigures`.

    *words*: of all workers, positions in int64[workers, counters.WORDS]. *histograms*, *classes* of a mix: once a second.
    """

    number: int
    words: Changes
    figures: bytes = b""
    histograms: Increments | None = None
    classes: ClassReport | None = None
    ended: tuple[WorkerEnd, ...] = ()


class Incident(msgspec.Struct, frozen=True, tag="incident"):
    code: str
    sentence: str


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The last message of an agent, or the last before Summarize. *missing*: rows, events and texts that its disk lacks.
    *kept*: the folder, when files in it are not at the driver. *problem*: why, unless that was asked for. *tap*: what its
    ring saw. *events*, *last_event_ns* (in the driver's clock): of events that stay here, whose part of the tap is complete.
    """

    missing: dict[str, int]
    write_failed: bool
    watch: WatchFacts = WatchFacts()
    tap: Tap | None = None
    kept: str | None = None
    problem: str | None = None
    events: int | None = None
    last_event_ns: int | None = None


class Collect(msgspec.Struct, frozen=True, kw_only=True, tag="collect"):
    """Send the files of *folder*, which an earlier agent of the same host and run has kept, to *files_port* of the driver.
    Answered by Finished or Failed.
    """

    folder: str
    run_id: str
    files_port: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """The files of that folder are in their place; *remove* the folder, or leave it. Answered by Finished."""

    remove: bool


Message = (
    AgentFacts
    | Chunk
    | FileEnd
    | FilesEnd
    | FilesChecked
    | StartWorkers
    | WorkersStarted
    | Failed
    | Control
    | KillWorker
    | Stop
    | Finish
    | Summarize
    | Summarized
    | Seen
    | Beat
    | Incident
    | Finished
    | Collect
    | Release
)
