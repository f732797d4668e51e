"""`fastllmload calibrate`: what one worker on this host can do, measured with the real worker against the bundled
engine.

Two closed loops, client and server each on a core of its own: streams at reading speed for the events, one-token
streams against the null server for new requests. What was done is divided by the share of the core that the worker
used: a load below the ceiling makes each event dearer (the process sleeps and wakes more often), so the result is
rather too low.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastllmload.certificate.ceiling import Ceiling, host_key, refuse_unwritable, store_ceiling, stored_ceiling
from fastllmload.certificate.run_evidence import from_run
from fastllmload.errors import HostLimitError, InternalError
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

STREAMS, ITL_MS, TOKENS = 1_000, 20.0, 300  # 50,000 events/s for 6 s
SLOTS, SECONDS = 128, 4
RUN_TIMEOUT_S, ENDING_S = 60, 20


@dataclass(frozen=True)
class CalibrationResult:
    """Of the measured window of one run: work done, and the CPU that the worker took for it."""

    events: int
    requests: int
    cpu_s: float


def stored() -> Ceiling | None:
    """This host's ceiling; None when it was never calibrated with this version."""
    return stored_ceiling()


def calibrate() -> Iterator[str]:
    """Measure, remember, and say so line by line. InternalError when a calibrating run fails, HostLimitError
    when this host has no room for one, or for what it gives.
    """
    refuse_unwritable()
    cores = sorted(os.sched_getaffinity(0))
    server_cpu, client_cpu = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    if client_cpu is None:
        yield "this host has one core: client and server share it, so the ceiling is rather too low"
    yield f"events: {STREAMS} streams of {1000 / ITL_MS:g} tokens/s"
    events = measure_events(server_cpu, client_cpu)
    yield f"requests: closed loop of {SLOTS} one-token streams against the null server, {SECONDS} s"
    requests = measure_requests(server_cpu, client_cpu)
    ceiling = Ceiling(
        events_per_s=round(events.events / events.cpu_s),
        requests_per_s=round(requests.requests / requests.cpu_s),
    )
    path = store_ceiling(ceiling)
    yield f"one worker on one core: {ceiling.events_per_s:,.0f} events/s, or {ceiling.requests_per_s:,.0f} new requests/s"
    yield f"stored for {host_key().replace('|', ', ')} in {path}"


def measure_events(server_cpu: int | None, client_cpu: int | None) -> CalibrationResult:
    options = SimulatorOptions(itl_ms=ITL_MS, ttft_ms=ITL_MS, phase="spread", cpu=server_cpu)
    return drive(options, client_cpu, ["-c", str(STREAMS), "-n", str(STREAMS), "--osl", str(TOKENS)])


def measure_requests(server_cpu: int | None, client_cpu: int | None) -> CalibrationResult:
    options = SimulatorOptions(null=True, cpu=server_cpu)
    return drive(options, client_cpu, ["-c", str(SLOTS), "-d", f"{SECONDS}s", "--osl", "1"])


def drive(options: SimulatorOptions, client_cpu: int | None, load_options: list[str]) -> CalibrationResult:
    """One run of one worker in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-") as parent, SimulatorProcess(options) as simulator:
        folder = Path(parent) / "run"
        command = [
            sys.executable, "-m", "fastllmload.cli.main", "--url", simulator.url, "--isl", "16", "--warmup", "0",
            "--workers", "1", "--ui", "none", "-o", str(folder), *load_options,
        ]  # fmt: skip
        if client_cpu is not None:
            command += ["--pin", str(client_cpu)]
        finish(command)
        return measured(folder)


def finish(command: list[str]) -> None:
    """Wait for a run's end, and leave nothing of it behind when somebody ends the wait. HostLimitError: this host does
    not carry it.
    """
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = child.communicate(timeout=RUN_TIMEOUT_S)[1].strip()
    except BaseException as problem:
        child.terminate()  # it ends its workers, and they are done with their files
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=ENDING_S)
        child.kill()
        if isinstance(problem, subprocess.TimeoutExpired):
            raise HostLimitError(
                f"a calibrating run was not over after {RUN_TIMEOUT_S} s: this host is too busy to be calibrated now"
            ) from None
        raise
    if child.returncode == HostLimitError.exit_code:
        raise HostLimitError(f"this host cannot be calibrated: {said.removeprefix('fastllmload: ')}")
    if child.returncode != 0:
        raise InternalError(f"a calibrating run ended with exit code {child.returncode}: {said}")


def measured(folder: Path) -> CalibrationResult:
    """From the samples of the window: counters and CPU between the same two instants."""
    run = load(folder)
    (worker,) = from_run(run).workers
    if len(worker.t_ns) < 2 or worker.cpu_ns[-1] <= worker.cpu_ns[0]:
        raise InternalError("a calibrating run left no samples of its window")
    failed = int(run.manifest.get("failed", 0))
    if failed:
        raise InternalError(f"a calibrating run had {failed} failed requests")
    return CalibrationResult(
        events=int(worker.events[-1] - worker.events[0]),
        requests=int(worker.released[-1] - worker.released[0]),
        cpu_s=float(worker.cpu_ns[-1] - worker.cpu_ns[0]) / 1e9,
    )
