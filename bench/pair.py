"""One server, two clients in turn: what the benchmarks of this folder share.

The server runs on the first CPU this process may use, every client on the second. CPU is user + system time of the load
alone: of limitclient and the aiohttp client by getrusage around it, of ours the worker's CPU clock between the start of
the measured phase and its last response (from the run's samples.npy). Start-up and report are outside for all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.documents.fields import known
from fastllmload.records.run import Run, load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

HERE = Path(__file__).parent
LIMIT_CLIENT = HERE / "limit" / "bin" / "limitclient"
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU, CLIENT_CPU = CPUS[0], CPUS[min(1, len(CPUS) - 1)]
TIMEOUT_S = 1_000


@dataclass
class Cost:
    """What one client did and took. *tokens* are those asked for, so that every client is divided by the same
    number.
    """

    client: str
    tokens: int
    requests: int
    cpu_s: float
    wall_s: float
    failures: int
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def us_per_token(self) -> float:
        return self.cpu_s / self.tokens * 1e6

    @property
    def requests_per_cpu_s(self) -> float:
        return self.requests / self.cpu_s


def server(**options: Any) -> SimulatorProcess:
    """The bundled engine on its CPU. Open files are raised here, its child inherits them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return SimulatorProcess(SimulatorOptions(cpu=SERVER_CPU, **options))


@contextlib.contextmanager
def meanwhile(follow: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run *follow* in a thread; its event is set, and the thread joined, at the end of the block."""
    ended = threading.Event()
    thread = threading.Thread(target=follow, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def limit(mode: str, port: int, **options: Any) -> Cost:
    """Run limitclient; *options* are its own (streams=2000, tokens=200 ...)."""
    subprocess.run(["make", "-s", "-C", str(LIMIT_CLIENT.parent.parent)], check=True)
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    return pinned_json(
        "limitclient", [str(LIMIT_CLIENT), mode, "--port", str(port), *words], int(options.get("tokens", 1))
    )


def aiohttp(port: int, streams: int, tokens: int) -> Cost:
    """Run the plain aiohttp client."""
    script = HERE / "peers" / "aiohttp_client.py"
    words = ["--port", str(port), "--streams", str(streams), "--tokens", str(tokens)]
    return pinned_json("aiohttp", [sys.executable, str(script), *words], tokens)


def pinned_json(client: str, command: list[str], tokens: int) -> Cost:
    """A client that prints one line of JSON with its figures."""
    done = subprocess.run(
        ["taskset", "-c", str(CLIENT_CPU), *command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if not done.stdout.startswith("{"):
        raise SystemExit(f"{client} ended with {done.returncode}: {done.stderr}")
    said = json.loads(done.stdout)
    return Cost(
        client, said["requests"] * tokens, said["requests"], said["cpu_user_s"] + said["cpu_system_s"], said["wall_s"],
        said["failures"], said,
    )  # fmt: skip


def ours(
    url: str,
    *options: str,
    usage: str = "off",
    isl: int | None = 16,
    keep: Callable[[Run], dict[str, Any]] | None = None,
) -> Cost:
    """One run of one worker pinned to the client's CPU, which gets the events that the other clients get: without *usage* in
    each. *keep* takes figures from the run before its folder goes.
    """
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        folder = Path(parent) / "run"
        command = [
            sys.executable, "-m", "fastllmload.cli.main", "--url", url, "--workers", "1", "--pin", str(CLIENT_CPU),
            "--ui", "none", "--warmup", "0", "--continuous-usage", usage, "-o", str(folder), *options,
        ]  # fmt: skip
        command += [] if isl is None else ["--isl", str(isl)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"fastllmload ended with {done.returncode}: {done.stderr[-1000:]}")
        run = load(folder)
        return cost_of(run, {} if keep is None else keep(run))


def cost_of(run: Run, more: dict[str, Any]) -> Cost:
    """CPU, wall and work of the measured phase of a run."""
    document, phase = run.document, run.phase("measure")
    assert phase is not None and run.samples is not None
    mine = run.samples[run.samples["worker"] == 0]
    after = mine[mine["t_ns"] >= phase.start_ns]
    before = mine[mine["t_ns"] < phase.start_ns]
    begin = before[-1] if len(before) else after[0]
    rows = run.rows[run.rows["t_dispatch"] > 0]
    certificate = document.certificate
    assert certificate is not None
    return Cost(
        "fastllmload",
        int(rows["output_target"].sum()),
        len(rows),
        float(after["cpu_ns"][-1] - begin["cpu_ns"]) / 1e9,
        float(rows["t_end"].max() - rows["t_dispatch"].min()) / 1e9,
        int(known(document.failed) or 0),
        {
            "verdict": certificate.verdict,
            "reasons": [f"{reason.severity}: {reason.text}" for reason in certificate.reasons],
            "gc_runs": int(after["gc_runs"].max()),
            "rss_mib": float(mine["rss_bytes"].max()) / 2**20,
            "stamps": certificate.timestamp_source,
            "coalesced": certificate.coalesced_read_share,
            "hiccup_p99_us": certificate.host.hiccup_p99_us,
            **more,
        },
    )


def alternate(rounds: int, first: Callable[[], Cost], second: Callable[[], Cost]) -> tuple[list[Cost], list[Cost]]:
    """A B, B A, A B ...: drift of the machine falls on both."""
    a: list[Cost] = []
    b: list[Cost] = []
    for number in range(rounds):
        for which in ("ab", "ba")[number % 2]:
            cost = first() if which == "a" else second()
            (a if which == "a" else b).append(cost)
            show(cost)
    return a, b


def show(cost: Cost) -> None:
    print(
        f"{cost.client:12} {cost.us_per_token:8.3f} us/token  {cost.requests_per_cpu_s:10.0f} requests/CPU-s  "
        f"CPU {cost.cpu_s:6.2f} s of {cost.wall_s:6.2f} s ({cost.cpu_s / cost.wall_s:4.0%})  failures {cost.failures}",
        flush=True,
    )
    for reason in cost.more.get("reasons", ()):
        print(f"{'':12} {reason}")


def median(costs: list[Cost], figure: str) -> float:
    return float(statistics.median(getattr(cost, figure) for cost in costs))


def paired_ratio(a: list[Cost], b: list[Cost], figure: str) -> float:
    """Median of the ratios of the runs that stood next to each other."""
    return float(statistics.median(getattr(x, figure) / getattr(y, figure) for x, y in zip(a, b, strict=True)))


def finish(name: str, figures: dict[str, Any], met: bool) -> None:
    """One JSON line for machines, exit code 0 when the target is met."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps({"bench": name, **rounded, "met": met}))
    sys.exit(0 if met else 1)


def arguments(text: str | None, **defaults: Any) -> argparse.Namespace:
    """Options with defaults of the same type; a truth value is a flag."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, value in defaults.items():
        flag = "--" + name.replace("_", "-")
        kind: dict[str, Any] = {"action": "store_true"} if isinstance(value, bool) else {"type": type(value)}
        parser.add_argument(flag, default=value, help=" ", **kind)
    return parser.parse_args()


def percentile_us(values_ns: np.ndarray[Any, Any], q: float) -> float:
    return float(np.percentile(values_ns, q)) / 1e3
