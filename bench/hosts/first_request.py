"""Seconds from the command to the first request, for three hosts of a warm Ray cluster and for this host alone.

Three network namespaces of this machine are the hosts, a fourth has the simulated engine (`tests/integration/ray_hosts.py`).
The runs alternate, each with one warm-up request, after one run that is not counted. The parts of a run end with
what it prints: `opening` the first line, `preflight` the target, `plan` the load, and `start` is the rest, up to the
dispatch of the first request. `hosts` is the time of three hosts over that of one.

Target: three hosts send their first request at most 5 s after the command, preflight not counted. The load average of the
machine is printed too. Needs Ray and the permission to make network namespaces.

    PYTHONPATH=src python bench/hosts/first_request.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from integration.ray_hosts import BRIDGE, NETWORK, RayHosts

from fastllmload.records.run import load

PORT, TARGET_S = 8000, 5.0
PARTS = {"opening": "fastllmload ", "preflight": "target: ", "plan": "load: "}  # each ends with a line that begins so


class WarmHosts(RayHosts):
    """Ray as docs/many-hosts.md starts it: with the normal priority of what it starts."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"RAY_worker_niceness": "0"}


@contextmanager
def engine(hosts: RayHosts) -> Iterator[str]:
    """The simulated engine in the namespace of the bridge; yields its URL."""
    address = f"{NETWORK}.{BRIDGE}"
    words = ["-m", "fastllmload", "simulate", "--host", address, "--port", str(PORT), "--ttft-ms", "5", "--itl-ms", "5"]
    command = hosts.command(-1, [sys.executable, *words])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=hosts.environment) as process:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("ready"):
            raise SystemExit("the simulated engine did not start")
        yield f"http://{address}:{PORT}"
        process.send_signal(signal.SIGINT)


def measured(hosts: RayHosts, url: str, *options: str) -> dict[str, float]:
    """The parts of one run, in seconds, and their sum `first_request`."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        folder = Path(parent) / "run"
        words = ["--url", url, "--rate", "100", "-n", "60", "--isl", "16", "--osl", "4", "--warmup", "3"]
        command = ["-m", "fastllmload", *words, "--ui", "plain", "--no-telemetry", "-o", str(folder), *options]
        begun = time.monotonic_ns()
        process = hosts.python(0, *command)
        assert process.stdout is not None and process.stderr is not None
        ends: dict[str, int] = {}
        for line in process.stdout:
            for part, first in PARTS.items():
                if line.startswith(first):
                    ends.setdefault(part, time.monotonic_ns())
        errors = process.stderr.read()
        if process.wait() != 0:
            raise SystemExit(f"fastllmload ended with {process.returncode}: {errors}")
        sent = load(folder).rows["t_dispatch"]
        ends["start"] = int(sent[sent > 0].min())
    instants = [begun, *ends.values()]
    found = {part: (end - before) / 1e9 for part, end, before in zip(ends, instants[1:], instants, strict=False)}
    return {**found, "first_request": (ends["start"] - begun) / 1e9}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {part: round(statistics.median(run[part] for run in runs), 2) for part in runs[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with WarmHosts() as hosts, engine(hosts) as url:
        measured(hosts, url, "--ray", hosts.address)
        pairs = []
        for _ in range(asked.rounds):
            pairs.append((measured(hosts, url, "--ray", hosts.address), measured(hosts, url)))
            print(json.dumps({"three_hosts": pairs[-1][0], "alone": pairs[-1][1]}), flush=True)
    three, alone = medians([pair[0] for pair in pairs]), medians([pair[1] for pair in pairs])
    reached = round(statistics.median(pair[0]["first_request"] - pair[0]["preflight"] for pair in pairs), 2)
    ratio = round(statistics.median(pair[0]["first_request"] / pair[1]["first_request"] for pair in pairs), 2)
    figures = {
        "rounds": asked.rounds, "three_hosts": three, "alone": alone, "hosts": ratio, "without_preflight": reached,
        "target": TARGET_S, "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(json.dumps({"bench": "first_request", **figures, "met": reached <= TARGET_S}))
    return 0 if reached <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
