"""CPU per token of the worker of a host of many, over that of the same run on one host; and of the agent next to it.

The same settings run in turn without hosts and with one agent on this machine, one worker each on the client's CPU. CPU of
the worker is its CPU clock, as in `cpu_per_event`; CPU of the other processes is what the kernel counts of their threads
from one second after the first request to half a second before the last event.

Target: at most 1.05 x. What a host spends in addition (agent, sender of files) is a figure without a target.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from pair import (
    CLIENT_CPU,
    TIMEOUT_S,
    Cost,
    alternate,
    arguments,
    cost_of,
    finish,
    meanwhile,
    median,
    paired_ratio,
    server,
)
from total_cpu import AFTER_FIRST_NS, BEFORE_LAST_NS, Looks

from fastllmload.records.run import load

TARGET = 1.05
HELPERS = ("agent", "sender")


def drive(url: str, folder: str, streams: str, tokens: str, hosts: str) -> int:
    """A run in this process: without *hosts*, or from agents of this machine."""
    from fastllmload.engine.hosts.placement.local import LocalPlacement
    from fastllmload.engine.run import execute
    from fastllmload.report.terminal.view import make_ui
    from fastllmload.settings import Client, Load, Output, RunSettings, Target, Workload

    settings = RunSettings(
        target=Target(urls=(url,)),
        load=Load(concurrency=int(streams), num_requests=int(streams), warmup_requests=0),
        workload=Workload(isl="16", osl=tokens, continuous_usage="off"),
        client=Client(workers=1, pin=(CLIENT_CPU,), timestamps="kernel"),
        output=Output(directory=folder, ui="none"),
    )
    placement = LocalPlacement(int(hosts)) if int(hosts) else None
    return execute(settings, None, make_ui("none", sys.stdout), placement=placement)


def measured(url: str, asked: Any, hosts: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        folder = Path(parent) / "run"
        words = [url, str(folder), str(asked.streams), str(asked.tokens), str(hosts)]
        process = subprocess.Popen([sys.executable, __file__, "drive", *words], stdout=subprocess.DEVNULL)
        looks = Looks(process.pid)
        with meanwhile(looks.follow):
            code = process.wait(TIMEOUT_S)
        if code not in (0, 1):
            raise SystemExit(f"fastllmload ended with {code}")
        run = load(folder)
        sent, last = run.rows["t_dispatch"], run.rows["t_last"]
        begin, end = int(sent[sent > 0].min()) + AFTER_FIRST_NS, int(last.max()) - BEFORE_LAST_NS
        seconds = (int(last.max()) - int(sent[sent > 0].min())) / 1e9
        per_token = seconds / int(run.rows["output_target"].sum()) * 1e6
        parts = looks.cores(begin, end)
        cost = cost_of(run, {f"{name}_us": share * per_token for name, share in parts.items()})
        cost.client = f"{hosts} hosts" if hosts else "one host"
        return cost


def main() -> None:
    asked = arguments(__doc__, streams=1_000, tokens=300, itl_ms=20.0, rounds=4)
    with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread") as engine:
        agent, alone = alternate(
            asked.rounds, lambda: measured(engine.url, asked, 1), lambda: measured(engine.url, asked, 0)
        )
    ratio = paired_ratio(agent, alone, "us_per_token")
    failures = sum(cost.failures for cost in (*agent, *alone))
    helpers = {f"{name}_us": float(np.median([cost.more.get(f"{name}_us", 0.0) for cost in agent])) for name in HELPERS}
    figures = {
        "host_us": median(agent, "us_per_token"), "alone_us": median(alone, "us_per_token"), **helpers, "ratio": ratio,
        "target": TARGET, "failures": failures,
    }  # fmt: skip
    finish("host_cpu", {**vars(asked), **figures}, ratio <= TARGET and failures == 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        sys.exit(drive(*sys.argv[2:]))
    main()
