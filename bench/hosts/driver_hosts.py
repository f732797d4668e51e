"""CPU time and memory of the driver of a run from many hosts, per host; a few processes of this machine replay the agents.

Each replayed host has workers under load: with every beat CHANGED counters of each change, and once a second its
histograms by the values of RECORDED. The driver runs a phase as in a run: samples of all workers four times a second,
the live view once a second. Its other process answers the clocks of the hosts, which compare them as agents do. CPU of both
together is what has a target; `clock_bound_us` is the median bound of all hosts' clocks.

    python bench/hosts/driver_hosts.py [--hosts 100] [--workers 16] [--seconds 20]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np

from fastllmload import __version__
from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.engine.hosts.clock.driver_clock import DriverClock
from fastllmload.engine.hosts.fleet import HostFleet
from fastllmload.engine.hosts.group import HostGroup
from fastllmload.engine.hosts.link.beats import Growing, Reflected
from fastllmload.engine.hosts.link.connection import LinkError, connect
from fastllmload.engine.hosts.link.messages import (
    AgentConfig,
    AgentFacts,
    Beat,
    Control,
    Finish,
    Finished,
    Message,
    Seen,
    StartWorkers,
    Stop,
    WorkerEnd,
    WorkersStarted,
)  # fmt: skip
from fastllmload.engine.interrupts import Interrupts
from fastllmload.engine.phases import PhaseRun
from fastllmload.engine.recording.live import Live
from fastllmload.engine.recording.totals import HISTOGRAMS
from fastllmload.engine.workers.spec import PhaseSpec, WorkerSpec
from fastllmload.records.host_clock import fit
from fastllmload.records.samples import PROCESS, SampleLog

BEAT_S = 0.25
CHANGED = 40
RECORDED = {  # histogram: values a second, their median
    k.H_TTFT: (500, 200e6), k.H_TTFT_ANY: (500, 200e6), k.H_ITL: (20_000, 20e6), k.H_E2E: (500, 5e9), k.H_LAG: (500, 2e4),
}  # fmt: skip
PROCESSES = 4
CPU_MS, MEMORY_MB = 1.0, 10.0  # targets, per host (and second)


class Replayed:
    """An agent without workers: it reports what those of a host under load would."""

    def __init__(self, config: AgentConfig, rng: np.random.Generator) -> None:
        self.link = connect(config.address, config.tcp_port, bytes.fromhex(config.key), config.host, "agent")
        self.link.send(
            AgentFacts(
                name="replayed", version=__version__, pid=0, folder="", cores=64, ports=1, files=None, cpu="", kernel="",
                python="", memory_bytes=0,
            )
        )  # fmt: skip
        self.clock = DriverClock(config)
        self.rng = rng
        self.start: StartWorkers | None = None
        self.until = 0.0
        self.number = self.seen = 0
        self.over = False

    def handle(self, message: Message, seconds: float) -> None:
        if isinstance(message, StartWorkers):
            self.start = message
            self.counters = np.zeros((message.count, k.WORDS), np.int64)
            self.histograms = np.zeros((len(HISTOGRAMS), histogram.WORDS), np.int64)
            self.words, self.buckets = Reflected(self.counters.size), Growing(len(HISTOGRAMS))
            self.counters[:, k.W_STATE] = k.READY
            self.clock.wait()
            self.link.send(WorkersStarted(tuple(range(message.count)), (None,) * message.count))
        elif isinstance(message, Control) and message.start_ns and not self.until:
            self.until = time.monotonic() + seconds
            self.counters[:, k.W_STATE] = k.RUNNING
        elif isinstance(message, Seen):
            self.seen = message.number
        elif isinstance(message, Stop) and self.start is not None:
            self.counters[:, k.W_STATE] = k.FINISHED
            ends = tuple(WorkerEnd(worker=self.start.first + n, returncode=0) for n in range(self.start.count))
            self.beat(ends)
        elif isinstance(message, Finish):
            self.link.send(Finished(missing={}, write_failed=False))
            self.over = True

    def beat(self, ends: tuple[WorkerEnd, ...] = ()) -> None:
        if self.start is None or self.over or self.number - self.seen > 16:
            return
        self.number += 1
        histograms = None
        if self.until:
            self.counters[:, 16 : 16 + CHANGED] += self.rng.integers(1, 1000, (len(self.counters), CHANGED))
            if self.number % 4 == 0:
                for kind, (count, median_ns) in RECORDED.items():
                    values = self.rng.lognormal(np.log(median_ns), 0.6, count).astype(np.int64)
                    histogram.record_many(self.histograms[HISTOGRAMS.index(kind)], values)
                histograms = self.buckets.increments(self.histograms.copy())
                self.clock.shift_ns()
            if time.monotonic() > self.until:
                self.counters[:, k.W_STATE], self.counters[:, k.W_PHASE_DONE] = k.PHASE_ENDED, 1
        figures = np.full((len(self.counters), len(PROCESS)), self.number * 10_000_000, "<i8").tobytes()
        words = self.words.changes(self.counters)
        self.link.send(Beat(number=self.number, words=words, figures=figures, histograms=histograms, ended=ends))


def replay(seconds: float) -> None:
    """The agents whose configs are lines of stdin, until the driver closes their links."""
    rng = np.random.default_rng(1)
    agents = [Replayed(msgspec.json.decode(line, type=AgentConfig), rng) for line in sys.stdin.buffer]
    by_link: dict[int, Replayed] = {agent.link.fileno(): agent for agent in agents}
    due = time.monotonic()
    while by_link:
        for number in select.select(list(by_link), [], [], max(0.0, due - time.monotonic()))[0]:
            try:
                for message in by_link[number].link.receive():
                    by_link[number].handle(message, seconds)
            except LinkError:
                del by_link[number]
        if time.monotonic() < due:
            continue
        due += BEAT_S
        for agent in list(by_link.values()):
            with contextlib.suppress(LinkError):  # the driver has closed it: the next turn finds that
                agent.beat()
                agent.link.flush()
    bounds = []
    for agent in agents:
        agent.clock.close()
        exchanges = agent.clock.exchanges()
        bounds += fit(exchanges).bound_ns(exchanges[:, 0]).tolist()
    print(json.dumps(bounds))


class ReplayPlacement:
    driver_address = "127.0.0.1"

    def __init__(self, hosts: int, seconds: float) -> None:
        self._hosts, self._seconds = hosts, seconds
        self._processes: list[subprocess.Popen[bytes]] = []
        self.bounds_ns: list[int] = []

    def hosts(self) -> list[Any]:
        return [SimpleNamespace(name=f"replayed-{number}", address="127.0.0.1") for number in range(self._hosts)]

    def start(self, configs: Sequence[AgentConfig]) -> list[Any]:
        for first in range(PROCESSES):
            lines = b"".join(msgspec.json.encode(config) + b"\n" for config in configs[first::PROCESSES])
            process = subprocess.Popen(
                [sys.executable, __file__, "--replay", str(self._seconds)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(lines)
            process.stdin.close()
            self._processes.append(process)
        handle = SimpleNamespace(poll=lambda: None, kill=lambda: None)
        return [handle for _ in configs]

    def close(self) -> None:
        for process in self._processes:
            assert process.stdout is not None
            self.bounds_ns += json.loads(process.stdout.read())
            process.wait()


class SecondlyView:
    """A view that takes a snapshot each second, as the live view does."""

    def __init__(self) -> None:
        self._next = 0.0

    def due(self, t: float) -> bool:
        if t < self._next:
            return False
        self._next = t + 1.0
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **named: None


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def ran_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def measure(hosts: int, workers: int, seconds: float, folder: Path) -> dict[str, float]:
    before_mb = resident_mb()
    placement = ReplayPlacement(hosts, seconds)
    group = HostGroup(cast(Any, placement))
    phase = PhaseSpec(number=0, name="measure", phase_code=1, plan_dir="plan", mode="open")
    specs = [
        WorkerSpec(
            worker=worker, workers=hosts * workers, supervisor_pid=0, run_id="0", rows_dir="", targets=(), phases=(phase,),
            timeout_ns=1,
        )
        for worker in range(hosts * workers)
    ]  # fmt: skip
    try:
        group.gather()
        group.assign([workers] * hosts)
        fleet = HostFleet.start(group, specs, folder)
        log = SampleLog(folder / "samples.npy")
        plan: Any = SimpleNamespace(requests=1, cycles=False, duration_s=None, t_sched=None, concurrency=None)
        used: list[tuple[float, float]] = []
        with Interrupts() as interrupts:
            run = PhaseRun(
                fleet=fleet, spec=phase, plan=plan, live=Live(fleet, log, None), ui=cast(Any, SecondlyView()),
                interrupts=interrupts, asked_rate=1.0, own_grace=False, died=lambda member: None, ready=fleet.begin_watch,
                check=lambda: bool(fleet.update()),
                started=lambda at: used.append((time.process_time(), ran_s(group.responder.pid))),
            )  # fmt: skip
            run.run()
        driver_s, clocks_s = time.process_time() - used[0][0], ran_s(group.responder.pid) - used[0][1]
        memory_mb = resident_mb() - before_mb
        fleet.stop(1.0)
        fleet.finish(folder)
        log.close()
        lost = sum(host.lost is not None for host in group.hosts)
    finally:
        group.close()
    return {
        "hosts": hosts,
        "workers": workers,
        "lost": lost,
        "driver_ms_per_host_s": round(driver_s * 1e3 / hosts / seconds, 4),
        "clocks_ms_per_host_s": round(clocks_s * 1e3 / hosts / seconds, 4),
        "cpu_ms_per_host_s": round((driver_s + clocks_s) * 1e3 / hosts / seconds, 4),
        "clock_bound_us": round(float(np.median(placement.bounds_ns)) / 1e3, 1),
        "memory_mb_per_host": round(memory_mb / hosts, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--replay", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.replay is not None:
        replay(asked.replay)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(asked.hosts, asked.workers, asked.seconds, Path(folder))
    print(json.dumps(found))
    return int(found["cpu_ms_per_host_s"] > CPU_MS or found["memory_mb_per_host"] > MEMORY_MB or found["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
