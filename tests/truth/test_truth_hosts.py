"""Three hosts send one schedule: what a common server received, against the plan, as from one host."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from truth_bench import CONTENT, QUIET_US, until_quiet

from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.engine.recording.tap import permitted
from fastllmload.engine.run import execute
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.report.terminal.view import make_ui
from fastllmload.settings import Client, Load, Output, RunSettings, Target, Workload
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import Truth
from fastllmload.simulator.truth import load as load_truth

HOSTS = 3
LATE_US = 30.0
SAME_SHAPE = 0.02  # of the distance of two distributions of 800 gaps
Times = npt.NDArray[np.int64]


@dataclass
class Sent:
    """A run and the truth log of its server. *bound_us*: the largest of the hosts' clocks; 0 of one host."""

    run: Run
    truth: Truth

    @property
    def bound_us(self) -> float:
        return max((host.clock.bound_ns / 1e3 for host in self.run.document.hosts if host.clock), default=0.0)  # type: ignore[operator]

    def start_ns(self) -> int:
        phase = self.run.phase("measure")
        assert phase is not None
        return phase.start_ns

    def received(self) -> npt.NDArray[Any]:
        """The server's row of each measured request, in the order of the plan: each was received once."""
        number = next(phase["number"] for phase in self.run.manifest["phases"] if phase["name"] == "measure")
        found = self.truth.requests[self.truth.requests["phase"] == number]
        found = found[np.argsort(found["key"], kind="stable")]
        assert found["key"].tolist() == list(range(len(self.planned())))
        return found

    def planned(self) -> Times:
        schedule: Times = np.load(self.run.directory / "plan" / "schedule.npy")["t_sched_ns"]
        return schedule

    def late_us(self) -> npt.NDArray[np.float64]:
        """From the planned instant of each request to its arrival at the server, in the driver's clock."""
        late: npt.NDArray[np.float64] = (
            self.received()["t_recv_first_kernel"] - (self.start_ns() + self.planned())
        ) / 1e3
        return late

    def distance(self) -> float:
        """Of the gaps between arrivals from those of the plan: the statistic of Kolmogorov and Smirnov."""
        gaps, planned = np.diff(np.sort(self.received()["t_recv_first_kernel"])), np.diff(np.sort(self.planned()))
        at = np.sort(np.concatenate([gaps, planned]))
        shares = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (gaps, planned)]
        return float(np.abs(shares[0] - shares[1]).max())


def sent(directory: Path, placement: LocalPlacement | None, **client: Any) -> Sent:
    directory.mkdir(parents=True)
    truth = directory / "truth.bin"
    with SimulatorProcess(SimulatorOptions(truth=str(truth), ttft_ms=20.0, itl_ms=5.0, phase="spread")) as server:
        settings = RunSettings(
            target=Target(urls=(server.url,)),
            load=Load(rate=200.0, duration=4.0, warmup_requests=20),
            workload=Workload(isl="16", osl="8"),
            client=Client(workers=1, **client),
            output=Output(directory=str(directory / "run"), ui="none"),
        )
        assert execute(settings, None, make_ui("none", io.StringIO()), placement=placement) == 0
    return Sent(load(directory / "run"), load_truth(truth))


@pytest.mark.clock
def test_three_hosts_keep_the_schedule_as_one_does(tmp_path: Path) -> None:
    """At the server half of all requests arrive at most 30 us, and the bound of the clocks, later than from one host due."""

    def check(directory: Path) -> tuple[bool | None, str]:
        one, many = sent(directory / "one", None), sent(directory / "many", LocalPlacement(HOSTS))
        workers = many.run.rows["worker"][many.run.rows["phase"] == layout.MEASURE]
        assert set(workers) == set(range(HOSTS))
        late, bound_us = (float(np.median(each.late_us())) for each in (one, many)), many.bound_us
        of_one, of_many = late
        shapes = one.distance(), many.distance()
        problem = f"one {of_one:.1f} us, many {of_many:.1f} us, bound {bound_us:.1f} us, distances {shapes}"
        hiccups = (many.run.manifest["certificate"]["host"] or {}).get("hiccup_p99_us") or 0.0
        passed = of_many <= LATE_US + bound_us and shapes[1] <= shapes[0] + SAME_SHAPE
        return (passed or (None if hiccups >= QUIET_US else False)), problem

    until_quiet(tmp_path, check)


@pytest.mark.skipif(not permitted(), reason="CAP_NET_RAW is missing")
def test_each_host_joins_the_segments_of_its_own_ring(tmp_path: Path) -> None:
    """Every event has the time of its segment, and that is close to when the server sent it, in the driver's clock."""
    found = sent(tmp_path / "tapped", LocalPlacement(HOSTS), timestamps="tap")
    run, document = found.run, found.run.manifest
    assert [host["timestamps"] for host in document["hosts"]] == ["tap"] * HOSTS
    assert document["config"]["client"]["timestamps"] == "tap"
    taps = [host["tap"] for host in document["hosts"]]
    assert sum(tap["joined"] for tap in taps) == document["tap"]["joined"] == len(run.events) > 5_000
    assert sum(tap["segments"] for tap in taps) == document["tap"]["segments"] and document["tap"]["drops"] == 0
    assert not any(document["tap"]["unmatched"].values())
    assert set(run.event_stamp & layout.STAMP_CLASS_MASK) == {layout.STAMP_TAP}
    for host in document["hosts"]:
        assert host["certificate"]["timestamp_source"] == "tap"
        assert not list((run.directory / "hosts" / str(host["host"])).glob("tap.*")), "joined segments are removed"
    bound_ns = found.bound_us * 1e3
    wire = run.rows["t_wire"] - run.rows["t_submit_start"]
    assert (run.rows["t_wire"] > 0).all() and (wire > -50_000).all() and np.median(wire) < 1_000_000
    theirs = found.received()
    ours = run.rows[run.rows["phase"] == layout.MEASURE]
    assert np.abs(np.median(theirs["t_recv_first_kernel"] - ours["t_wire"])) <= bound_ns + 200_000
    content = found.truth.content()
    number = next(phase["number"] for phase in document["phases"] if phase["name"] == "measure")
    content = content[content["phase"] == number]
    content = content[np.lexsort((content["index"], content["key"]))]
    mine = run.events[(run.rows["phase"][run.events["row"]] == layout.MEASURE) & (run.event_kind == CONTENT)]
    errors = mine["t_ns"] - content["t_ns"]
    assert errors.min() >= -bound_ns - 50_000 and abs(float(np.median(errors))) <= bound_ns + 200_000
