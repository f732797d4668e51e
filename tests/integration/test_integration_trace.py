"""A replayed Mooncake trace: the simulated engine's prefix cache finds what the trace's hash_ids say it must."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fastllmload
from fastllmload.records.layout import MEASURE, OK
from fastllmload.workload.trace import prefix_hit_rate, read_trace

CORPORA = Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[3] / "shared" / "corpora")) / "traces"
LINES = "".join(  # 2 to 5 blocks, of which the last one is of this request alone, and shorter
    f'{{"timestamp": {40 * n}, "input_length": {512 * (2 + n % 4) - 100}, "output_length": 2, '
    f'"hash_ids": {[*[n % 3, 10 + n % 6, 100 + n % 12, 1000 + n % 24][: 1 + n % 4], 2000 + n]}}}\n'
    for n in range(60)
)


def replayed(file: Path, tmp_path: Path, seconds: float) -> tuple[float, float]:
    """(hit rate the engine reports, hit rate of the trace); one at a time, so that every block is there when asked
    for.
    """
    trace = read_trace("mooncake", file).part(0.0, seconds)
    run = fastllmload.run(
        workload="mooncake", dataset_path=str(file), trace_to=seconds, concurrency=1, num_requests=len(trace), warmup=0,
        endpoint_type="openai-completions", output=str(tmp_path / "run"),
        simulate={"set.step_ms": "0.02", "set.block_size": "512", "set.kv_blocks": "65536"},
    )  # fmt: skip
    rows = run.rows[(run.rows["phase"] == MEASURE) & (run.rows["status"] == OK)]
    assert len(rows) == len(trace)
    expected = prefix_hit_rate(trace)
    assert expected is not None
    return float(rows["cached_tokens"].sum() / rows["prompt_tokens"].sum()), expected


def test_hits_are_those_of_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(LINES)
    found, expected = replayed(file, tmp_path, 10.0)
    assert 0.2 < expected < 0.9
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the public traces are not there (FASTLLMLOAD_CORPORA)")
def test_hits_of_the_public_trace(tmp_path: Path) -> None:
    found, expected = replayed(CORPORA / "mooncake_conversation_first3000.jsonl", tmp_path, 30.0)
    assert found == pytest.approx(expected, abs=1e-9)


def test_open_loop_replay_keeps_the_recorded_instants(tmp_path: Path) -> None:
    """Twice as fast as recorded; without --rate the trace's own instants are the schedule."""
    file = tmp_path / "trace.csv"
    file.write_text("timestamp,input,output\n" + "".join(f"{100 + 0.1 * n:.1f},{20 + n},2\n" for n in range(20)))
    run = fastllmload.run(
        workload="trace", dataset_path=str(file), trace_speed=2, warmup=2, output=str(tmp_path / "run")
    )
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert rows["input_target"].tolist() == [20 + n for n in range(20)]
    assert ((rows["t_sched"] - rows["t_sched"][0]) / 1e6).round(3).tolist() == [50.0 * n for n in range(20)]
    assert run.manifest["certificate"]["rate_error"] == 0
