"""What an agent reports to the driver, four times a second: the state of its workers, as changes since the last report.

The agent sends the words of counters that have changed, and by how much histograms have grown (`Beats`); the driver puts
them into its copies (`apply`, `SummedHistograms`, `SummedClasses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.engine.hosts.link.connection import Link, LinkError
from fastllmload.engine.hosts.link.messages import Beat, Changes, ClassReport, Increments, WorkerEnd
from fastllmload.engine.recording.class_rows import ClassCounts, ClassRows
from fastllmload.engine.recording.totals import HISTOGRAMS
from fastllmload.engine.workers.fleet import LocalFleet, LocalMember
from fastllmload.records.samples import PROCESS

Words = npt.NDArray[np.int64]
POSITION, COUNT, VALUE = np.dtype("<u4"), np.dtype("<u4"), np.dtype("<i8")
EXTREMES = [histogram.MINIMUM, histogram.MAXIMUM]
NOTHING = 1 << 62  # the minimum of an empty histogram
HISTOGRAMS_EVERY = 4  # beats
MOST_UNSEEN = 16  # beats that the driver has not processed; more would fill the buffers of a frozen driver
STDERR_BYTES = 4096
CONTROL_WORDS = 8  # that the supervisor writes
OF_CLASS = ("first", "latencies")  # histograms of ClassCounts


class Beats:
    """Sends beats over *link*. One that the driver has no room for is left out: the next one has all changes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._words = Reflected(0)
        self._histograms = Growing(len(HISTOGRAMS))
        self._classes: ReportedClasses | None = None
        self._reported: set[int] = set()  # workers whose end was sent
        self._states: list[tuple[int, int, int | None]] = []
        self._number = 0
        self.seen = 0  # number of the newest beat that the driver has processed

    def begin(self, workers: Sequence[int], folder: Path, classes: int) -> None:
        """*workers*: by number, whose rows are in *folder*; *classes*: how many the measured phase has."""
        self._words = Reflected(len(workers) * k.WORDS)
        if classes > 1:
            self._classes = ReportedClasses(ClassRows(folder, workers, classes), classes)

    @property
    def possible(self) -> bool:
        """Whether the driver has room for a beat."""
        return self._number - self.seen < MOST_UNSEEN and not self._link.pending

    def changed(self, members: Sequence[LocalMember]) -> bool:
        """Whether a worker has another state than at the last call."""
        states = [(int(m.words[k.W_STATE]), int(m.words[k.W_PHASE_DONE]), m.process.poll()) for m in members]
        before, self._states = self._states, states
        return states != before

    def idle(self) -> None:
        """Report that there is an agent, which has no workers yet. LinkError."""
        if self.possible:
            self._send(Changes(b"", b""))

    def send(self, fleet: LocalFleet, rows: npt.NDArray[np.void], with_histograms: bool) -> None:
        """Report the state of *fleet*, if that is possible. *rows*: the newest samples of its living workers. LinkError."""
        if not self.possible:
            return
        members, first = fleet.members, fleet.members[0].spec.worker
        # Ends before counters: those of a process that has ended are final.
        ended = [one for one in members if one.process.poll() is not None and one.spec.worker not in self._reported]
        counters = np.array([member.words[: k.WORDS] for member in members])
        counters[:, :CONTROL_WORDS] = 0
        figures = np.zeros((len(members), len(PROCESS)), "<i8")
        figures[rows["worker"] - first] = np.column_stack([rows[name] for name in PROCESS])
        histograms = classes = None
        if with_histograms or self._number % HISTOGRAMS_EVERY == 0:
            histograms = self._histograms.increments(np.array([fleet.histogram(n) for n in HISTOGRAMS]))
            classes = None if self._classes is None else self._classes.report()
        self._reported.update(one.spec.worker for one in ended)
        ends = tuple(worker_end(member) for member in ended)
        self._send(self._words.changes(counters), figures.tobytes(), histograms, classes, ends)

    def _send(
        self,
        words: Changes,
        figures: bytes = b"",
        histograms: Increments | None = None,
        classes: ClassReport | None = None,
        ends: tuple[WorkerEnd, ...] = (),
    ) -> None:
        self._number += 1
        self._link.send(
            Beat(
                number=self._number, words=words, figures=figures, histograms=histograms, classes=classes, ended=ends
            )
        )  # fmt: skip


def worker_end(member: LocalMember) -> WorkerEnd:
    return WorkerEnd(
        worker=member.spec.worker,
        returncode=member.process.returncode,
        stuck=member.stuck,
        stderr=member.stderr()[-STDERR_BYTES:],
    )


class Reflected:
    """The words that the other side has."""

    def __init__(self, words: int) -> None:
        self._known = np.zeros(words, np.int64)

    def changes(self, now: Words) -> Changes:
        """What differs in *now* from what was sent before, which counts as sent from here on."""
        flat = now.reshape(-1)
        at = np.flatnonzero(flat != self._known)
        values = flat[at]
        self._known[at] = values
        return Changes(at.astype(POSITION).tobytes(), values.astype(VALUE).tobytes())


class Growing:
    """The histograms that the other side has, each a row of *kinds*."""

    def __init__(self, kinds: int) -> None:
        self._known = np.zeros((kinds, histogram.WORDS), np.int64)

    def increments(self, now: Words) -> Increments:
        """By how much *now* differs from what was sent before, which counts as sent from here on."""
        extremes = now[:, EXTREMES]
        extremes[now[:, histogram.TOTAL] == 0, 0] = NOTHING
        grown = now - self._known
        grown[:, EXTREMES] = 0
        self._known = now
        flat = grown.reshape(-1)
        at = np.flatnonzero(flat)
        return Increments(at.astype(POSITION).tobytes(), flat[at].astype(COUNT).tobytes(), extremes.tobytes())


class ReportedClasses:
    """The *classes* of a mix as *rows* have them, for the driver."""

    def __init__(self, rows: ClassRows, classes: int) -> None:
        self._rows = rows
        self._histograms = Growing(classes * len(OF_CLASS))

    def report(self) -> ClassReport:
        counts = self._rows.counts()
        numbers = np.array([(one.in_flight, one.ok, one.failed) for one in counts], VALUE)
        histograms = np.array([getattr(one, name) for one in counts for name in OF_CLASS])
        return ClassReport(numbers.tobytes(), self._histograms.increments(histograms))


class SummedHistograms:
    """Histograms of *hosts* together, of several *kinds*. *of_hosts* has that of each host, of the kind *apart* only."""

    def __init__(self, kinds: int, hosts: int, apart: int = 0) -> None:
        self._sum = np.zeros((kinds, histogram.WORDS), np.int64)
        self._apart = apart
        self._bounds = np.array([apart, apart + 1], POSITION) * POSITION.type(histogram.WORDS)  # of its positions
        self.of_hosts = np.zeros((hosts, histogram.WORDS), np.int64)
        self._extremes = np.zeros((hosts, kinds, 2), np.int64)
        self._extremes[:, :, 0] = NOTHING

    def add(self, host: int, grown: Increments) -> None:
        """LinkError when *grown* does not fit."""
        flat = self._sum.reshape(-1)
        at, counts = unpacked(grown.positions, grown.counts, COUNT, len(flat))
        if len(grown.extremes) != self._extremes[host].nbytes:
            raise LinkError("extremes of another number of histograms were received")
        flat[at] += counts
        self._extremes[host] = np.frombuffer(grown.extremes, VALUE).reshape(-1, 2)
        first, last = np.searchsorted(at, self._bounds)
        own = self.of_hosts[host]
        own[at[first:last] % histogram.WORDS] += counts[first:last]  # an agent's positions are in order
        own[EXTREMES] = self._extremes[host, self._apart]

    def kind(self, number: int) -> Words:
        """A copy of the histogram of one kind."""
        found: Words = self._sum[number].copy()
        if found[histogram.TOTAL]:
            found[histogram.MINIMUM] = self._extremes[:, number, 0].min()
            found[histogram.MAXIMUM] = self._extremes[:, number, 1].max()
        return found


class SummedClasses:
    """The *classes* of a mix of all *hosts* together."""

    def __init__(self, classes: int, hosts: int) -> None:
        self._counts = np.zeros((hosts, classes, 3), np.int64)
        self._histograms = SummedHistograms(classes * len(OF_CLASS), hosts)

    def add(self, host: int, report: ClassReport) -> None:
        """LinkError when *report* does not fit."""
        if len(report.counts) != self._counts[host].nbytes:
            raise LinkError("counts of another number of classes were received")
        self._histograms.add(host, report.histograms)
        self._counts[host] = np.frombuffer(report.counts, VALUE).reshape(-1, 3)

    def lose(self, host: int) -> None:
        """Nothing of *host* is in flight any more."""
        self._counts[host, :, 0] = 0

    def counts(self) -> Sequence[ClassCounts]:
        """By class; new objects at each call."""
        return [
            ClassCounts(*numbers, *(self._histograms.kind(len(OF_CLASS) * number + n) for n in range(len(OF_CLASS))))
            for number, numbers in enumerate(self._counts.sum(axis=0).tolist())
        ]


def unpacked(
    positions: bytes, values: bytes, kind: np.dtype[Any], words: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
    """Positions and values in an array of *words*. LinkError when they do not fit it."""
    if len(positions) % POSITION.itemsize or len(values) % kind.itemsize:
        raise LinkError("changed words were received that are not complete")
    at, found = np.frombuffer(positions, POSITION).astype(np.intp), np.frombuffer(values, kind)
    if len(at) != len(found) or (len(at) and int(at.max()) >= words):
        raise LinkError(f"changed words were received for positions beyond the {words:,} that there are")
    return at, found


def apply(changes: Changes, words: Words) -> None:
    """Put *changes* into *words*, a C-contiguous array. LinkError when they do not fit it."""
    flat = words.reshape(-1)
    at, values = unpacked(changes.positions, changes.values, VALUE, len(flat))
    flat[at] = values
