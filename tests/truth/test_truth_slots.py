"""Slots of a closed loop that change: what the simulated engine had in flight follows the curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth.truth_bench import Measured, freeze, measure, wait_for_phase, worker_pids_of

from fastllmload.arrivals.curve import SlotChanges, read_curve, slot_changes

ENGINE: dict[str, Any] = {"ttft_ms": 40.0, "itl_ms": 4.0, "phase": "spread"}
LOAD = ["--isl", "16", "--osl", "6", "--no-telemetry", "--warmup", "4"]


def sent(directory: Path, curve: str, seconds: float, workers: str, *more: str) -> tuple[Measured, SlotChanges]:
    options = [*LOAD, "--concurrency", curve, "--duration", f"{seconds}s", "--workers", workers, *more]
    measured = measure(directory, options, pin=False, **ENGINE)
    assert measured.exit_code == 0, measured.said
    return measured, slot_changes(read_curve(curve, seconds), seconds)


def zero(measured: Measured) -> int:
    return next(int(phase["start_ns"]) for phase in measured.run.manifest["phases"] if phase["name"] == "measure")


@pytest.mark.clock
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("curve", ["ramp:1,12", "steps:6,2,9,0,4", "exponential:1,16"])
def test_what_is_in_flight_follows_the_curve(tmp_path: Path, curve: str, workers: str) -> None:
    """By the engine's log, within one at 95 % of the instants that lie after the longest request since the last slot closed;
    never more than were asked for within the length of a request before.
    """
    measured, asked = sent(tmp_path / "run", curve, 3.0, workers)
    _, theirs = measured.joined()
    begin, end = (np.sort(theirs[name] - zero(measured)) for name in ("t_recv_first", "t_end"))
    longest = int((theirs["t_end"] - theirs["t_recv_first"]).max())
    t = np.arange(5_000_000, 2_990_000_000, 3_000_000)
    in_flight = np.searchsorted(begin, t, "right") - np.searchsorted(end, t, "right")
    recent = np.stack([asked.at(t - back) for back in range(0, longest + 10_000_000, 2_000_000)])
    assert (in_flight <= recent.max(axis=0)).all()
    settled = recent.max(axis=0) == asked.at(t)
    assert settled.mean() > 0.5
    assert (np.abs(in_flight - asked.at(t))[settled] <= 1).mean() >= 0.95
    found = measured.document["slots"]
    area = np.sum(np.diff(np.append(asked.t_ns, 3_000_000_000)) * asked.slots) / 3e9
    assert found["asked_mean"] == pytest.approx(area)
    assert found["achieved_mean"] == pytest.approx(in_flight.mean(), rel=0.08)


@pytest.mark.parametrize("workers", ["1", "3"])
def test_slots_open_at_their_instants_and_none_is_cut(tmp_path: Path, workers: str) -> None:
    """Each opening of a rising curve is the instant of one request; every request is answered whole."""
    measured, asked = sent(tmp_path / "run", "ramp:2,9", 2.0, workers)
    rows = measured.run.rows[measured.run.rows["phase"] == 1]
    due = set((rows["t_sched"] - zero(measured)).tolist())
    assert set(asked.t_ns.tolist()) <= due
    assert (measured.joined()[1]["flags"] & 2 == 0).all()  # aborted
    assert sorted(rows["request"].tolist()) == list(range(len(rows))) or workers == "3"
    assert len(set(rows["request"].tolist())) == len(rows)


def test_a_number_of_requests_bounds_it_too(tmp_path: Path) -> None:
    """Fewer requests than slots: each is sent once."""
    measured, _ = sent(tmp_path / "run", "steps:3x0.2,30x2", 2.2, "2", "-n", "17")
    rows = measured.run.rows[measured.run.rows["phase"] == 1]
    assert sorted(rows["request"].tolist()) == list(range(17))


def test_conversations_keep_their_slot(tmp_path: Path) -> None:
    """A slot closes when its conversation has ended, so every conversation that began has all of its turns."""
    measured, _ = sent(tmp_path / "run", "steps:6x0.3,1x1", 1.3, "2", "--turns", "3", "-n", "12")
    rows = measured.run.rows[measured.run.rows["phase"] == 1]
    assert {int(np.count_nonzero(rows["session"] == session)) for session in np.unique(rows["session"])} == {3}


RAMP = [*LOAD[:2], "--osl", "20", "--no-telemetry", "--warmup", "4", "--ramp-share", "0", "--workers", "1"]


def missing(measured: Measured, asked: SlotChanges, end_ns: int) -> float:
    """Share of the slot time asked for up to *end_ns* that no request was in flight for, by the engine's log."""
    _, theirs = measured.joined()
    begin, end = (np.sort(theirs[name] - zero(measured)) for name in ("t_recv_first_kernel", "t_end"))
    t = np.arange(0, end_ns, 500_000)
    wanted = asked.at(t)
    in_flight = np.searchsorted(begin, t, "right") - np.searchsorted(end, t, "right")
    return float(np.maximum(wanted - in_flight, 0).sum() / wanted.sum())


@pytest.mark.clock
@pytest.mark.parametrize("stopped_s", [0.0, 0.2, 0.5])
def test_slots_that_a_stopped_client_left_empty_are_stated(tmp_path: Path, stopped_s: float) -> None:
    """A worker is stopped while slots are to open and requests end: the certificate says for how much of the slot time, by
    the engine's log within a tenth of the figure, or 0.3 %. Without a stop it says nothing.
    """
    options = [*RAMP, "--concurrency", "ramp:1,24", "--duration", "4s"]

    def disturb(folder: Path) -> None:
        wait_for_phase(folder, after_s=1.5)
        for pid in worker_pids_of(folder):
            freeze(pid, stopped_s)

    engine = {"ttft_ms": 100.0, "itl_ms": 20.0, "phase": "spread"}
    measured = measure(tmp_path / "run", options, pin=False, during=disturb if stopped_s else None, **engine)
    asked = slot_changes(read_curve("ramp:1,24", 4.0), 4.0)
    truth = missing(measured, asked, 4_000_000_000)
    found = [each for each in measured.document["certificate"]["reasons"] if each["code"] == "slots_empty"]
    if not stopped_s:
        assert not found and truth < 0.01
        return
    assert found[0]["severity"] == ("suspect" if stopped_s == 0.2 else "invalid")
    assert found[0]["value"] == pytest.approx(truth, rel=0.1, abs=0.003)
