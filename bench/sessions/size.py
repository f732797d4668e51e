"""A trace of 100,000 calls with 95 blocks each: time until the first request, and memory. Targets: 20 s, 2 GB.

PYTHONPATH=src python bench/sessions/size.py [--calls 100000]
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

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from pair import arguments, finish, server  # noqa: E402

from fastllmload.records.run import load  # noqa: E402

MOST_S, MOST_MB = 20.0, 2_000.0


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
    asked = arguments(__doc__, calls=100_000)
    figures, met = large(asked.calls)
    finish("sessions/size", figures, met)


if __name__ == "__main__":
    main()
