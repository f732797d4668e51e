"""10,000 sessions of agents with joins, by the server's own log: order, delays and cache hits.

    PYTHONPATH=src python bench/sessions/order.py [--sessions 10000] [--rate 200]

Targets: no call before what it waits for; from the last byte of a reply (the server's send) to the next call (its kernel's
receipt), less the delay of the trace, 50 us at the median and 300 us at P99; the server's hit rate within 0.1 % of the
stated ideal.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests")]

from pair import CLIENT_CPU, arguments, finish, server  # noqa: E402
from support.agentic_traces import BLOCK, write_trace  # noqa: E402

from fastllmload.records.run import load  # noqa: E402
from fastllmload.simulator.truth import load as load_truth  # noqa: E402
from fastllmload.workload.traces.formats import read_call_graph  # noqa: E402

P50_US, P99_US, HITS = 50.0, 300.0, 0.001
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


def main() -> None:
    asked = arguments(__doc__, sessions=10_000, rate=200.0)
    figures, met = order_and_hits(asked.sessions, asked.rate)
    finish("sessions/order", figures, met)


if __name__ == "__main__":
    main()
