"""run.json has, at its top level, every key that dashboards of vLLM's benchmark read, with our metrics' numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.metrics.public import measure
from fastllmload.records.run import load

TOTALS = """duration completed failed total_input_tokens total_output_tokens request_throughput output_throughput
    total_token_throughput request_goodput"""
STATISTICS = ("mean", "median", "std", "p90", "p95", "p99", "p999")


@pytest.mark.parametrize("tokens_per_event", [1, 4])
def test_vllm_s_keys(tmp_path: Path, tokens_per_event: int) -> None:
    write_workers(tmp_path, draw_requests(3, Shape(tokens_per_event=tokens_per_event, say_tokens=True)))
    write_manifest(tmp_path, phases=[duration_phase(ORIGIN_NS, 3.0)])
    found = measure(load(tmp_path))
    for name in TOTALS.split():
        assert name in found, name
    ours = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e", "itl": "tbc" if tokens_per_event > 1 else "itl"}
    for name, metric in ours.items():
        for statistic in STATISTICS:
            expected = found["metrics"][metric]["p50" if statistic == "median" else statistic]
            assert found[f"{statistic}_{name}_ms"] == expected is not None
    assert found["completed"] == found["counts"]["ok"]
    assert found["total_token_throughput"] == pytest.approx(
        found["output_throughput"] + found["metrics"]["input_tok_s"]["value"]
    )
