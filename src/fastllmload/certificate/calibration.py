"""Measures the capacity of one worker on this host against the bundled engine (`fastllmload calibrate`).

Two closed loops, with client and server on cores of their own: streams at reading speed measure events/s, one-token
streams against the null server measure new requests/s. The work done is divided by the share of the core that the worker
used. An event costs more CPU time below the ceiling, where the process sleeps and wakes more often, so the result tends to
underestimate.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fastllmload.certificate.ceiling import Ceiling, host_key, refuse_unwritable, store_ceiling
from fastllmload.certificate.run_evidence import from_run
from fastllmload.documents.fields import known
from fastllmload.errors import HostLimitError, InternalError
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

STREAMS, ITL_MS, TOKENS = 1_000, 20.0, 300  # 50,000 events/s for 6 s
SLOTS, SECONDS = 128, 4
RUN_TIMEOUT_S, ENDING_S = 60, 20


def calibrate() -> Iterator[str]:
    """Measure and store the ceiling; yields progress lines. InternalError when a calibration run fails, HostLimitError when
    this host is too small or too busy for one, or cannot store the result.
    """
    refuse_unwritable()
    cores = sorted(os.sched_getaffinity(0))
    server_cpu, client_cpu = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    if client_cpu is None:
        yield "this host has one core: client and server share it, so the ceiling is an underestimate"
    yield f"events: {STREAMS} streams of {1000 / ITL_MS:g} tokens/s"
    streams = SimulatorOptions(itl_ms=ITL_MS, ttft_ms=ITL_MS, phase="spread", cpu=server_cpu)
    events, _ = drive(streams, client_cpu, ["-c", str(STREAMS), "-n", str(STREAMS), "--osl", str(TOKENS)])
    yield f"requests: closed loop of {SLOTS} one-token streams against the null server, {SECONDS} s"
    null = SimulatorOptions(null=True, cpu=server_cpu)
    _, requests = drive(null, client_cpu, ["-c", str(SLOTS), "-d", f"{SECONDS}s", "--osl", "1"])
    ceiling = Ceiling(events_per_s=round(events), requests_per_s=round(requests))
    path = store_ceiling(ceiling)
    yield f"one worker on one core: {ceiling.events_per_s:,.0f} events/s, or {ceiling.requests_per_s:,.0f} new requests/s"
    yield f"stored for {host_key().replace('|', ', ')} in {path}"


def drive(options: SimulatorOptions, client_cpu: int | None, load_options: list[str]) -> tuple[float, float]:
    """Events and requests per second of CPU time of one worker, by a run in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-") as parent, SimulatorProcess(options) as simulator:
        folder = Path(parent) / "run"
        command = [
            sys.executable, "-m", "fastllmload.cli.main", "--url", simulator.url, "--isl", "16", "--warmup", "0",
            "--workers", "1", "--ui", "none", "-o", str(folder), *load_options,
        ]  # fmt: skip
        if client_cpu is not None:
            command += ["--pin", str(client_cpu)]
        wait_for_run(command)
        return read_result(folder)


def wait_for_run(command: list[str]) -> None:
    """Run *command* to its end; ends it when the wait is interrupted. HostLimitError when this host is too slow for it."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        stderr = child.communicate(timeout=RUN_TIMEOUT_S)[1].strip()
    except BaseException as problem:
        child.terminate()  # it ends its workers and closes their files
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=ENDING_S)
        child.kill()
        if isinstance(problem, subprocess.TimeoutExpired):
            raise HostLimitError(
                "calibration-failed",
                f"a calibration run did not end within {RUN_TIMEOUT_S} s: this host is too busy to be calibrated now",
            ) from None
        raise
    if child.returncode == HostLimitError.exit_code:
        raise HostLimitError(
            "calibration-failed", f"this host cannot be calibrated: {stderr.removeprefix('fastllmload: ')}"
        )
    if child.returncode != 0:
        raise InternalError("internal-error", f"a calibration run ended with exit code {child.returncode}: {stderr}")


def read_result(folder: Path) -> tuple[float, float]:
    """Events and requests per second of CPU time, between the first and the last sample of the window."""
    run = load(folder)
    (worker,) = from_run(run).workers
    if len(worker.t_ns) < 2 or worker.cpu_ns[-1] <= worker.cpu_ns[0]:
        raise InternalError("internal-error", "a calibration run has no samples of its window")
    failed = int(known(run.document.failed) or 0)
    if failed:
        raise InternalError("internal-error", f"a calibration run had {failed} failed requests")
    cpu_s = float(worker.cpu_ns[-1] - worker.cpu_ns[0]) / 1e9
    return int(worker.events[-1] - worker.events[0]) / cpu_s, int(worker.released[-1] - worker.released[0]) / cpu_s
