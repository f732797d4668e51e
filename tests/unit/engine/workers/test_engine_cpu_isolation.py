"""CPU isolation: workers have their own CPUs, the rest of the run uses others, and affinities are restored afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from fastllmload.engine.workers import cpu_isolation as module
from fastllmload.engine.workers.cpu_isolation import chosen_cpus, claim_cpus, isolate_cpus

ALL = os.sched_getaffinity(0)
SLEEPER = (sys.executable, "-c", "import sys; sys.stdin.read()")
needs_two = pytest.mark.skipif(len(ALL) < 2, reason="needs two CPUs")


@pytest.fixture(autouse=True)
def claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other tests may have claimed the real name."""
    monkeypatch.setattr(module, "CLAIM", f"\0fastllmload-cpus-test-{os.getpid()}")


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """Process ids of a worker and of another process of the run."""
    started = [subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) for _ in range(2)]
    yield [process.pid for process in started]
    for process in started:
        process.communicate()


@pytest.mark.parametrize(
    ("pinned", "workers", "cpus", "found"),
    [
        ((), 1, (0, 1), [1]),
        ((), 2, (0, 1), []),
        ((), 3, (2, 3, 5, 7), [7, 5, 3]),
        ((), 1, (4,), []),
        ((1, 3), 2, (0, 1, 2, 3), [1, 3]),
        ((1,), 2, (0, 1), [1, 1]),
    ],
)
def test_one_cpu_remains_for_the_rest(
    pinned: tuple[int, ...], workers: int, cpus: tuple[int, ...], found: list[int]
) -> None:
    assert chosen_cpus(pinned, workers, cpus) == found


@needs_two
@pytest.mark.parametrize("pinned", [False, True])
def test_the_worker_is_isolated_and_affinities_restored(processes: list[int], pinned: bool) -> None:
    """Other threads of this process move too, but none of its children that are not part of the run."""
    worker, other = processes
    own = max(ALL)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert thread.native_id is not None
    outsider = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)  # a child of the program that uses the Python API
    with isolate_cpus({0: worker}, other, (None,), (own,) if pinned else ()) as cpus:
        assert cpus == {0: own}
        assert os.sched_getaffinity(worker) == {own}
        for task in (0, other, thread.native_id):
            assert os.sched_getaffinity(task) == ALL - {own}
        assert os.sched_getaffinity(outsider.pid) == ALL
    outsider.communicate()
    for task in (0, worker, other, thread.native_id):
        assert os.sched_getaffinity(task) == ALL
    stop.set()
    thread.join()


@needs_two
def test_cases_in_which_no_process_is_moved(processes: list[int]) -> None:
    """A real server, whose load is unknown; every CPU pinned, so that none remains; another run has claimed CPUs."""
    worker, other = processes
    with isolate_cpus({0: worker}, None, other, ()) as cpus:
        assert cpus == {} and os.sched_getaffinity(worker) == os.sched_getaffinity(0) == ALL
    every = tuple(sorted(ALL))
    with isolate_cpus(dict.fromkeys(range(len(every)), worker), other, None, every) as cpus:
        assert list(cpus.values()) == list(every) and os.sched_getaffinity(other) == os.sched_getaffinity(0) == ALL
    with claim_cpus() as mine, isolate_cpus({0: worker}, other, None, ()) as cpus:
        assert mine and cpus == {} and os.sched_getaffinity(worker) == os.sched_getaffinity(0) == ALL


def test_one_run_at_a_time_chooses_cpus() -> None:
    with claim_cpus() as first, claim_cpus() as second:
        assert first and not second
    with claim_cpus() as again:
        assert again


@needs_two
def test_a_worker_that_ends_meanwhile_is_ignored(processes: list[int]) -> None:
    gone = subprocess.Popen(SLEEPER, stdin=subprocess.DEVNULL)
    gone.wait()
    with isolate_cpus({0: gone.pid}, gone.pid, (None,), ()) as cpus:
        assert cpus == {0: max(ALL)}
    assert os.sched_getaffinity(0) == ALL
