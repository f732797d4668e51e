"""The hosts and processes of the load generator in run.json: workers, packet ring, network, clocks."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    Events,
    Ms,
    Name,
    Names,
    Ns,
    Number,
    Plain,
    Ratio,
    RequestShare,
    Reveals,
    Samples,
    Seconds,
    Us,
    field,
)


class WorkerEntry(Document, frozen=True, kw_only=True):
    """A worker process."""

    worker: int  # its number, from 0
    died: bool  # it ended before its work was done
    exit_code: int | None = None  # of the process; negative: the signal that killed it
    cpu: int | None = None  # that it was kept on; None: any


class TapError(Document, frozen=True, kw_only=True):
    """How far apart stamps of the tap and exact receive stamps of the kernel are, us."""

    n: Samples = None  # compared stamps
    p50: Us = None
    p99: Us = None
    max: Us = None


class Tap(Document, frozen=True, kw_only=True):
    """A packet ring (`--timestamps tap`): what it saw, and what was joined to events."""

    interface: str | None = None  # lo: all targets are addresses of this host; None: every interface
    ring_bytes: Bytes = None  # size of the ring
    start_ms: Ms = None  # to open the ring and start its reader
    stop_ms: Ms = None  # to read its rest
    segments: Annotated[Number, field("segments", Reveals.LOAD)] = None  # of TCP, on connections to the targets
    payload_bytes: Annotated[Number, field("bytes", Reveals.LOAD)] = None  # of these segments
    drops: Annotated[Number, field("frames", Reveals.LOAD)] = None  # that found the ring full
    freezes: Annotated[Number, field("times")] = None  # times that the ring was full
    clock_steps: Annotated[Number, field("times")] = None  # jumps of the wall clock
    unwritten: Annotated[Number, field("segments", Reveals.LOAD)] = None  # that found the disk full
    foreign: Annotated[Number, field("frames", Reveals.LOAD)] = None  # of other programs, which its filter let pass
    other_frames: dict[str, Annotated[Number, field("frames", Reveals.LOAD)]] = {}  # not TCP (other), cut, bad
    cpu_s: Seconds = None  # of the process that reads the ring
    events: Events = None  # of the run
    joined: Events = None  # matched with one segment
    narrowed: Events = None  # TLS: matched with several
    matched_share: Ratio = None  # joined and narrowed ones of *events*
    # Events that kept their stamp and bracket. lost: frames were lost about then; gap: in bytes that no segment brought, or
    # about a change of the wall clock; missing: after a gap that nothing explains; no_handshake: the connection's was not
    # seen; ambiguous_port: two addresses of this host used the port at once; contradicted: by an earlier read; no_segment:
    # in the bracket of a TLS connection; not_watched: not over IP
    unmatched: dict[str, Events] = {}  # events that kept their stamp and bracket, by reason
    before_bracket: Events = None  # joined ones whose segment came before the worker's lower bound
    requests_timed: Count = None  # with t_wire, the instant at which the request left
    retransmitted: Annotated[Number, field("segments", Reveals.LOAD)] = None  # whose bytes had all come before
    out_of_order: Annotated[Number, field("segments", Reveals.LOAD)] = None  # that came after a later one
    gaps: Plain = None  # in the bytes of a connection, as frames were lost
    other_connections: Annotated[Number, field("segments", Reveals.LOAD)] = None  # of no request of the run
    against_kernel_stamps_us: TapError | None = None


class CeilingFacts(Document, frozen=True, kw_only=True):
    """This host's ceiling, by `fastllmload calibrate`."""

    events_per_s: Annotated[Number, field("events/s")]  # of one worker on a core of its own
    requests_per_s: Annotated[Number, field("requests/s")] = None  # new streamed requests of one such worker


Packets = Annotated[Number, field("packets", Reveals.LOAD)]


Carried = Annotated[Number, field("bytes", Reveals.LOAD)]


CarriedRate = Annotated[Number, field("bytes/s", Reveals.LOAD)]


class InterfaceUse(Document, frozen=True, kw_only=True):
    """A network interface that carried the load, or one below it, from before the measurement until after it.

    It counts the packets of all programs. What a full ring made it miss counts as dropped.
    """

    name: Name = None  # of the interface
    speed_bits_per_s: Annotated[Number, field("bit/s")] = None  # of its link; None: not known, as of a virtual one
    rx_bytes: Carried = None  # received
    rx_packets: Packets = None  # received
    rx_errors: Packets = None  # that it received and could not read
    rx_dropped: Packets = None  # received, but dropped
    tx_bytes: Carried = None  # sent
    tx_packets: Packets = None  # sent
    tx_errors: Packets = None  # that it could not send
    tx_dropped: Packets = None  # to be sent, but dropped
    peak_rx_bytes_per_s: CarriedRate = None  # received in the busiest second
    peak_tx_bytes_per_s: CarriedRate = None  # sent in the busiest second


class WatchFacts(Document, frozen=True, kw_only=True):
    """This host while the run lasted."""

    steal_share: Ratio = None  # CPU time that the hypervisor gave to others
    steal_samples: Annotated[tuple[tuple[int, ...], ...], field("ns")] = ()  # CLOCK_MONOTONIC, CPU time lost to others
    throttled_ns: Ns = None  # withheld by the CPU quota of the client's cgroup; None: no quota
    competitors: Names = ()  # processes outside of the run that used most CPU meanwhile
    ports: Annotated[Number, field("ports")] = None  # local ports for connections to one address and port
    fd_limit: Annotated[Number, field("files")] = None  # open files that a process may have
    ceiling: CeilingFacts | None = None
    interfaces: tuple[InterfaceUse, ...] = ()


class ClockFacts(Document, frozen=True, kw_only=True):
    """How well the clock of a host is known in the driver's."""

    bound_ns: Ns = None  # the largest error of the host's times
    drift_ppm: Annotated[Number, field("ppm")] = None  # how much faster the driver's clock is
    exchanges: Plain = None  # of datagrams, from which it is known


class HostEntry(Document, frozen=True, kw_only=True):
    """A host of a run over many: a machine that sends a share of the load."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("events", "last_event_ns")

    host: int  # its number, from 0
    name: Name = None  # of the machine
    address: Name = None  # of the machine
    workers: tuple[int, ...] = ()  # numbers of its workers
    status: str | None = None  # running, then ended; lost: before it ended; late: after time zero; alone: driver lost
    folder: Name = None  # on the host, where its files are
    disk_full: bool = False  # its disk was full: it stopped sending
    timestamps: str | None = None  # the source of its stamps: tap, kernel, user
    tap: Tap | None = None  # its own packet ring; that of the run has the sums of all
    clock: ClockFacts | None = None  # against the driver's; None: not compared
    watch: WatchFacts = WatchFacts()  # of that host
    events: Events = None  # here and in the next key: that stay in its folder (`--collect summary`)
    last_event_ns: Ns = None  # time of the last of them
    dispatched: Count = None  # of the measurement
    share: RequestShare = None  # of the measured requests that were dispatched
    ttft_p50_ms: Ms = None  # median TTFT of its requests
    certificate: Certificate | None = None  # by its own evidence; its workers are in the certificate of the run
