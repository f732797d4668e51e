"""CPU of all that a run has (supervisor, worker, hiccup meter, row writer) at 100, 500 and 2,000 requests/s of 4 tokens.

Next to it is limitclient, which has nothing else to do, and with --vllm-rs vLLM's own client (`vllm-rs`, in vLLM's wheel)
at the same load in the same run. CPU is what the kernel counts of every thread (/proc/PID/task/TID/schedstat) between two
readings, one second after the first request and half a second before the last one; `gaps` is the distance of the arrivals
that the server saw from those of a Poisson process (Kolmogorov-Smirnov), `lag` our lateness.

Target: no more than vLLM's client at any rate; without --vllm-rs no more than it took where it was measured (`PEER_CORES`).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pair import CLIENT_CPU, HERE, LIMIT_CLIENT, TIMEOUT_S, arguments, finish, meanwhile, server

from fastllmload.simulator.truth import load as load_truth

PEER_CORES = {500.0: 0.075, 2_000.0: 0.17}  # of vLLM's client, by rate
LOOK_S = 0.1
AFTER_FIRST_NS, BEFORE_LAST_NS = 1_000_000_000, 500_000_000
ROLES = {
    "engine.worker": "worker",
    "recording.row_writer": "rows",
    "recording.tap_reader": "tap",
    "fastllmload.telemetry": "telemetry",
    "hosts.agent": "agent",
    "link.sender": "sender",
    "link.receiver": "receiver",
    "hosts.clock": "clocks",
}


@dataclass
class Looks:
    """CPU of every thread of a process and of its descendants, at each reading, until the process ends."""

    process: int
    roles: dict[int, str] = field(default_factory=dict)
    seen: list[tuple[int, dict[tuple[str, int], int]]] = field(default_factory=list)

    def follow(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_S):
            self.seen.append((time.monotonic_ns(), dict(self._cpu_times(self.process))))

    def _cpu_times(self, process: int) -> list[tuple[tuple[str, int], int]]:
        found: list[tuple[tuple[str, int], int]] = []
        with contextlib.suppress(OSError):  # it has ended
            for task in os.listdir(f"/proc/{process}/task"):
                at = Path(f"/proc/{process}/task/{task}")
                name = self._role(process)
                if name == "supervisor" and int(task) != process:
                    name = at.joinpath("comm").read_text().strip()
                found.append(((name, int(task)), int(at.joinpath("schedstat").read_text().split()[0])))
                for child in at.joinpath("children").read_text().split():
                    found += self._cpu_times(int(child))
        return found

    def _role(self, process: int) -> str:
        if process == self.process:
            return "supervisor"
        if process not in self.roles:
            words = Path(f"/proc/{process}/cmdline").read_text()
            role = next((role for word, role in ROLES.items() if word in words), None)
            if role is None:
                return "other"  # it may have been forked only just now
            self.roles[process] = role
        return self.roles[process]

    def cores(self, begin_ns: int, end_ns: int) -> dict[str, float]:
        """Share of a core that each role took between the readings nearest inside of the two instants."""
        inside = [(at, used) for at, used in self.seen if begin_ns <= at <= end_ns]
        (first, before), (last, after) = inside[0], inside[-1]
        found: dict[str, float] = {}
        for (name, task), used in after.items():
            found[name] = found.get(name, 0.0) + (used - before.get((name, task), used)) / (last - first)
        return found


@dataclass(frozen=True)
class Load:
    rate: float
    seconds: float
    tokens: int

    @property
    def requests(self) -> int:
        return round(self.rate * self.seconds)


def gaps(arrivals_ns: np.ndarray[Any, Any]) -> float:
    """Distance of the gaps' distribution from the exponential one of their mean."""
    waits = np.sort(np.diff(np.sort(arrivals_ns)))
    expected = 1.0 - np.exp(-waits / waits.mean())
    steps = np.arange(len(waits) + 1) / len(waits)
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


def measured(client: str, command: Sequence[str], load: Load, folder: Path) -> dict[str, Any]:
    """Run a client against an engine of its own; *command* may have {port}."""
    truth = folder / f"{client}.truth"
    with server(itl_ms=1.0, ttft_ms=1.0, truth=str(truth)) as engine:
        words = [word.format(port=engine.port) for word in command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        looks = Looks(process.pid)
        with meanwhile(looks.follow):
            printed, wrong = process.communicate(timeout=TIMEOUT_S)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{client} ended with {process.returncode}: {wrong[-1000:]}")
    requests = load_truth(truth).requests
    arrivals = np.sort(requests["t_recv_first"])[-load.requests :]  # what comes before them is the preflight
    parts = looks.cores(int(arrivals[0]) + AFTER_FIRST_NS, int(arrivals[-1]) - BEFORE_LAST_NS)
    return {
        "cores": sum(parts.values()),
        "parts": parts,
        "rate": len(arrivals) / float(arrivals[-1] - arrivals[0]) * 1e9,
        "gaps": gaps(arrivals),
        "printed": printed,
    }


def ours(load: Load, folder: Path, ui: str) -> dict[str, Any]:
    run = folder / "run"
    command = (
        sys.executable, "-m", "fastllmload.cli.main", "--url", "http://127.0.0.1:{port}", "--workers", "1", "--ui", ui,
        "--pin", str(CLIENT_CPU), "--warmup", "0", "--isl", "16", "--osl", str(load.tokens), "-r", str(load.rate),
        "-d", f"{load.seconds}s", "--continuous-usage", "off", "-o", str(run),
    )  # fmt: skip
    found = measured("fastllmload", command, load, folder)
    document = json.loads((run / "run.json").read_text())
    subprocess.run(["rm", "-r", str(run)], check=True)
    certificate = document["certificate"]
    lag = certificate["schedule_lag_us"]
    return found | {
        "lag_p50_us": lag["p50"],
        "lag_p99_us": lag["p99"],
        "spin": certificate["workers"][0]["spin_share"],
        "hiccup_p99_us": certificate["host"]["hiccup_p99_us"],
        "failed": document["failed"],
    }


def bare(load: Load, folder: Path) -> dict[str, Any]:
    subprocess.run(["make", "-s", "-C", str(HERE / "limit")], check=True)
    words = {"rate": load.rate, "seconds": load.seconds, "tokens": load.tokens, "streams": 64}
    options = [str(word) for name, value in words.items() for word in (f"--{name}", value)]
    command = ("taskset", "-c", str(CLIENT_CPU), str(LIMIT_CLIENT), "open", "--port", "{port}", *options)
    return measured("limitclient", command, load, folder)


def tokenizer(folder: Path) -> Path:
    """One that vLLM's client can make its prompts with; what they say does not matter here."""
    words = {"[UNK]": 0, **{f"w{number}": number for number in range(1, 1_000)}}
    document = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "decoder": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    folder.joinpath("tokenizer.json").write_text(json.dumps(document))
    folder.joinpath("tokenizer_config.json").write_text("{}")
    return folder


def peer(load: Load, folder: Path, program: str) -> dict[str, Any]:
    command = (
        "taskset", "-c", str(CLIENT_CPU), program, "bench", "serve", "--backend", "openai-chat", "--base-url",
        "http://127.0.0.1:{port}", "--model", "simulated", "--tokenizer", str(tokenizer(folder / "tokenizer")),
        "--dataset-name", "random", "--random-input-len", "16", "--random-output-len", str(load.tokens),
        "--num-prompts", str(load.requests),
        "--request-rate", str(load.rate), "--ignore-eos", "--disable-tqdm",
    )  # fmt: skip
    return measured("vllm-rs", command, load, folder)


def show(client: str, load: Load, found: Mapping[str, Any]) -> None:
    parts = "  ".join(f"{name} {share:.4f}" for name, share in sorted(found["parts"].items()) if share >= 5e-5)
    more = "  ".join(f"{name} {found[name]:.4g}" for name in found if name.startswith(("lag", "spin", "hiccup")))
    print(
        f"{client:12} {load.rate:6.0f}/s  {found['cores']:.4f} cores ({parts})  gaps {found['gaps']:.3f}  {more}",
        flush=True,
    )


def median(runs: Sequence[Mapping[str, Any]], figure: str) -> float:
    return float(statistics.median(run[figure] for run in runs))


def at_rate(load: Load, asked: Any, folder: Path) -> dict[str, Any]:
    """Figures of one rate: clients take turns, and the ratio is the median over neighbours."""
    clients = {"fastllmload": lambda: ours(load, folder, asked.ui), "limitclient": lambda: bare(load, folder)}
    if asked.vllm_rs:
        clients["vllm-rs"] = lambda: peer(load, folder, asked.vllm_rs)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in clients}
    for number in range(asked.rounds):
        for name in list(clients) if number % 2 == 0 else list(clients)[::-1]:
            runs[name].append(clients[name]())
            show(name, load, runs[name][-1])
    mine = runs["fastllmload"]
    parts = {name: statistics.median(run["parts"].get(name, 0.0) for run in mine) for name in mine[0]["parts"]}
    found: dict[str, Any] = {
        "cores": median(mine, "cores"),
        "parts": {name: round(share, 4) for name, share in parts.items()},
        **{name: median(mine, name) for name in ("lag_p50_us", "lag_p99_us", "spin", "hiccup_p99_us", "gaps")},
        "failed": sum(run["failed"] for run in mine),
    }
    for name in list(runs)[1:]:
        ratios = [run["cores"] / other["cores"] for run, other in zip(mine, runs[name], strict=True)]
        found[name] = {
            "cores": round(median(runs[name], "cores"), 4), "ratio": round(statistics.median(ratios), 3),
            "gaps": round(median(runs[name], "gaps"), 4),
        }  # fmt: skip
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def met(rate: float, found: Mapping[str, Any]) -> bool:
    if found["failed"]:
        return False
    if "vllm-rs" in found:
        return bool(found["vllm-rs"]["ratio"] <= 1)
    return bool(found["cores"] <= PEER_CORES.get(rate, PEER_CORES[500.0]))


def main() -> None:
    asked = arguments(__doc__, rates="100,500,2000", seconds=8.0, tokens=4, rounds=3, ui="none", vllm_rs="")
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as folder:
        found = {
            rate: at_rate(Load(rate, asked.seconds, asked.tokens), asked, Path(folder))
            for rate in map(float, asked.rates.split(","))
        }
    judged = all(met(rate, figures) for rate, figures in found.items())
    finish("total_cpu", {**vars(asked), **{f"{rate:g}/s": figures for rate, figures in found.items()}}, judged)


if __name__ == "__main__":
    main()
