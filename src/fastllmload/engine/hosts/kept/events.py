"""What the driver makes of hosts that keep their events (`--collect summary`): their requests become those of the run, then
each host is asked for totals and distributions of its events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from fastllmload.certificate.evidence import AmongHosts
from fastllmload.certificate.hosts import distances
from fastllmload.certificate.run_evidence import all_unread
from fastllmload.engine.recording.folder import Folder
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.records.hosts import LOST
from fastllmload.records.merge import PlannedPhase, join_totals, merge_copied
from fastllmload.records.run import Run, load


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """What a host cannot know of the run: its *window* (begin, end, whether that belongs to it), the *unread* intervals, in
    which any worker did not read, how many answers *reasoned*, whether the run is *incomplete*, and the *distances* of
    the host from the others.
    """

    window: tuple[int, int, bool] | None
    unread: list[tuple[int, int]] = []
    reasoned: int = 0
    incomplete: bool = False
    distances: AmongHosts = AmongHosts()


# Asks each host; returns why the others did not answer, as clauses by number of the host.
Ask = Callable[[Mapping[int, Questions]], Mapping[int, str]]


def gather(folder: Folder, planned: Sequence[PlannedPhase], incomplete: bool, ask: Ask) -> int:
    """Write requests.npy and event_totals.npy of the run. A host that does not answer is lost, with all its requests;
    returns how many workers are lost with such hosts.
    """
    merge_copied(folder.path, planned, folder.document.hosts)
    run = replace(load(folder.path), incomplete=incomplete)
    silent = ask(questions_of(run.with_document(folder.document)))
    lost = [host for host in folder.document.hosts if host.host in silent and host.status != LOST]
    hosts = (msgspec.structs.replace(host, status=LOST) if host in lost else host for host in folder.document.hosts)
    folder.update(hosts=tuple(hosts))
    join_totals(folder.path, folder.document.hosts)
    return sum(len(host.workers) for host in lost)


def questions_of(run: Run) -> dict[int, Questions]:
    """By number of the host."""
    window, compared = window_of(run), distances(run)
    answered = run.rows[populations(run, window).latency]
    asked = Questions(
        window=None if window is None else (window.w0_ns, window.w1_ns, window.closed),
        unread=[(begin, end) for begin, end in all_unread(run).tolist()],
        reasoned=int(np.count_nonzero(answered["reasoning_events"])),
        incomplete=run.incomplete,
    )
    return {
        host.host: msgspec.structs.replace(asked, distances=compared.get(host.host, AmongHosts()))
        for host in run.document.hosts
        if host.status != LOST
    }
