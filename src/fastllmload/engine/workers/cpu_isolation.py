"""Gives workers their own CPUs while the clock runs; all other processes of the run use the remaining ones."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROC = Path("/proc")
CLAIM = "\0fastllmload-cpus"  # bound by the one run on this host that chooses CPUs itself; freed when that process ends


def chosen_cpus(pinned: Sequence[int], workers: int, cpus: Sequence[int]) -> list[int]:
    """A CPU for each worker: the *pinned* ones, else the last of *cpus* if at least one remains for the rest; else []."""
    if pinned:
        return [pinned[worker % len(pinned)] for worker in range(workers)]
    return sorted(cpus, reverse=True)[:workers] if workers < len(cpus) else []


@contextlib.contextmanager
def isolate_cpus(
    workers: Mapping[int, int], engine: int | None, helpers: Sequence[int | None], pinned: Sequence[int]
) -> Iterator[dict[int, int]]:
    """Isolate the workers from the other processes of this run until the block ends. Yields the CPU of each worker, or {}.

    *workers*: process id by worker number. *engine*, *helpers*: other process ids. *pinned*: --pin; without it CPUs are
    chosen with an embedded engine, when the load of this host is known, and by one run at a time.
    """
    cpus = os.sched_getaffinity(0)
    with contextlib.ExitStack() as stack:
        found = chosen_cpus(pinned, len(workers), sorted(cpus)) if pinned or engine is not None else []
        free = bool(pinned) or (bool(found) and stack.enter_context(claim_cpus()))
        cpu_of = dict(zip(workers, found, strict=True)) if found and free else {}
        rest = cpus - set(found)
        if not cpu_of or not rest:
            yield cpu_of
            return
        before = set_affinity({process: {cpu_of[worker]} for worker, process in workers.items()})
        before |= set_affinity({process: rest for process in (os.getpid(), engine, *helpers) if process is not None})
        try:
            yield cpu_of
        finally:
            for task, its_cpus in before.items():
                set_task_affinity(task, its_cpus)


@contextlib.contextmanager
def claim_cpus() -> Iterator[bool]:
    """Yields whether no other run on this host (in this network namespace) has chosen its CPUs itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(CLAIM)
        except OSError:
            yield False
        else:
            yield True


def set_affinity(cpus_of: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Move every thread of each process to its CPUs. Returns the CPUs that each thread was allowed before."""
    before: dict[int, set[int]] = {}
    for process, cpus in cpus_of.items():
        for task in entries(PROC / str(process) / "task"):
            with contextlib.suppress(OSError):  # it has ended
                before[task] = os.sched_getaffinity(task)
            set_task_affinity(task, cpus)
    return before


def set_task_affinity(task: int, cpus: set[int]) -> None:
    with contextlib.suppress(OSError):  # it has ended, or may no longer run there
        os.sched_setaffinity(task, cpus)


def entries(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder)]
    except OSError:
        return []  # it has ended
