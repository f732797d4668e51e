"""The result file of vLLM from a run: its figures, computed by hand from two answers and a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from refusals import raises_code, says
from synthetic_run import KIND, MS, ORIGIN_NS, Request, write_manifest, write_workers
from typed_documents import with_keys

from fastllmload.cli.main import main
from fastllmload.export.vllm_result import vllm_result
from fastllmload.metrics.run.measure import measure
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.report.blocks import cells
from fastllmload.report.terminal.summary import latencies


def answered(number: int, submit_ms: int, tokens_ms: tuple[int, ...], end_ms: int, prompt_tokens: int) -> Request:
    at = [ORIGIN_NS + ms * MS for ms in tokens_ms]
    submit = ORIGIN_NS + submit_ms * MS
    ended = ORIGIN_NS + end_ms * MS
    fields = {
        "request": number, "session": number, "phase": layout.MEASURE, "t_sched": submit - 2, "t_dispatch": submit - 1,
        "t_submit_start": submit - 1, "t_submit": submit, "t_headers": submit + 1, "t_any": at[0], "t_first": at[0],
        "t_last": at[-1], "t_end": ended, "t_end_user": ended, "http_status": 200, "retry_after_ms": -1,
        "prompt_tokens": prompt_tokens, "completion_tokens": len(at), "reasoning_tokens": -1, "cached_tokens": -1,
        "flags": layout.FLAG_STREAM | layout.FLAG_DONE, "status": layout.OK, "events": len(at), "content_events": len(at),
    }  # fmt: skip
    return Request(fields, [(t, KIND["content"], 1, 0) for t in at])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    failed = answered(2, 6, (7,), 500, 0)
    failed.fields |= {"status": layout.TIMEOUT, "error": layout.ERROR_NAMES.index("deadline"), "completion_tokens": -1}
    write_workers(tmp_path, [answered(0, 0, (10, 20, 40), 41, 4), answered(1, 5, (25, 35), 36, 6), failed])
    write_manifest(tmp_path)
    return load(tmp_path)


def close(found: dict[str, Any], **wanted: float) -> None:
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)


def test_figures_by_hand(run: Run) -> None:
    found = vllm_result(run, (50, 99.9), ("ttft", "tpot", "itl", "e2el"), detailed=True)
    close(found, num_prompts=3, completed=2, failed=1, total_input_tokens=10, total_output_tokens=5, duration=0.041)
    close(found, request_throughput=2 / 0.041, output_throughput=5 / 0.041, total_token_throughput=15 / 0.041)
    close(found, max_concurrent_requests=2, max_output_tokens_per_s=5)
    close(found, mean_ttft_ms=15, median_ttft_ms=15, std_ttft_ms=5, p50_ttft_ms=15)
    close(found, mean_tpot_ms=12.5, mean_itl_ms=40 / 3, median_itl_ms=10, mean_e2el_ms=35)
    assert found["p99.9_ttft_ms"] == pytest.approx(10 + 0.999 * 10)
    assert found["ttfts"] == pytest.approx([0.01, 0.02]) and found["output_lens"] == [3, 2]
    assert [each == pytest.approx(gaps) for each, gaps in zip(found["itls"], ([0.01, 0.02], [0.01]), strict=True)]
    assert found["request_goodput"] is None and "p99_ttft_ms" not in found
    assert "mean_e2el_ms" not in vllm_result(run)
    with raises_code("choice-unknown", "'ttftt'"):
        vllm_result(run, metrics=("ttftt",))


@pytest.mark.parametrize(
    ("objectives", "good"),
    [
        ([["ttft", 15.0]], 1), ([["ttft_any", 15.0]], 1), ([["tpot", 12.0]], 1), ([["ttft", 25.0], ["e2el", 100.0]], 2),
        ([["ttft", 25.0], ["tpot_any", 1.0]], 0),
    ],
)  # fmt: skip
def test_goodput_by_the_objectives_of_the_run(run: Run, objectives: list[list[object]], good: int) -> None:
    """TTFT 10 and 20 ms, TPOT 15 and 10 ms; of the answer (ttft, tpot) or of any token."""
    config = msgspec.to_builtins(run.document.config)
    judged = with_keys(run, config={**config, "output": {**config["output"], "goodput": objectives}})
    assert vllm_result(judged)["request_goodput"] == pytest.approx(good / 0.041)


def test_the_command_writes_it(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(run.directory), "--format", "vllm", "--metric-percentiles", "25,99"]
    assert main([*words, "-o", str(tmp_path / "r.json"), "--percentile-metrics", "ttft"]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["p25_ttft_ms"] == pytest.approx(12.5) and "mean_itl_ms" not in found
    capsys.readouterr()
    assert main(["export", str(run.directory), "--detailed"]) == 2
    assert says(capsys.readouterr().err, "option-not-applicable", "--detailed")
    assert main([*words[:4], "--metric-percentiles", "101"]) == 2
    assert says(capsys.readouterr().err, "value-invalid", "'101'")


def test_a_run_says_which_figures_it_is_asked_for(run: Run, tmp_path: Path) -> None:
    """Its own --percentile-metrics and --metric-percentiles: rows and columns of the closing table, and of the file."""
    asked = {"output": {"percentile_metrics": ["ttft", "e2e"], "metric_percentiles": [50.0, 95.0]}}
    (tmp_path / "run.json").write_text(
        json.dumps({"schema_version": 1, "status": "done", "phases": [], "config": asked})
    )
    table = latencies(measure(load(tmp_path)))
    assert [str(title) for title in table.columns] == ["ms", "mean", "P50", "P95", "max"]
    assert [row[0] for row in cells(table, True)[1:]] == ["ttft", "e2e"] and all(len(row) == 5 for row in table.rows)
    assert main(["export", str(tmp_path), "--format", "vllm", "-o", str(tmp_path / "r.json")]) == 0
    found = {name for name in json.loads((tmp_path / "r.json").read_text()) if name.startswith("p")}
    assert found == {"p50_ttft_ms", "p95_ttft_ms", "p50_e2el_ms", "p95_e2el_ms"}
