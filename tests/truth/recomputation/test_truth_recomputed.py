"""Plain Python over the JSONL export gives every number of run.json, whatever the replies and the load were like."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import command
from truth.recomputation.recomputed import Recomputed
from truth.recomputation.recomputed_blocks import Blocks, blocks_of, listed, stated_causes
from truth.recomputation.recomputed_numbers import compared

from fastllmload.export.rows import export_jsonl
from fastllmload.records.run import load

ELSEWHERE = {  # need the text, the plan, a declaration, a sensor, the kind of each event
    "usage_less_tokenizer", "cache_hit_rate", "cached_prompt_share", "cold_start_latency", "power_w", "tok_s_per_w",
    "reasoning_tok_s", "empty_chunks", "ttfa", "session_makespan", "session_stretch", "session_first_action",
    "session_model_time", "session_tool_time", "sessions_s", "session_goodput",
}  # fmt: skip

RUNS = {
    "open": ["--rate", "50", "--duration", "3", "--osl", "uniform:3,20", "--goodput", "ttft:30", "itl:12", "e2el:200"],
    "closed": [
        "--concurrency", "8", "--num-requests", "150", "--osl", "uniform:1,20", "--goodput", "reading:200", "fluidity:0.9",
        "idle:100", "tbc:14", "--prefill-deadline", "16:20,64:40", "--decode-deadline", "8", "--reading-speed", "150",
        "--gpus", "3", "--price-per-hour", "7.5",
    ],
    "by text": [
        "--rate", "50", "--duration", "3", "--osl", "uniform:3,20", "--counting", "B", "--record-text", "on",
        "--itl-option", "B", "--workers", "2",
    ],
    "whole": ["--rate", "50", "--duration", "2", "--no-stream", "--goodput", "tpot:10", "ttft:60"],
    "classes": [
        "--num-requests", "120", "--class", "a rate=40 isl=16 osl=uniform:2,20 goodput=ttft:20",
        "--class", "b rate=15 isl=64 osl=12 goodput=itl:9",
    ],
    "users": [
        "--rate", "50", "--duration", "3", "--osl", "uniform:3,20", "--cancel-share", "0.2", "--cancel-after", "5tok",
        "--abandon", "ttft:20ms", "--slow-readers", "0.1:30tok/s", "--goodput", "ttft_sched:60",
    ],
    "cut off": ["--rate", "50", "--duration", "2", "--osl", "uniform:3,40", "--timeout", "120ms", "--grace", "50ms",
        "--preflight-timeout", "20s",  # a host that steals 100 ms must not stop the sending
    ],
    "talks": ["--rate", "15", "--num-requests", "30", "--turns", "2-4", "--think-time", "20ms", "--osl", "uniform:2,12"],
}  # fmt: skip


@pytest.fixture
def odd() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("odd_server.py")], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    server.terminate()
    server.communicate(timeout=10)


@pytest.mark.parametrize("name", RUNS)
def test_the_same_numbers_from_the_export(tmp_path: Path, odd: str, name: str) -> None:
    folder = tmp_path / "run"
    done = command("--url", odd, "--ui", "none", "--warmup", "3", "-o", folder, "--isl", "16", *RUNS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((folder / "run.json").read_text())
    again = Recomputed(exported(folder), document)
    metrics = again.metrics()
    assert set(document["metrics"]) - set(metrics) <= ELSEWHERE
    differing = compared(document["metrics"], metrics, "metrics")
    differing += compared(document["counts"], again.counted(), "counts")
    differing += compared(document, again.flat(), "flat")
    differing += compared(
        document["window"], {"w0_ns": again.w0, "w1_ns": again.w1, "seconds": again.seconds}, "window"
    )
    if document["slo"] is not None:
        differing += compared(document["slo"], again.objectives(), "slo")
    if document["classes"] is not None:
        differing += compared(document["classes"], again.classes(), "classes")
        differing += compared(document["fairness"], again.fairness(), "fairness")
    differing += compared(listed(document), listed(blocks_of(exported(folder), document)), "blocks")
    assert differing == []
    assert stated_causes(document) == Blocks(exported(folder), document).causes()
    assert document["counts"]["ok"] > 10 and document["counts"]["failed"] > 0


def test_what_differs_is_found() -> None:
    """The comparison itself: another value, a null, a missing key."""
    assert compared({"a": {"b": 1.0}}, {"a": {"b": 1.0 + 2e-9}}) != []
    assert compared({"a": None}, {"a": 0.0}) != [] and compared({}, {"a": 0.0}) != []
    assert compared({"a": 1.0, "c": 2}, {"a": 1.0 + 1e-10}) == []


def exported(folder: Path) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    export_jsonl(load(folder), stream)
    return [json.loads(line) for line in stream.getvalue().splitlines()]
