"""An independent, plain-Python recomputation from the JSONL export gives the numbers of run.json."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from truth_bench import measure

from fastllmload.records.export import export_jsonl


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def moments(values: list[float]) -> dict[str, float]:
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    named = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    return {"n": len(values), "mean": mean, "std": spread, "min": min(values), "max": max(values),
            **{name: quantile(values, q) for name, q in named.items()}}  # fmt: skip


def test_the_same_numbers_from_the_export(tmp_path: Path) -> None:
    measured = measure(
        tmp_path / "run",
        ["--rate", "80", "--duration", "4", "--isl", "uniform:16,64", "--osl", "uniform:2,40", "--warmup", "5"],
        ttft_ms=20.0, itl_ms=6.0, phase="spread", faults=("close:0.08", "status:0.08"), seed=11,
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    stream = io.BytesIO()
    export_jsonl(measured.run, stream)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    window = measured.document["window"]
    phase = next(entry for entry in measured.document["phases"] if entry["name"] == "measure")
    measure_lines = [
        line for line in lines if line["t_sched_ns"] is not None and line["t_sched_ns"] >= phase["start_ns"]
    ]
    ok = [
        line for line in measure_lines
        if line["status"] == "ok" and window["w0_ns"] <= line["t_submit_ns"] < window["w1_ns"]
    ]  # fmt: skip
    assert 100 < len(ok) < len(measure_lines)
    ms = 1e6
    samples: dict[str, list[float]] = {
        "ttft": [(line["t_first_ns"] - line["t_submit_ns"]) / ms for line in ok],
        "ttft_sched": [(line["t_first_ns"] - line["t_sched_ns"]) / ms for line in ok],
        "e2e": [(line["t_last_ns"] - line["t_submit_ns"]) / ms for line in ok],
        "tpot": [
            (line["t_last_ns"] - line["t_first_ns"]) / (line["output_tokens"] - 1) / ms
            for line in ok
            if line["output_tokens"] > 1
        ],
        "itl": [(b - a) / ms for line in ok for a, b in zip(line["token_ns"], line["token_ns"][1:], strict=False)],
    }  # fmt: skip
    for name, values in samples.items():
        stated = measured.document["metrics"][name]
        for field, value in moments(values).items():
            assert stated[field] == pytest.approx(value, rel=1e-9), (name, field)
    assert rates(measure_lines, window) == pytest.approx(
        {name: measured.document["metrics"][name]["value"] for name in ("req_s", "output_tok_s")}, rel=1e-9
    )
    statuses: dict[str, int] = {}
    for line in measure_lines:
        statuses[line["status"]] = statuses.get(line["status"], 0) + 1
    counts = measured.document["counts"]
    assert {name: counts[name] for name in statuses} == statuses and len(measure_lines) == counts["planned"]
    assert statuses["truncated"] > 0 and statuses["http_error"] > 0


def rates(lines: list[dict[str, Any]], window: dict[str, Any]) -> dict[str, float]:
    """Window form of metrics.md 6.2: by the time of the token, whatever the submission time."""
    inside = range(window["w0_ns"], window["w1_ns"])
    done = [line for line in lines if line["status"] == "ok"]
    tokens = sum(
        line["output_tokens"] * sum(t in inside for t in line["token_ns"]) / len(line["token_ns"]) for line in done
    )
    return {
        "req_s": sum(line["t_last_ns"] in inside for line in done) / window["seconds"],
        "output_tok_s": tokens / window["seconds"],
    }
