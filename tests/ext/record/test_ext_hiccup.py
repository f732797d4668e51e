"""The hiccup meter sees a stopped process as a stall, never needs the GIL, and counts every instant that it missed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext.record import histogram
from fastllmload._ext.record.hiccup import HiccupMeter

STOPPED = """
from fastllmload._ext.record import histogram
import sys
import time
from fastllmload._ext.record.hiccup import HiccupMeter
meter = HiccupMeter(late_ns=int(sys.argv[1]))
meter.start()
while histogram.total(meter.words) < 200:
    time.sleep(0.001)
print("ready", flush=True)
sys.stdin.readline()
meter.stop()
worst = meter.stalls[meter.stalls[:, 1].argmax()] if len(meter.stalls) else (0, 0)
print(int(worst[0]), int(worst[1]), int(meter.words[histogram.TOTAL]), meter.stall_count)
"""


def wait_for(count: int, meter: HiccupMeter) -> None:
    deadline = time.monotonic() + 20
    while histogram.total(meter.words) < count:
        assert time.monotonic() < deadline, "the thread does not run"
        time.sleep(0.001)


def test_every_interval_is_counted_once() -> None:
    """n intervals give n counts, late or not: the histogram's total times the interval is the time that passed."""
    meter = HiccupMeter(interval_ns=500_000)
    before = time.monotonic_ns()
    meter.start()
    wait_for(100, meter)
    meter.stop()
    passed = time.monotonic_ns() - before
    counted = histogram.total(meter.words)
    assert counted == meter.words[histogram.TOTAL]
    assert counted * 500_000 <= passed
    frozen = meter.words.copy()
    time.sleep(0.003)
    assert np.array_equal(frozen, meter.words), "a stopped meter still counts"


def test_it_asks_for_the_shortest_slices() -> None:
    """Where the kernel has slices of a thread's own (6.12), the meter's are 0.1 ms; no kernel refuses."""
    meter = HiccupMeter()
    meter.start()
    wait_for(2, meter)
    scheduler = Path(f"/proc/self/task/{meter.thread_id}/sched")
    lines = scheduler.read_text().splitlines() if scheduler.exists() else []
    meter.stop()
    slices = [line.split()[-1] for line in lines if line.startswith("se.slice")]
    assert meter.slice_error == 0
    if slices and tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 12):
        assert slices == ["100000"]


def test_it_runs_while_the_interpreter_is_held() -> None:
    """A loop that never gives the GIL back sees the meter count on, within ten seconds of any host."""
    meter = HiccupMeter()
    meter.start()
    before = histogram.total(meter.words)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        end = time.monotonic_ns() + 10_000_000_000
        while (seen := histogram.total(meter.words) - before) <= 5 and time.monotonic_ns() < end:
            pass
    finally:
        sys.setswitchinterval(interval)
        meter.stop()
    assert seen > 5


@pytest.mark.parametrize("late_ns", [1 << 60, -1])
def test_a_stopped_process_is_a_stall(late_ns: int) -> None:
    """SIGSTOP of 60 ms: one stall of about that in the ring, and the instants it missed are in the histogram; also where
    the meter examines every fourth instant only.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(late_ns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": "src"},
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        stopped = time.monotonic_ns()  # before the call: we may be stopped after it ourselves
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)  # when every thread stands still
        time.sleep(0.06)
        child.send_signal(signal.SIGCONT)
        output, _ = child.communicate("\n", timeout=20)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    missed_at, lateness, counted, stalls = map(int, output.split())
    assert lateness >= 57_000_000
    assert missed_at >= stopped - 5_000_000
    assert counted >= 257
    assert stalls >= 1


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        HiccupMeter(interval_ns=0)
    meter = HiccupMeter()
    meter.start()
    assert meter.running and meter.thread_id is not None
    with pytest.raises(RuntimeError, match="already"):
        meter.start()
    meter.stop()
    meter.stop()
    assert not meter.running and meter.thread_id is None
    with pytest.raises(OSError, match="CPU 4095"):
        HiccupMeter(cpu=4095).start()


def test_it_can_be_pinned() -> None:
    cpu = min(os.sched_getaffinity(0))
    meter = HiccupMeter(cpu=cpu)
    meter.start()
    wait_for(3, meter)
    assert os.sched_getaffinity(meter.thread_id or 0) == {cpu}
    meter.stop()


@pytest.mark.parametrize(("late_ns", "wakes_per_count"), [(1 << 60, 4), (-1, 1)])
def test_a_quiet_host_is_looked_at_less_often_and_counted_as_often(late_ns: int, wakes_per_count: int) -> None:
    """Every fourth instant has a wake-up of its own where none is late, every one where all are; all are counted."""
    meter = HiccupMeter(late_ns=late_ns)
    meter.start()
    wait_for(200, meter)  # at first it examines each
    before, wakes, counted = met(meter), switches(meter), histogram.total(meter.words)
    wait_for(1_000, meter)
    met_now, wakes, counted = met(meter) - before, switches(meter) - wakes, histogram.total(meter.words) - counted
    meter.stop()
    assert met_now >= 100, "a host that is always late shows nothing"
    assert 0.5 * met_now <= wakes_per_count * wakes <= 1.5 * counted


def met(meter: HiccupMeter) -> int:
    """Instants that were not missed: a wake-up late by n intervals is that of n + 1 instants, of which it met one."""
    interval = histogram.empty()
    histogram.record_many(interval, np.array([meter.interval_ns]))
    return int(meter.words[: np.flatnonzero(interval)[0]].sum())


def switches(meter: HiccupMeter) -> int:
    status = Path(f"/proc/self/task/{meter.thread_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
