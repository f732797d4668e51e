"""CPU time of the simulated engine per event over HTTP/2 against HTTP/1.1: the median of the ratios of pairs of runs."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load

TICK_US = 10_000


def spent_us(pid: int) -> float:
    """CPU time of a process, in its own code and in the kernel for it."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_US


def per_event_us(version: str, streams: int, tokens: int, tls: bool) -> float:
    with TemporaryDirectory() as folder:
        truth = f"{folder}/truth"
        with SimulatorProcess(SimulatorOptions(ttft_ms=50.0, itl_ms=10.0, truth=truth, tls=tls)) as engine:
            before = spent_us(engine.pid)
            subprocess.run(
                [sys.executable, "-m", "fastllmload", "-u", engine.url, *["--insecure"] * tls, "--http-version", version,
                 "-c", str(streams), "-n", str(2 * streams), "--osl", str(tokens), "--isl", "16", "--warmup", "0",
                 "--no-telemetry", "--ui", "plain", "-o", f"{folder}/run"],
                check=False, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            spent = spent_us(engine.pid) - before
        return spent / len(load(truth).events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tls", action="store_true")
    given = parser.parse_args()
    ratios = []
    for _ in range(given.repeats):
        one, two = (per_event_us(version, given.streams, given.tokens, given.tls) for version in ("1.1", "2"))
        ratios.append(two / one)
        print(f"HTTP/1.1 {one:.2f} us, HTTP/2 {two:.2f} us an event: {two / one:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
