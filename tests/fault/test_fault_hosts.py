"""A host that is killed, cut off, stopped or has a full disk, and a driver that is killed, in the middle of a run.

Each is reported with its code; nothing that had been copied is lost, no process stays, the verdict is never VALID; and what
the hosts have kept is collected: in the end each request that the server received has one row. FASTLLMLOAD_FAULTS is how
often each is repeated, at different instants of the run; FASTLLMLOAD_FAULTS_FROM is the number of the first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import codes
from support.local_hosts import Apart, Watching, agents_folder, asked, fill, made_apart, ours, small_disk, wait

from fastllmload.engine.collect import collect
from fastllmload.engine.hosts.placement.host_actor import session_members
from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.engine.run import execute
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.simulator import truth
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).parents[1] / "support" / "driver_of_local_hosts.py"
FIRST = int(os.environ.get("FASTLLMLOAD_FAULTS_FROM", "0"))
TIMES = range(FIRST, FIRST + int(os.environ.get("FASTLLMLOAD_FAULTS", "1")))
repeated = pytest.mark.parametrize("number", TIMES)
scratch = agents_folder(30.0)


class Case:
    """A run of two hosts in which *break_* is done once, *number* twentieths of a second after its first second."""

    def __init__(self, place: Path, number: int, host: str = "127.0.0.1") -> None:
        self.folder, self.log = place / "run", place / "truth.log"
        self.at = 1.0 + number / 20
        options = SimulatorOptions(host=host, ttft_ms=20.0, itl_ms=5.0, any_model=True, truth=str(self.log))
        self.server = SimulatorProcess(options)
        self.copied: dict[int, int] = {}  # rows that had been copied, by worker, when it was broken

    def run(self, placement: LocalPlacement, break_: Callable[[], object], seconds: float, **load: Any) -> Watching:
        def watch(snapshot: Any) -> None:
            if snapshot.phase == "measure" and snapshot.t > self.at and not self.copied:
                self.copied = {worker: rows_of(self.folder, worker) for worker in range(4)}
                break_()

        view = Watching(watch)
        with self.server as server:
            settings = asked(self.folder, server.url, rate=60.0, duration=seconds, timeout=3.0, **load)
            assert execute(settings, None, view, placement=placement) == 2
        assert self.copied and view.document["certificate"]["verdict"] != "valid"
        return view

    def check(self, code: str, statuses: list[str], collected: list[str]) -> Run:
        """The run as its driver concluded it, then with what its hosts had kept; returned is the latter."""
        found = load(self.folder)
        assert found.manifest["status"] == "partial" and codes(found.manifest["incidents"]).count(code) == 1
        assert [each["status"] for each in found.manifest["hosts"]] == statuses
        self._check_rows(found)
        view = Watching()
        assert collect(self.folder, None, False, view) == 0
        run = load(self.folder)
        assert [each["status"] for each in run.manifest["hosts"]] == collected and run.verdict == "invalid"
        assert not any(each["folder"] for each in run.manifest["hosts"])
        self._check_rows(run)
        return run

    def _check_rows(self, run: Run, unwritten: bool = False) -> None:
        """*unwritten*: a disk was full, so that events of rows may be missing, never the other way round."""
        assert not run.damaged
        measured = run.rows[run.rows["phase"] == layout.MEASURE]
        planned = len(np.load(self.folder / "plan" / "schedule.npy"))
        assert measured["request"].tolist() == list(range(planned))
        sent = run.rows[run.rows["t_dispatch"] > 0]
        counted = np.bincount(sent["worker"], minlength=4)
        assert all(counted[worker] >= count for worker, count in self.copied.items()), (counted, self.copied)
        events = np.bincount(run.events["row"], minlength=len(run.rows))
        lost = [worker for each in run.document.hosts if each.status == "lost" for worker in each.workers]
        theirs = np.isin(run.rows["worker"], lost)
        unknown = run.rows["status"] == layout.HOST_LOST
        assert (events <= run.rows["events"]).all()
        assert unwritten or ((events == run.rows["events"]) | unknown).all()  # a row can be copied before its events
        assert not (unknown & ~theirs).any() and not (run.rows["status"] == layout.IN_FLIGHT).any()
        assert not (theirs & (run.rows["status"] == layout.NOT_SENT)).any()

    def check_log(self, run: Run, unwritten: int = 0) -> None:
        """What the server received has a row, but for at most *unwritten* requests of a host that was lost."""
        phase = run.phase("measure")
        assert phase is not None
        received = truth.load(str(self.log)).requests
        keys = set(received["key"][received["phase"] == phase.number].tolist())
        measured = run.rows[run.rows["phase"] == layout.MEASURE]
        sent = set(measured["request"][measured["t_submit"] > 0].tolist())
        assert sent <= keys and len(keys - sent) <= unwritten, (len(keys), len(sent))
        missing = measured[np.isin(measured["request"], list(keys - sent))]
        assert (missing["status"] == layout.HOST_LOST).all()


def rows_of(folder: Path, worker: int) -> int:
    """Complete rows that have been copied."""
    rows = folder / "workers" / str(worker) / "requests.npy"
    return (rows.stat().st_size - 4096) // layout.REQUEST.itemsize if rows.exists() else 0


def signal_tree(placement: LocalPlacement, host: int, number: signal.Signals) -> None:
    for pid in session_members(placement.handles[host].process.pid):
        os.kill(pid, number)


@repeated
def test_host_killed(tmp_path: Path, scratch: Path, number: int) -> None:
    case, placement = Case(tmp_path, number), LocalPlacement(2)
    case.run(placement, lambda: signal_tree(placement, 1, signal.SIGKILL), 4.0)
    run = case.check("host-lost", ["ended", "lost"], ["ended", "lost"])
    case.check_log(run, unwritten=90)  # rows reach the disk twice a second, at 30 requests per second


@repeated
def test_host_stopped(tmp_path: Path, scratch: Path, number: int) -> None:
    case, placement = Case(tmp_path, number), LocalPlacement(2)
    case.run(placement, lambda: signal_tree(placement, 1, signal.SIGSTOP), 4.0)
    run = case.check("host-lost", ["ended", "lost"], ["ended", "lost"])
    case.check_log(run, unwritten=90)


@pytest.fixture
def apart() -> Iterator[Apart]:
    with made_apart() as placement:
        yield placement


@repeated
def test_host_partitioned(tmp_path: Path, scratch: Path, apart: Apart, number: int) -> None:
    """It ends by itself, and is collected when its network is back."""
    case = Case(tmp_path, number, host=apart.driver_address)
    case.run(apart, apart.cut, 4.0)
    wait(lambda: not ours(scratch), 30.0)
    run = case.check("host-lost", ["ended", "lost"], ["ended", "alone"])
    measured = run.rows[run.rows["phase"] == layout.MEASURE]
    received = truth.load(str(case.log)).requests
    assert set(received["key"][received["phase"] == 1].tolist()) <= set(
        measured["request"][measured["t_submit"] > 0].tolist()
    )


@repeated
def test_host_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    case = Case(tmp_path, number)
    with small_disk(tmp_path / "small") as folder:
        monkeypatch.setenv("TMPDIR", str(folder))
        began = time.monotonic()
        view = case.run(LocalPlacement(2), lambda: fill(folder), 30.0)
        assert time.monotonic() - began < 30.0
        (folder / "ballast").unlink()
        found = load(case.folder)
        assert codes(view.document["incidents"]).count("disk-full") == 1 and found.manifest["disk_full"]
        assert [each["status"] for each in found.manifest["hosts"]] == ["ended", "ended"]
        case._check_rows(found, unwritten=True)
        kept = [each["folder"] for each in found.manifest["hosts"] if each["folder"] is not None]
        assert collect(case.folder, None, False, Watching()) == 0
        run = load(case.folder)
        case._check_rows(run, unwritten=True)
        assert run.verdict == "invalid" and not any(Path(each).exists() for each in kept)


@repeated
def test_driver_killed(tmp_path: Path, scratch: Path, number: int) -> None:
    case = Case(tmp_path, number)
    with case.server as server:
        words = [sys.executable, str(DRIVER), str(case.folder), server.url, "60", "3"]
        driver = subprocess.Popen(words)
        wait(lambda: has_begun(case.folder) or driver.poll() is not None)
        time.sleep(number * 0.2)  # up to the end of the run, and its conclusion
        case.home = {worker: rows_of(case.folder, worker) for worker in range(2)}
        driver.kill()
        driver.wait(60)
        wait(lambda: not ours(scratch) - {server.pid}, 30.0)
    if load(case.folder).manifest["status"] == "done":
        pytest.skip(
            "the run had been concluded before its driver was killed: nothing was left for `collect` to conclude"
        )
    assert collect(case.folder, None, False, Watching()) == 0
    run = load(case.folder)
    assert [each["status"] for each in run.manifest["hosts"]] == ["alone", "alone"]
    assert codes(run.manifest["incidents"]).count("driver-lost") == 1 and run.manifest["status"] == "partial"
    assert run.verdict == "invalid" and not list(scratch.iterdir())
    case._check_rows(run)
    case.check_log(run)


def has_begun(folder: Path) -> bool:
    """Whether the measured phase has begun."""
    path = folder / "run.json"
    return path.exists() and any(each["name"] == "measure" for each in json.loads(path.read_bytes())["phases"])
