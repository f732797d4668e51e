"""Defines the inputs of the certificate: small typed structures without files, so that tests can construct every fault.

All times are CLOCK_MONOTONIC ns in int64 arrays. `None` means "not known", never 0: a figure that is not known is not
judged, and a missing figure that must be known is itself a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask, Numbers
from fastllmload.arrivals.curve import RateCurve
from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.figures import FigureBound
from fastllmload.documents.certificate import SecondsJudged
from fastllmload.documents.run_parts.hosts import InterfaceUse
from fastllmload.statistics.order_statistics import Ranked

Times = Numbers  # CLOCK_MONOTONIC ns
Figures = dict[str, float | int | None]
LATE_NS = 1_000_000  # a release or a read that is later than this is attributed to a cause
NO_TIMES: Times = np.empty(0, np.int64)
BRACKET_LEAST_NS, BRACKETS_PER_OCTAVE, BRACKET_CLASSES = 50_000, 4, 72  # up to 13 s; the last class includes wider ones


@dataclass(frozen=True)
class MeasuredWindow:
    """The measurement window [start_ns, end_ns). *counted*: it spans a fixed number of requests, first to last."""

    start_ns: int
    end_ns: int
    counted: bool = False

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def contains(self, t: Times) -> Mask:
        return (t >= self.start_ns) & (t < self.end_ns)


@dataclass(frozen=True)
class ArrivalEvidence:
    """The configured arrival process: a name, "closed" (closed loop), "inf" (all at once) or "classes" (several processes).

    *shape* is the gamma shape; *on_s*, *off_s* belong to "onoff"; *zero_ns* is the phase's time zero. With a *curve*
    the rate changes with time, and *rate* is its mean.
    """

    process: str
    rate: float | None = None
    shape: float | None = None
    on_s: float | None = None
    off_s: float | None = None
    zero_ns: int = 0
    curve: RateCurve | None = None

    @property
    def open_loop(self) -> bool:
        """Releases follow a clock, so that lag and rate can be compared with a plan."""
        return self.process not in ("closed", "inf")


@dataclass(frozen=True)
class ClosedClass:
    """A class of a mix that is a closed loop of *slots*: its releases in the window, of which t_sched is the instant at
    which a slot became free, and its first fill. *empty*: the share of the slot time of the window in which slots stood
    empty because the client sent or read more than LATE_NS late; None: not known. *asked_mean*: of slots that change, how
    many were asked for in the window on average.
    """

    name: str
    slots: int
    t_sched: Times
    t_dispatch: Times
    first_fill: Times = field(default_factory=lambda: NO_TIMES)
    empty: float | None = None
    asked_mean: float | None = None


@dataclass(frozen=True)
class Sends:
    """Releases whose t_sched lies in the window, ordered by t_sched; t_dispatch belongs to the same request.

    *not_sent*: planned in the window and never dispatched. *all_dispatch*: every dispatch of the phase, for the rate.
    *cap*: --max-concurrency of an open loop, *prefill_cap*: --max-prefill, *held* and *prefill_held*: ns for which each was
    full while the release was due; None: no such cap. In a closed loop t_sched is not before the latter let the request go.
    *first_fill*: a closed loop's first C dispatches, judged by spread only, without those that it held back. *slots_empty*:
    of a closed loop whose slots change, the share of the slot time asked for in which the client left slots empty.
    *follows*: which releases are turns that follow a reply (None: none); they have a lag, but do not belong to the arrival
    process. *classes*: name, number and process of each request class, where the plan mixes several. *closed*: of a mix, the
    classes that are closed loops: where others are open loops, all other fields are of these alone. *partial*: they are
    not those of all hosts, so that their instants are not an arrival process. *clock_ns*: how far their times may lie from
    the clock of the schedule.
    """

    arrivals: ArrivalEvidence
    t_sched: Times
    t_dispatch: Times
    all_dispatch: Times
    not_sent: int = 0
    cap: int | None = None
    held: Times | None = None
    prefill_cap: int | None = None
    prefill_held: Times | None = None
    slots_empty: float | None = None
    first_fill: Times = field(default_factory=lambda: NO_TIMES)
    follows: Mask | None = None
    request_class: npt.NDArray[np.uint16] | None = None
    classes: tuple[tuple[str, int, ArrivalEvidence], ...] = ()
    closed: tuple[ClosedClass, ...] = ()
    partial: bool = False
    clock_ns: int = 0

    @property
    def capped(self) -> bool:
        """Releases of an open loop are late on purpose."""
        return self.arrivals.process != "closed" and not self.cap is self.prefill_cap is None

    @property
    def released(self) -> int:
        """All releases of the window, of open and of closed loops."""
        own = len(self.t_sched) + len(self.first_fill)
        return own if not self.arrivals.open_loop else own + sum(len(one.t_sched) for one in self.closed)

    def starts(self) -> Mask:
        """Releases whose instants were drawn before time zero."""
        return np.ones(len(self.t_sched), np.bool_) if self.follows is None else ~self.follows


@dataclass(frozen=True)
class WorkerRecord:
    """One worker in the window. Series are samples in time order; *counts* are differences over the window.

    *histograms*: HDR histograms of the window in ns by name (`lag`, `socket_to_user`, `beat`). *stalls*: rows (begin, end)
    of intervals of the measure phase in which it polled neither its sockets nor the clock: the longest, and the newest
    of 0.5 ms or more; None: not known. *stall_ready*: of each stall, the ns for which the thread was ready to run.
    """

    number: int
    died: bool = False
    t_ns: Times = field(default_factory=lambda: NO_TIMES)
    cpu_ns: Times = field(default_factory=lambda: NO_TIMES)
    rss_bytes: Times = field(default_factory=lambda: NO_TIMES)
    events: Times = field(default_factory=lambda: NO_TIMES)
    released: Times = field(default_factory=lambda: NO_TIMES)
    connections_max: int | None = None
    batch_max_ns: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    histograms: Mapping[str, Times] = field(default_factory=dict)
    stalls: Times | None = None
    stall_ready: Times | None = None
    involuntary_switches: int | None = None
    run_delay_ns: int | None = None
    fd_limit: int | None = None


@dataclass(frozen=True)
class HostRecord:
    """The host in the window: *hiccups* is the HDR histogram of hiccups, *stalls* rows (instant, lateness) above 5 ms.

    *ports*: connections that can be open at once over all source addresses, with the run's distribution over targets: then
    the target with the most connections has no free port. *steal_ns*: CPU time taken by the hypervisor until *steal_t_ns*.
    *throttled*: the CPU quota of the client's own cgroup caused at least a third of its workers' waits. *competitors*:
    descriptions of other processes that used the CPUs. *interfaces*: that carried the load.
    """

    hiccups: Times | None = None
    stalls: Times = field(default_factory=lambda: np.empty((0, 2), np.int64))
    steal_share: float | None = None
    steal_t_ns: Times = field(default_factory=lambda: NO_TIMES)
    steal_ns: Times = field(default_factory=lambda: NO_TIMES)
    throttled: bool = False
    competitors: tuple[str, ...] = ()
    ports: int | None = None
    interfaces: tuple[InterfaceUse, ...] = ()


def bracket_class(width_ns: npt.ArrayLike) -> Numbers:
    """The class of each bracket of *width_ns* (at least BRACKET_LEAST_NS)."""
    octaves = np.log2(np.asarray(width_ns, np.float64) / BRACKET_LEAST_NS)
    found: Numbers = np.minimum(BRACKETS_PER_OCTAVE * octaves, BRACKET_CLASSES - 1).astype(np.int64)
    return found


@dataclass(frozen=True)
class Stamps:
    """Events of the window by stamp class, and the inputs of the error bars.

    *ttft_error_ns* (one per request) and *itl_error_ns* (one per gap): how far the true value may lie from the stated one,
    given the brackets. *batched*: events that the server or the path delivered together with the one before.
    *late_user*: rows (kernel stamp, user time) of ends that the process read more than 1 ms late. *brackets*: int64[2, n],
    number of events by width of their bracket (class k: from BRACKET_LEAST_NS * 2^(k/4)); row 0: those that overlap no
    stall and no late read, row 1: those that do.
    """

    requested: str = "kernel"
    user: int = 0
    kernel: int = 0
    coalesced: int = 0
    tap: int = 0
    batched: int = 0
    clamped: int = 0
    requests: int = 0
    ttft_error_ns: Times = field(default_factory=lambda: NO_TIMES)
    itl_error_ns: Times | Ranked = field(default_factory=lambda: NO_TIMES)
    late_user: Times = field(default_factory=lambda: np.empty((0, 2), np.int64))
    brackets: Times = field(default_factory=lambda: np.zeros((2, BRACKET_CLASSES), np.int64))

    @property
    def events(self) -> int:
        return self.user + self.kernel + self.coalesced + self.tap


@dataclass(frozen=True)
class AmongHosts:
    """Figures of a run over many hosts; None: not known, or of a run of one.

    Of one host: *lost* before the run ended, *alone* without its driver before that, *late* at time zero, *clock_unknown*,
    *clock_bound_us*; *ttft_distance*, *tpot_distance* and *slots_distance*: how far its median TTFT, its median time between
    content events and the use of its slots are from those of the middle host, as a share, 0 where it may be chance. Of all
    together: *excluded* hosts, and *clock_in_gaps*: the largest error of their clocks over the mean gap between arrivals.
    """

    lost: int | None = None
    alone: int | None = None
    late: int | None = None
    ttft_distance: float | None = None
    tpot_distance: float | None = None
    slots_distance: float | None = None
    clock_unknown: int | None = None
    clock_bound_us: float | None = None
    excluded: int | None = None
    clock_in_gaps: float | None = None


@dataclass(frozen=True)
class CertificateEvidence:
    """The complete input of `judge_evidence`.

    *no_fd*, *no_port*, *no_memory*: requests that failed for lack of a descriptor, a port or memory. *plan_lead_ns*: from
    the plan's last byte to the first release of the phase. *figures*: the headline figures with their bounds. *seconds*: the
    worst seconds of the window (`per_second.summarize`). *ok*: successful requests of the phase; None where none failed.
    *among_hosts*: of a run over many hosts only.
    """

    window: MeasuredWindow
    sends: Sends
    stamps: Stamps = Stamps()
    workers: tuple[WorkerRecord, ...] = ()
    host: HostRecord = HostRecord()
    ceiling: Ceiling | None = None
    no_fd: int = 0
    no_port: int = 0
    no_memory: int = 0
    disk_full: bool = False
    figures: tuple[FigureBound, ...] = ()
    seconds: SecondsJudged = field(default_factory=SecondsJudged)
    plan_lead_ns: int | None = None
    ok: int | None = None
    among_hosts: AmongHosts = AmongHosts()
