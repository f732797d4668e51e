"""Durations that an Ollama server says keep names of their own; its zeros and silences are null, never 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastllmload.documents.run import RunDocument
from fastllmload.metrics.request.latencies import latency_metrics
from fastllmload.metrics.request.server_side import server_side_metrics
from fastllmload.metrics.run.window import Populations
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run

MS = 1_000_000


def run_of(rows: list[dict[str, int]]) -> Run:
    table = np.zeros(len(rows), layout.REQUEST)
    for row, fields in zip(table, rows, strict=True):
        row["completion_tokens"] = row["prompt_tokens"] = -1
        row["status"] = layout.OK
        for name, value in fields.items():
            row[name] = value
    nothing = np.empty(0, layout.EVENT)
    return Run(Path("."), RunDocument(), table, nothing, np.zeros(len(rows) + 1, np.int64))


def everyone(run: Run) -> Populations:
    mask = np.ones(len(run.rows), np.bool_)
    return Populations(measured=mask, submitted=mask, latency=mask)


def said(total: int, load: int, prompt: int, spent: int, tokens: int) -> dict[str, int]:
    return {
        "server_total_ns": total,
        "server_load_ns": load,
        "server_prompt_eval_ns": prompt,
        "server_eval_ns": spent,
        "completion_tokens": tokens,
    }


def test_each_figure_is_the_servers_own() -> None:
    run = run_of([said(900 * MS, 10 * MS, 200 * MS, 500 * MS, 50), said(1100 * MS, 0, 300 * MS, 700 * MS, 35)])
    found = server_side_metrics(run, everyone(run))
    means = {name: found[name].mean for name in found}
    assert means == {
        "server_total_duration": 1000.0,
        "server_load_duration": 10.0,
        "server_prompt_eval_duration": 250.0,
        "server_eval_duration": 600.0,
        "server_ttft": 250.0,
        "server_gen_tok_s": 75.0,
    }
    assert (found["server_load_duration"].n, found["server_load_duration"].n_null) == (1, 1)
    assert "prompt_eval_duration" in found["server_ttft"].note


def test_a_silent_server_has_no_figure() -> None:
    run = run_of([{"completion_tokens": 9}, {}])
    for name, found in server_side_metrics(run, everyone(run)).items():
        assert (found.n, found.n_null, found.mean, found.p50) == (0, 2, None, None), name


@pytest.mark.parametrize(("spent", "rate", "degenerate"), [(10 * MS, 1000.0, 0), (10 * MS - 1, None, 1)])
def test_less_than_ten_ms_of_generation_is_left_out_and_counted(
    spent: int, rate: float | None, degenerate: int
) -> None:
    run = run_of([said(1, 1, 1, spent, 10)])
    found = server_side_metrics(run, everyone(run))["server_gen_tok_s"]
    assert (found.mean, found.n_degenerate, found.n_null) == (rate, degenerate, 0)


def test_server_figures_change_no_client_figure() -> None:
    """The same stamps with and without the server's word give the same client metrics, bit for bit."""
    stamps = {"t_sched": 1, "t_dispatch": 2, "t_submit": 3, "t_headers": 4, "t_first": 9 * MS, "t_last": 90 * MS}
    stamps |= {"t_any": 9 * MS, "t_end": 91 * MS, "completion_tokens": 20, "content_events": 20}
    silent, speaking = run_of([stamps]), run_of([stamps | said(80 * MS, MS, 5 * MS, 70 * MS, 20)])
    both = [latency_metrics(run, everyone(run), count_tokens(run)) for run in (silent, speaking)]
    assert both[0] == both[1]
    assert not [name for name in both[0] if name.startswith("server_")]
