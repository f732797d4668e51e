"""CPU and memory that a host and the driver take at the end of a run with `--collect summary`.

Three runs with one agent on this machine: some requests, as many with thirty times the tokens, and thirty times as many
requests. What a million events and a million requests cost in addition follows from the three; what every end costs, such
as imports, is in neither. With few requests or tokens the differences are lost in the noise. CPU is what the kernel counts
of every thread of the process that summarises a host's events, and of the driver from the last event on, with its reports.
Memory is the most that the process that summarises had of its own, as pages of files can be given back at any time; it
works on a million events at once, so that smaller runs have less.

There is no target: the page on sizes (docs/many-hosts-sizes.md) calculates with these figures.

    PYTHONPATH=src python bench/hosts/summary_end.py [--streams 1000] [--tokens 40] [--times 30]
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from pair import TIMEOUT_S, arguments, finish, meanwhile, server

from fastllmload.records import layout
from fastllmload.records.run import load

SUMMARIZER = "kept.summarizer"
READING_S = 0.02
MILLION = 1e6


@dataclass
class Ends:
    """CPU of the driver at each reading, and CPU and memory of the process that summarises, until its end."""

    driver: int
    cpu: list[tuple[int, float]] = field(default_factory=list)
    summary_s: float = 0.0
    summary_mib: float = 0.0

    def follow(self, ended: threading.Event) -> None:
        while not ended.wait(READING_S):
            with contextlib.suppress(OSError):  # it has ended
                self.cpu.append((time.monotonic_ns(), cpu_s(self.driver)))
            for process in descendants(self.driver):
                with contextlib.suppress(OSError):
                    if SUMMARIZER in Path(f"/proc/{process}/cmdline").read_text():
                        self.summary_s = cpu_s(process)
                        self.summary_mib = max(self.summary_mib, anonymous_mib(process))

    def driver_s(self, since_ns: int) -> float:
        return self.cpu[-1][1] - next(used for at, used in self.cpu if at >= since_ns)


def cpu_s(process: int) -> float:
    """Of all threads that it has."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def anonymous_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def descendants(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def drive(url: str, folder: str, streams: str, requests: str, tokens: str) -> int:
    """A run in this process, from one agent of this machine."""
    from fastllmload.engine.hosts.placement.local import LocalPlacement
    from fastllmload.engine.run import execute
    from fastllmload.report.terminal.view import make_ui
    from fastllmload.settings import Client, Hosts, Load, Output, RunSettings, Target, Workload

    settings = RunSettings(
        target=Target(urls=(url,)),
        load=Load(concurrency=int(streams), num_requests=int(requests), warmup_requests=0),
        workload=Workload(isl="16", osl=tokens, continuous_usage="off"),
        client=Client(workers=1, timestamps="kernel"),
        output=Output(directory=folder, ui="none"),
        hosts=Hosts(collect="summary"),
    )
    return execute(settings, None, make_ui("none", sys.stdout), placement=LocalPlacement(1))


def measured(url: str, streams: int, requests: int, tokens: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        folder = Path(parent) / "run"
        words = [url, str(folder), str(streams), str(requests), str(tokens)]
        process = subprocess.Popen(
            [sys.executable, __file__, "drive", *words], stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": parent}
        )
        ends = Ends(process.pid)
        with meanwhile(ends.follow):
            code = process.wait(TIMEOUT_S)
        if code not in (0, 1):
            raise SystemExit(f"fastllmload ended with {code}")
        run = load(folder)
        events = int(run.rows["events"].sum())
        found = {
            "events": events, "requests": len(run.rows), "failed": int(np.count_nonzero(run.rows["status"] != layout.OK)),
            "host_s": round(ends.summary_s, 3), "host_mib": round(ends.summary_mib, 1),
            "driver_s": round(ends.driver_s(int(run.rows["t_last"].max())), 3),
        }  # fmt: skip
    print(found, flush=True)
    return found


def main() -> None:
    asked = arguments(__doc__, streams=1_000, tokens=40, itl_ms=25.0, times=30)
    streams, tokens, times = asked.streams, asked.tokens, asked.times
    with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread") as engine:
        runs = [
            measured(engine.url, streams, requests, each)
            for requests, each in ((streams, tokens), (streams, times * tokens), (times * streams, tokens))
        ]
    sizes = np.array([[1.0, run["events"] / MILLION, run["requests"] / MILLION] for run in runs])
    figures: dict[str, float] = {}
    for name in ("host_s", "driver_s"):
        _, event, request = np.linalg.solve(sizes, [run[name] for run in runs])
        figures |= {f"{name}_per_million_events": event, f"{name}_per_million_requests": request}
    figures["host_mib"] = max(run["host_mib"] for run in runs)
    failed = sum(run["failed"] for run in runs)
    finish(
        "summary_end", {**vars(asked), **{k: round(v, 2) for k, v in figures.items()}, "failed": failed}, failed == 0
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        sys.exit(drive(*sys.argv[2:]))
    main()
