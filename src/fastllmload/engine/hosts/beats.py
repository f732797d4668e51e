"""What an agent reports to the driver, four times a second: the state of its workers, as changes since the last report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload.engine.hosts.link import Link
from fastllmload.engine.hosts.messages import Beat, Changes, Increments, WorkerEnd
from fastllmload.engine.hosts.mirror import Growing, Reflected
from fastllmload.engine.recording.totals import HISTOGRAMS
from fastllmload.engine.workers.fleet import LocalFleet, LocalMember
from fastllmload.records.samples import PROCESS

HISTOGRAMS_EVERY = 4  # beats
MOST_UNSEEN = 16  # beats that the driver has not processed; more would fill the buffers of a frozen driver
STDERR_BYTES = 4096
CONTROL_WORDS = 8  # that the supervisor writes


class Beats:
    """Sends beats over *link*. One that the driver has no room for is left out: the next one has all changes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._words = Reflected(0)
        self._histograms = Growing(len(HISTOGRAMS))
        self._reported: set[int] = set()  # workers whose end was sent
        self._states: list[tuple[int, int, int | None]] = []
        self._number = 0
        self.seen = 0  # number of the newest beat that the driver has processed

    def begin(self, workers: int) -> None:
        self._words = Reflected(workers * k.WORDS)

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
        histograms = None
        if with_histograms or self._number % HISTOGRAMS_EVERY == 0:
            histograms = self._histograms.increments(np.array([fleet.histogram(n) for n in HISTOGRAMS]))
        self._reported.update(one.spec.worker for one in ended)
        ends = tuple(worker_end(member) for member in ended)
        self._send(self._words.changes(counters), figures.tobytes(), histograms, ends)

    def _send(
        self,
        words: Changes,
        figures: bytes = b"",
        histograms: Increments | None = None,
        ends: tuple[WorkerEnd, ...] = (),
    ) -> None:
        self._number += 1
        self._link.send(Beat(number=self._number, words=words, figures=figures, histograms=histograms, ended=ends))


def worker_end(member: LocalMember) -> WorkerEnd:
    return WorkerEnd(
        worker=member.spec.worker,
        returncode=member.process.returncode,
        stuck=member.stuck,
        stderr=member.stderr()[-STDERR_BYTES:],
    )
