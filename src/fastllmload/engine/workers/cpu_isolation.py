"""Workers get CPUs of their own while the clock runs; everything else of the run keeps off them.

The supervisor, its terminal, telemetry and the simulated engine share a host with the worker. Wherever the scheduler lets
one of them run before the worker, releases are late by a slice of milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROC = Path("/proc")
CLAIM = "\0fastllmload-cpus"  # one run on a host at a time chooses CPUs by itself; the name goes away with its holder


def chosen_cpus(pinned: Sequence[int], workers: int, cpus: Sequence[int]) -> list[int]:
    """A CPU for each worker: as the user says, else the last of *cpus*, as long as one is left for the rest; [] for none."""
    if pinned:
        return [pinned[worker % len(pinned)] for worker in range(workers)]
    return sorted(cpus, reverse=True)[:workers] if workers < len(cpus) else []


@contextlib.contextmanager
def isolate_cpus(
    workers: Mapping[int, int], engine: int | None, helpers: Sequence[int | None], pinned: Sequence[int]
) -> Iterator[dict[int, int]]:
    """Keep the processes of this run apart until the end of the block. Yields the CPU of each worker, {} where any may do.

    *workers*: process by worker number. *engine*, *helpers*: those of the embedded engine, of telemetry, of what writes rows
    and of the packet ring, None: there is none. *pinned*: --pin. Without it CPUs are chosen only beside an embedded engine,
    because only then all that loads this host is known; and by one run at a time, because two would choose the same.
    """
    cpus = os.sched_getaffinity(0)
    with contextlib.ExitStack() as held:
        found = chosen_cpus(pinned, len(workers), sorted(cpus)) if pinned or engine is not None else []
        free = bool(pinned) or (bool(found) and held.enter_context(claimed()))
        places = dict(zip(workers, found, strict=True)) if found and free else {}
        rest = cpus - set(found)
        if not places or not rest:
            yield places
            return
        before = moved({process: {places[worker]} for worker, process in workers.items()})
        before |= moved({process: rest for process in (os.getpid(), engine, *helpers) if process is not None})
        try:
            yield places
        finally:
            for task, its_cpus in before.items():
                move(task, its_cpus)


@contextlib.contextmanager
def claimed() -> Iterator[bool]:
    """Whether no other run on this host (of this network namespace) has chosen its CPUs by itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(CLAIM)
        except OSError:
            yield False
        else:
            yield True


def moved(places: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Move every thread of each process; where each was allowed before."""
    before: dict[int, set[int]] = {}
    for process, cpus in places.items():
        for task in entries(PROC / str(process) / "task"):
            with contextlib.suppress(OSError):  # it has ended
                before[task] = os.sched_getaffinity(task)
            move(task, cpus)
    return before


def move(task: int, cpus: set[int]) -> None:
    with contextlib.suppress(OSError):  # it has ended, or may not run there any more
        os.sched_setaffinity(task, cpus)


def entries(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder)]
    except OSError:
        return []  # it has ended
