"""Mixes from two hosts: slots of a class and lines of the live view, against the log of the engine that both send to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.local_hosts import Watching
from truth.truth_bench import mix_from_two_hosts

from fastllmload.arrivals.curve import read_curve, slot_changes
from fastllmload.records.layout import MEASURE, OK
from fastllmload.records.run import Run
from fastllmload.simulator.truth import load as load_truth

SECONDS = 3.0
CURVE = "ramp:1,12"
LONG = 2
CLASSES = (
    "chat rate=40 isl=24 osl=8",
    f"back concurrency={CURVE} isl=16 osl=6",
    "long rate=2 arrival=constant isl=12 osl=1500",
)
ENGINE: dict[str, Any] = {"ttft_ms": 40.0, "itl_ms": 4.0, "phase": "spread", "faults": ("status:0.1",)}


def joined(run: Run, truth: Path) -> tuple[np.ndarray, np.ndarray]:
    """The measured rows, and the engine's rows of the same requests in their order: each was received once."""
    number = next(phase["number"] for phase in run.manifest["phases"] if phase["name"] == "measure")
    ours = run.rows[run.rows["phase"] == MEASURE]
    ours = ours[np.argsort(ours["request"], kind="stable")]
    theirs = load_truth(truth).requests
    theirs = theirs[theirs["phase"] == number]
    theirs = theirs[np.argsort(theirs["key"], kind="stable")]
    assert ours["request"].tolist() == theirs["key"].tolist()
    return ours, theirs


@pytest.mark.clock
@pytest.mark.parametrize("collect", ["rows", "summary"])
def test_a_ramp_of_a_class_is_that_of_both_hosts_together(tmp_path: Path, collect: str) -> None:
    """What the engine had in flight of the class follows the curve within one at 95 % of settled instants, and is never
    more; the live view counts each class as the engine's log does: never more than it has, in the end all of it.
    """
    snapshots: list[Any] = []
    run = mix_from_two_hosts(
        tmp_path / "run", CLASSES, SECONDS, collect, Watching(snapshots.append), truth=str(tmp_path / "truth"), **ENGINE
    )
    ours, theirs = joined(run, tmp_path / "truth")
    phase = run.phase("measure")
    assert phase is not None and set(ours["worker"]) == {0, 1}
    mine = ours["request_class"] == 1
    assert set(ours["worker"][mine]) == {0, 1}
    begin, end = (np.sort(theirs[name][mine] - phase.start_ns) for name in ("t_recv_first_kernel", "t_end"))
    longest = int((theirs["t_end"] - theirs["t_recv_first"])[mine].max())
    t = np.arange(5_000_000, round(SECONDS * 1e9) - 10_000_000, 3_000_000)
    asked = slot_changes(read_curve(CURVE, SECONDS), SECONDS)
    in_flight = np.searchsorted(begin, t, "right") - np.searchsorted(end, t, "right")
    recent = np.stack([asked.at(t - back) for back in range(0, longest + 10_000_000, 2_000_000)])
    assert (in_flight <= recent.max(axis=0)).all()
    settled = recent.max(axis=0) == asked.at(t)
    assert settled.mean() > 0.5 and (np.abs(in_flight - asked.at(t))[settled] <= 1).mean() >= 0.95
    of_phase = [each for each in snapshots if each.phase == "measure"]
    names = [one.partition(" ")[0] for one in CLASSES]
    assert all([one.name for one in each.classes] == names for each in of_phase)
    failed = ours["status"] != OK
    assert failed.any()
    for number in range(len(names)):
        of_class = ours["request_class"] == number
        seen = [each.classes[number] for each in of_phase]
        for each, line in zip(of_phase, seen, strict=True):
            ended = of_class & (ours["t_end"] <= phase.start_ns + round(each.t * 1e9))
            assert line.ok <= (ended & ~failed).sum() and line.failed <= (ended & failed).sum()
            assert line.ok + line.failed + line.in_flight <= of_class.sum()
        if number != LONG:
            last = seen[-1]
            assert (last.ok, last.failed) == ((of_class & ~failed).sum(), (of_class & failed).sum())
            assert last.in_flight == 0 and last.latency == "ttft"
            ttft = (ours["t_first"] - ours["t_submit"])[of_class & ~failed] / 1e6
            assert last.p50_ms == pytest.approx(np.percentile(ttft, 50, method="inverted_cdf"), rel=0.01)
