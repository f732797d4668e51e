"""The settings of a worker, one JSON line on its stdin: they contain the API key, which argv and files do not."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fastllmload.plan.plan import read_document
from fastllmload.settings import DEFAULT_ENDPOINT, SessionIdentity


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """*head_prefix*: latin-1 lines, each ended by CRLF, without those that differ by request (id, session, length)."""

    url: str
    family: str  # inet, inet6, unix
    address: str  # numeric, or the path of a Unix socket
    port: int
    head_prefix: str
    weight: float = 1.0  # its part of the requests, relative to the other targets
    tls: bool = False
    server_name: str | None = None


class PhaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One phase. Counts are totals over all workers; times are ns."""

    number: int
    name: str
    phase_code: int  # recorder.Phase
    plan_dir: str
    mode: str  # open, closed; slots of classes are in the plan
    concurrency: int = 0  # closed loop: slots
    max_concurrency: int = 0  # open loop: most in flight, 0 = no cap
    max_prefill: int = 0  # most that wait for their first token, 0 = no cap
    stop_sending_ns: int = 0  # slots and turns: no request from this offset on, 0 = no bound
    num_requests: int = 0  # closed loop: requests, 0 = no bound
    drain_ns: int = 0  # cancel what is in flight this long after the last release, 0 = never
    initial_connections: int = 1  # of this worker


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one worker process needs."""

    worker: int
    workers: int
    supervisor_pid: int
    run_id: str
    rows_dir: str
    targets: tuple[TargetSpec, ...]
    phases: tuple[PhaseSpec, ...]
    timeout_ns: int
    class_heads: tuple[tuple[str, ...], ...] = ()  # per class of requests, per target; empty: the targets' own
    class_targets: tuple[tuple[int, int], ...] = ()  # per class: first target, number of targets; empty: all for all
    protocols: tuple[str, ...] = (DEFAULT_ENDPOINT,)  # the endpoint type of each class; one of all classes
    strict_decode: bool = False
    timestamps: str = "kernel"
    transport: str = "reactor"
    fresh_connections: bool = False
    http2_streams: int = 0  # most on a connection; 0: HTTP/1.1
    websocket: bool = False  # connections are upgraded, all those of a target alike
    spin_budget: float = 0.15
    pin_cpu: int | None = None
    record_text: bool = False
    words_memory: int = -1  # inherited descriptor of its SharedWords
    rows_memory: int = -1  # inherited descriptor of the memory that its rows go to (rowmemory.pxd)
    texts_memory: int = -1  # the same for the texts of failures (row_writer.py)
    max_event_bytes: int = 8 << 20
    source_addresses: tuple[str, ...] = ()
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    tls_resume: bool = False
    session: SessionIdentity | None = None  # None: requests do not name their session
    backend_header: str | None = None  # of answers: names the server that answered; None: it is not asked
    ends_fd: int = -1  # inherited descriptor that gets a line for each session that has ended; -1: none
    secrets: tuple[str, ...] = ()  # to be replaced in every text that is stored


def classes_of(spec: WorkerSpec) -> int:
    """How many classes of requests the last phase has."""
    return len(read_document(Path(spec.phases[-1].plan_dir)).description.classes)
