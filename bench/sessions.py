"""Sessions of a trace that are graphs of calls: order, delays and cache hits by the server's own log.

    PYTHONPATH=src python bench/sessions.py [--sessions 10000] [--rate 200]

Targets: no call before what it waits for; from the last byte of a reply (the server's send) to the next call (its kernel's
receipt), less the delay of the trace, 50 us at the median and 300 us at P99; the server's hit rate within 0.1 % of the
stated ideal. --cpu: CPU per event of such sessions over that of conversations with as many turns and tokens, at most 1.05.
--calls 100000: memory and time until the first request of a trace of that many calls with 95 blocks each, 2 GB and 20 s.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from agentic_traces import BLOCK, write_trace  # noqa: E402
from pair import CLIENT_CPU, alternate, arguments, finish, median, ours, paired_ratio, server  # noqa: E402

from fastllmload.records.run import load  # noqa: E402
from fastllmload.simulator.truth import load as load_truth  # noqa: E402
from fastllmload.workload.traces.formats import read_call_graph  # noqa: E402

P50_US, P99_US, HITS, RATIO = 50.0, 300.0, 0.001, 1.05
MOST_S, MOST_MB = 20.0, 2_000.0
MS = 1_000_000


def replay(trace: Path, folder: Path, url: str, *words: str) -> None:
    command = [
        sys.executable, "-m", "fastllmload.cli.main", "--url", url, "--workers", "1", "--pin", str(CLIENT_CPU),
        "--ui", "none", "--warmup", "0", "--workload", "agentic-mooncake", "--dataset-path", str(trace),
        "--endpoint-type", "openai-completions", "--prompt-form", "ids", "-o", str(folder), *words,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"fastllmload ended with {done.returncode}: {done.stderr[-1000:]}")


def order_and_hits(sessions: int, rate: float) -> tuple[dict[str, Any], bool]:
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        folder, trace, log = Path(parent) / "run", Path(parent) / "trace.jsonl", Path(parent) / "truth.bin"
        rows = write_trace(trace, sessions, gap_ms=1e3 / rate)
        settings = (("step_ms", "1"), ("block_size", str(BLOCK)), ("kv_blocks", "1000000"))
        with server(truth=str(log), overrides=settings) as engine:
            replay(trace, folder, engine.url, "--rate", str(rate), "--num-requests", str(sessions))
        run, truth = load(folder), load_truth(log)
        place = np.array([int(name[1:]) for name in read_call_graph("agentic-mooncake", trace).call_id])
        number = next(phase["number"] for phase in run.manifest["phases"] if phase["name"] == "measure")
        theirs = truth.requests[truth.requests["phase"] == number]
        theirs = theirs[np.argsort(theirs["key"])]
        theirs = theirs[np.argsort(place[theirs["key"]])]
        calls = len(theirs)
        if calls != len(rows):
            return {"calls": len(rows), "calls_seen": calls}, False
        violations, late = 0, []
        for index, row in enumerate(rows):
            if row.waits:
                ended = max(int(theirs["t_end"][one]) for one in row.waits) + round(row.wait_ms * MS)
                violations += int(theirs["t_recv_first"][index]) < ended
                late.append((int(theirs["t_recv_first_kernel"][index]) - ended) / 1e3)
        document = run.document
        facts, found = document.plan.description.workload.sessions, document.sessions
        assert facts is not None and facts.ideal is not None and found is not None
        ideal, achieved = (
            float(facts.ideal.whole_block_share or 0),
            theirs["cached_tokens"].sum() / theirs["prompt_tokens"].sum(),
        )
        p50, p99 = (float(one) for one in np.percentile(late, [50, 99]))
        figures = {
            "sessions": sessions, "calls": calls, "edges": int(sum(len(row.waits) for row in rows)),
            "violations": violations, "late_p50_us": p50, "late_p99_us": p99, "ideal": ideal, "achieved": float(achieved),
            "client_late_us": [float(one) for one in np.percentile(
                (run.rows["t_dispatch"] - run.rows["t_sched"])[run.rows["turn"] > 0] / 1e3, [50, 99])],
        }  # fmt: skip
        good = violations == 0 and p50 <= P50_US and p99 <= P99_US and abs(float(achieved) - ideal) <= HITS
        return figures, good


def cpu(rounds: int) -> tuple[dict[str, Any], bool]:
    """500 sessions of 4 calls of 100 tokens at once: a fork and a join in each, against as many turns."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        trace = Path(parent) / "trace.jsonl"
        lines = []
        for session in range(500):
            for number, waits in enumerate(([], [0], [0], [1, 2])):
                line: dict[str, Any] = {"request_id": f"{session}.{number}", "session_id": f"{session}.{number % 3}"}
                line |= {"wait_for": [f"{session}.{one}" for one in waits]} if waits else {"timestamp": 0}
                blocks = [10 * session, *range(10 * session + 1, 10 * session + 1 + number)]
                lines.append({**line, "input_length": 16 * len(blocks), "output_length": 100, "hash_ids": blocks})
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        both = ("-c", "250", "-n", "500")
        with server(itl_ms=20.0, ttft_ms=40.0, phase="spread") as engine:
            graphs, lines_of_turns = alternate(
                rounds,
                lambda: ours(
                    engine.url, *both, "--workload", "agentic-mooncake", "--dataset-path", str(trace), isl=None
                ),
                lambda: ours(engine.url, *both, "--turns", "4", "--history", "planned", "--osl", "100"),
            )
        ratio = paired_ratio(graphs, lines_of_turns, "us_per_token")
        figures = {"graphs_us": median(graphs, "us_per_token"), "turns_us": median(lines_of_turns, "us_per_token")}
        return {**figures, "ratio": ratio}, ratio <= RATIO


def large(calls: int) -> tuple[dict[str, Any], bool]:
    """Time until the first request is sent, and peak memory of any process, of a Weka trace with *calls*."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        trace, folder = Path(parent) / "weka.jsonl", Path(parent) / "run"
        sessions = write_weka(trace, calls)
        with server(itl_ms=1.0, ttft_ms=1.0, phase="spread") as engine:
            began = time.monotonic_ns()
            words = ("--workload", "weka", "--endpoint-type", "openai-chat", "--prompt-form", "words", "--dataset-path")
            command = [
                sys.executable, "-m", "fastllmload.cli.main", "--url", engine.url, "--workers", "1", "--ui", "none",
                "--warmup", "0", "-o", str(folder), *words, str(trace), "--rate", "100", "--duration", "5",
            ]  # fmt: skip
            process = subprocess.Popen(command)
            _, status, usage = os.wait4(process.pid, 0)
        run = load(folder)
        first = int(run.rows["t_dispatch"][run.rows["t_dispatch"] > 0].min())
        seconds, peak = (first - began) / 1e9, usage.ru_maxrss / 1024
        worker = float(run.samples["rss_bytes"].max()) / 2**20 if run.samples is not None else 0.0
        figures = {
            "calls": calls,
            "sessions": sessions,
            "seconds": seconds,
            "peak_mb": max(peak, worker),
            "status": status,
        }
        return figures, seconds <= MOST_S and max(peak, worker) <= MOST_MB


def write_weka(path: Path, calls: int) -> int:
    """Sessions of 10 to 60 calls, each of which adds blocks and leaves an unfinished one; returns their number."""
    stream, written, sessions = random.Random(7), 0, 0
    with path.open("w") as file:
        while written < calls:
            ids: list[int] = []
            requests, at = [], 0.0
            for _ in range(stream.randint(10, 60)):
                ids = [*ids, *range(len(ids) + 1, len(ids) + 1 + stream.randint(1, 8))]
                took = stream.uniform(0.2, 2.0)
                prompt = 64 * len(ids) + stream.randint(0, 63)
                requests.append({
                    "t": round(at, 3), "type": "s", "model": "m", "in": prompt, "hash_ids": ids,
                    "out": stream.randint(5, 40), "input_types": ["text"], "output_types": ["text"], "stop": "tool_use",
                    "api_time": round(took, 3),
                })  # fmt: skip
                at += took + stream.choice([0.1, 0.5, 2.0])
            head = {"id": f"s{sessions}", "models": ["m"], "block_size": 64, "hash_id_scope": "local"}
            file.write(json.dumps({**head, "tool_tokens": 0, "system_tokens": 0, "requests": requests}) + "\n")
            written, sessions = written + len(requests), sessions + 1
    return sessions


def main() -> None:
    asked = arguments(__doc__, sessions=10_000, rate=200.0, cpu=False, rounds=4, calls=0)
    if asked.cpu:
        figures, met = cpu(asked.rounds)
    elif asked.calls:
        figures, met = large(asked.calls)
    else:
        figures, met = order_and_hits(asked.sessions, asked.rate)
    finish("sessions", figures, met)


if __name__ == "__main__":
    main()
