"""Joins what several hosts recorded: each in its own clock, moved into the driver's.

`hosts/<h>/` of a run folder has the files of host h as they were copied. They stay as they are, in the host's clock;
`clock.npy` has the exchanges by which this clock is known in the driver's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Mask, Numbers, Rows, Values
from fastllmload.documents.run_parts.hosts import ClockFacts, HostEntry
from fastllmload.records import layout
from fastllmload.records.host_clock import ClockFit, fit
from fastllmload.records.integrity import broken
from fastllmload.records.npy import read_array

HOSTS, CLOCK = "hosts", "clock.npy"
LOST = "lost"  # status of a host that did not end by itself
ALONE = "alone"  # of one that lost its driver, ended by itself, and whose files were collected later
WORKERS = 1 << 16  # numbers of workers that a row can have
TIMES = tuple(name for name in layout.REQUEST.names or () if name.startswith("t_"))
EVENTS_AT_ONCE = 1 << 20
NS = 1_000_000_000
RECENT = 100  # exchanges that an agent fits
FOLLOWED_NS = 1_250_000_000  # between two of its corrections at most, and until a worker reads one
HostEntries = Sequence[HostEntry]
Clocks = Mapping[int, ClockFit]


def host_folder(folder: Path, host: HostEntry) -> Path:
    return folder / HOSTS / str(host.host)


def read_of_host(
    folder: Path,
    host: HostEntry,
    name: str,
    dtype: np.dtype[Any] | None = None,
    shape: tuple[int | None, ...] | None = None,
) -> Values | None:
    """A .npy file of *host*; None where it is missing, or was not copied completely (`incomplete`)."""
    path = host_folder(folder, host) / name
    return None if broken(path) is not None else read_array(path, dtype, shape)


def incomplete(folder: Path, hosts: HostEntries) -> list[str]:
    """A sentence for each file of *hosts* that cannot be read."""
    paths = (path for host in hosts for path in sorted(host_folder(folder, host).glob("*.npy")))
    return [f"{path.relative_to(folder)} {problem}" for path in paths if (problem := broken(path)) is not None]


def read_clocks(folder: Path, hosts: HostEntries) -> dict[int, ClockFit]:
    """The clocks of those *hosts* that could be compared with the driver's, by number."""
    found = {}
    for host in hosts:
        exchanges = read_exchanges(folder, host)
        if exchanges is not None:
            with contextlib.suppress(ValueError):  # no exchange was quick enough, or they contradict each other
                found[host.host] = fit(exchanges)
    return found


def read_exchanges(folder: Path, host: HostEntry) -> Numbers | None:
    """int64[n, 4]: what clock.npy of *host* has; None without an exchange."""
    found = read_of_host(folder, host, CLOCK, np.dtype(np.int64), (None, 4))
    return None if found is None or not len(found) else found


def with_clocks(folder: Path, hosts: HostEntries) -> tuple[HostEntry, ...]:
    """*hosts* with the facts of their clocks: the bound is the largest from the first to the last exchange."""
    clocks = read_clocks(folder, hosts)
    return tuple(
        replace(host, clock=facts_of(clocks[host.host], read_exchanges(folder, host))) if host.host in clocks else host
        for host in hosts
    )


def facts_of(clock: ClockFit, exchanges: Numbers | None) -> ClockFacts:
    assert exchanges is not None  # the clock is made of them
    ends = np.sort(exchanges[:, [0, 3]].ravel())
    times = np.concatenate([ends, (ends[1:] + ends[:-1]) // 2])  # between two exchanges the bound may be larger
    return ClockFacts(bound_ns=int(clock.bound_ns(times).max()), drift_ppm=clock.drift_ppm, exchanges=len(exchanges))


def followed_within_ns(folder: Path, hosts: HostEntries, rows: Rows) -> int:
    """How far the schedule of *hosts* was from the driver's clock at most, and their times from it, where *rows* were
    dispatched. An agent follows the driver's clock by what it knew FOLLOWED_NS ago, which is less than all exchanges show.
    """
    clocks, at = read_clocks(folder, hosts), positions(hosts, rows["worker"])
    found = [0]
    for position, host in enumerate(hosts):
        exchanges = read_exchanges(folder, host)
        if host.host not in clocks or exchanges is None:
            continue
        clock = clocks[host.host]
        dispatched = clock.to_host(rows["t_dispatch"][at == position])
        _, first = np.unique(dispatched // NS, return_index=True)  # of each second
        for t in dispatched[first].tolist():
            known = exchanges[exchanges[:, 3] <= t - FOLLOWED_NS]
            with contextlib.suppress(ValueError):  # there was none: the phase had not begun
                found.append(int(fit(known[-RECENT:]).bound_ns(t) + clock.bound_ns(t)))
    return max(found)


def positions(hosts: HostEntries, workers: Numbers | Rows) -> Numbers:
    """The position in *hosts* of the host of each of *workers*; -1 for workers of none."""
    table = np.full(WORKERS, -1, np.int64)
    for position, host in enumerate(hosts):
        table[list(host.workers)] = position
    found: Numbers = table[workers]
    return found


def of_lost(hosts: HostEntries, workers: Numbers | Rows) -> Mask:
    """Which of *workers* were on a host that was lost."""
    lost = np.array([*(host.status == LOST for host in hosts), False])
    found: Mask = lost[positions(hosts, workers)]
    return found


def to_driver_clock(rows: Rows, events: Rows, hosts: HostEntries, clocks: Clocks, moved: Mask) -> None:
    """Move *rows* and their *events* into the driver's clock, each request by one number: that of its dispatch. Those that
    were *moved* before stay as they are.

    So a latency within a request stays what its host measured. Rows of a host whose clock is not known stay as they are; the
    certificate of the run is then invalid.
    """
    shifts = np.zeros(len(rows), np.int64)
    at = positions(hosts, rows["worker"])
    for position, host in enumerate(hosts):
        if host.host in clocks:
            mine = np.flatnonzero((at == position) & (rows["t_dispatch"] > 0) & ~moved)
            shifts[mine] = clocks[host.host].offset_ns(rows["t_dispatch"][mine])
    for name in TIMES:
        times = rows[name]
        times[:] = np.where(times > 0, times + shifts, times)
    for begin in range(0, len(events), EVENTS_AT_ONCE):
        part = events[begin : begin + EVENTS_AT_ONCE]
        part["t_ns"] += shifts[part["row"]]


def mark_lost(rows: Rows, hosts: HostEntries, events: Numbers) -> None:
    """Give the status `host_lost` to requests on a host that was lost: to those that were in flight or have fewer *events*
    here than were recorded; to all of a host of which rows have been copied and no event (`--collect summary`).
    """
    at = positions(hosts, rows["worker"])
    for position in (position for position, host in enumerate(hosts) if host.status == LOST):
        mine = np.flatnonzero(at == position)
        recorded, here = rows["events"][mine], events[mine]
        missing = (here < recorded) | (rows["status"][mine] == layout.IN_FLIGHT)
        rows["status"][mine if recorded.any() and not here.any() else mine[missing]] = layout.HOST_LOST
