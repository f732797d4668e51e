"""Closed loops next to open ones: what is said of the schedule is of the open ones, and each closed one held its slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth.truth_bench import (
    QUIET_US,
    Measured,
    freeze,
    measure,
    mix_from_two_hosts,
    until_quiet,
    wait_for_phase,
    worker_pids_of,
)

from fastllmload.metrics.run.window import window_of
from fastllmload.records.layout import MEASURE, OK
from fastllmload.records.run import Run

ENGINE: dict[str, Any] = {"ttft_ms": 20.0, "itl_ms": 5.0, "phase": "spread"}
CLASSES = ("chat rate=120 isl=24 osl=6", "batch concurrency=8 isl=40 osl=10", "small concurrency=3 isl=12 osl=2")
SLOTS = {"batch": (1, 8), "small": (2, 3)}  # number of the class, slots
SECONDS = 3
LOAD = ["--seed", "6", "--no-telemetry", "--warmup", "8", "--duration", str(SECONDS)]
LOAD += [word for one in CLASSES for word in ("--class", one)]


def zero(run: Run) -> int:
    phase = run.phase("measure")
    assert phase is not None
    return phase.start_ns


def statements_are_of_open_loops(run: Run) -> None:
    """Every figure about the schedule, against the rows of class 0; totals are of all classes."""
    rows, window, document = run.rows[run.rows["phase"] == MEASURE], window_of(run), run.document
    certificate, metrics = document.certificate, document.metrics or {}
    assert window is not None and certificate is not None and certificate.schedule_lag_us is not None
    timed = rows["request_class"] == 0
    due = rows[timed & window.holds(rows["t_sched"]) & (rows["t_dispatch"] > 0)]
    lag = (due["t_dispatch"] - due["t_sched"]) / 1e3
    found = certificate.schedule_lag_us
    assert (found.n, found.max) == (len(due), pytest.approx(lag.max()))
    assert (found.p50, found.p99) == (pytest.approx(np.percentile(lag, 50)), pytest.approx(np.percentile(lag, 99)))
    sent = int(window.holds(rows["t_dispatch"][timed]).sum())
    assert certificate.offered == sent and certificate.offered_rate == pytest.approx(sent / window.seconds)
    assert certificate.planned_rate == pytest.approx(len(due) / window.seconds)
    assert certificate.arrival_tests.tested == len(due)
    ok = rows[(rows["status"] == OK) & window.holds(rows["t_submit"])]
    ttft_sched = (ok["t_first"] - ok["t_sched"])[ok["request_class"] == 0] / 1e6
    assert (metrics["ttft_sched"].n, metrics["ttft"].n) == (len(ttft_sched), len(ok))
    assert metrics["ttft_sched"].p50 == pytest.approx(np.percentile(ttft_sched, 50))
    assert metrics["dispatch_lag"].n == metrics["e2e_sched"].n == len(ttft_sched)
    ended = rows["t_last"][(rows["status"] == OK)]
    assert metrics["req_s"].value == pytest.approx(window.holds(ended).sum() / window.seconds)
    assert document.steadiness is not None and document.steadiness.in_flight is not None
    assert document.steadiness.in_flight.n == timed.sum()
    assert (document.classes or {})["chat"].loop == "open" and (document.classes or {})["chat"].slots is None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_statements_on_the_schedule_are_of_the_open_loops(tmp_path: Path, workers: str) -> None:
    measured = measure(tmp_path / "run", [*LOAD, "--workers", workers], pin=False, **ENGINE)
    assert measured.exit_code == 0, measured.said
    statements_are_of_open_loops(measured.run)
    assert "120/s + 11 concurrent in 3 classes" in measured.said and "8 asked, " in measured.said
    page = (tmp_path / "run" / "run" / "report.html").read_text()
    assert all(text in page for text in ("asked 11 in closed loops", "planned in open loops", "Slots of small"))
    for name, (number, slots) in SLOTS.items():
        one, rows = (measured.run.document.classes or {})[name], measured.run.rows
        sent = (rows["phase"] == MEASURE) & (rows["request_class"] == number) & (rows["t_dispatch"] > 0)
        assert (one.loop, one.concurrency, one.planned) == ("closed", slots, sent.sum())
        assert (one.ttft_sched.n, one.e2e_sched.n) == (0, 0) and one.ttft.n == one.e2e.n > 50
        assert (rows["t_sched"][sent] == zero(measured.run)).sum() == slots


def test_a_run_of_open_loops_says_nothing_of_closed_ones(tmp_path: Path) -> None:
    measured = measure(tmp_path / "run", LOAD[:9], pin=False, **ENGINE)
    page = (tmp_path / "run" / "run" / "report.html").read_text()
    assert not [text for text in ("closed loops", "in open loops", "concurrent") if text in measured.said + page]
    assert "closed_classes" not in measured.document["certificate"]
    assert measured.document["metrics"]["ttft_sched"]["n"] == measured.document["metrics"]["ttft"]["n"]


def in_flight(measured: Measured, number: int) -> np.ndarray:
    """Requests of a class that the engine had in flight, by its log, every half millisecond until the end of sending."""
    ours, theirs = measured.joined()
    theirs = theirs[ours["request_class"] == number]
    begin, end = (np.sort(theirs[name] - zero(measured.run)) for name in ("t_recv_first_kernel", "t_end"))
    t = np.arange(0, SECONDS * 1_000_000_000, 500_000)
    return np.searchsorted(begin, t, "right") - np.searchsorted(end, t, "right")


@pytest.mark.clock
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_quiet_host_holds_the_slots_of_each_class(tmp_path: Path, workers: str) -> None:
    """Valid, and by the engine's log never more and hardly fewer in flight than the slots of each class."""

    def check(folder: Path) -> tuple[bool | None, str]:
        measured = measure(folder, [*LOAD, "--workers", workers], pin=workers == "1", **ENGINE)
        certificate = measured.document["certificate"]
        seen: dict[str, Any] = {
            "verdict": certificate["verdict"],
            "why": [one["code"] for one in certificate["reasons"]],
        }
        for name, (number, slots) in SLOTS.items():
            held = in_flight(measured, number)
            stated = measured.document["classes"][name]["slots"]["achieved_mean"]
            assert held.max() <= slots
            seen[name] = held.mean() / slots, stated / slots, certificate["closed_classes"][name]["empty_share"]
        held_well = all(
            seen[name][0] > 0.98 and abs(seen[name][0] - seen[name][1]) < 0.01 and seen[name][2] < 0.005
            for name in SLOTS
        )
        if certificate["verdict"] != "valid" and certificate["host"]["hiccup_p99_us"] >= QUIET_US:
            return None, str(seen)
        return certificate["verdict"] == "valid" and held_well, str(seen)

    until_quiet(tmp_path, check)


@pytest.mark.clock
def test_slots_that_a_stopped_client_left_empty_are_stated_by_class(tmp_path: Path) -> None:
    """A worker is stopped for 0.3 s: each closed class has the share of its slot time that the engine had nothing of it in
    flight for, within a tenth or 0.5 %, and the largest is a reason that names its class.
    """

    def disturb(folder: Path) -> None:
        wait_for_phase(folder, after_s=1.0)
        for pid in worker_pids_of(folder):
            freeze(pid, 0.3)

    measured = measure(
        tmp_path / "run", [*LOAD, "--workers", "1", "--ramp-share", "0"], pin=False, during=disturb, **ENGINE
    )
    certificate, shares = measured.document["certificate"], {}
    assert set(certificate["closed_classes"]) == set(SLOTS)
    for name, (number, slots) in SLOTS.items():
        missing = 1 - in_flight(measured, number).mean() / slots
        shares[name] = certificate["closed_classes"][name]["empty_share"]
        assert shares[name] == pytest.approx(missing, rel=0.1, abs=0.005) and shares[name] > 0.03
        held = measured.document["classes"][name]["slots"]["achieved_mean"]
        assert held == pytest.approx(slots * (1 - missing), rel=0.01) or held > slots * (1 - missing)
    (reason,) = (each for each in certificate["reasons"] if each["code"] == "class_slots_empty")
    worst = max(shares, key=lambda name: shares[name])
    assert (reason["severity"], reason["value"]) == ("invalid", shares[worst]) and f"class {worst}" in reason["text"]
    assert certificate["generator_limited"]


@pytest.mark.parametrize("collect", ["rows", "summary"])
def test_two_hosts_share_the_slots_of_each_class(tmp_path: Path, collect: str) -> None:
    """One worker on each: all slots are filled once, dealt in turn, and the statements are as of one host."""
    run = mix_from_two_hosts(tmp_path / "run", CLASSES, SECONDS, collect, **ENGINE)
    statements_are_of_open_loops(run)
    rows = run.rows[run.rows["phase"] == MEASURE]
    filling = rows[(rows["request_class"] > 0) & (rows["t_sched"] <= zero(run) + 1_000_000)]
    by_host = [np.bincount(filling["request_class"][filling["worker"] == worker], minlength=3)[1:] for worker in (0, 1)]
    assert [each.tolist() for each in by_host] == [[4, 2], [4, 1]]
    closed = run.document.certificate.closed_classes if run.document.certificate else {}
    assert {name: one.slots for name, one in closed.items()} == {"batch": 8, "small": 3}
