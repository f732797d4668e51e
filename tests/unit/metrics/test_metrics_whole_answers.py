"""Answers that came whole, with streams: in TTFT and E2E, in nothing that is made of gaps, and said so everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from summary_text import summary_lines
from typed_documents import typed, with_keys

from fastllmload.compare.series import RunSeries
from fastllmload.metrics.public import measure
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.report.documents.results import unstreamed_note
from fastllmload.report.html.render import render
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.latency import section
from fastllmload.report.text.traffic import unstreamed_answers

MS, BASE = 1_000_000, 10**12
TOKENS = 5


def run_of(whole: list[bool], classes: list[int] | None = None) -> Run:
    """One request a millisecond with 5 tokens: 10 ms apart from 50 ms on, or all at 90 ms in one body."""
    n = len(whole)
    rows = np.zeros(n, layout.REQUEST)
    events: list[tuple[int, int]] = []
    for name in ("reasoning_tokens", "cached_tokens"):
        rows[name] = -1
    rows["phase"], rows["request"], rows["status"] = layout.MEASURE, np.arange(n), layout.OK
    rows["t_sched"] = rows["t_dispatch"] = rows["t_submit"] = BASE + np.arange(n) * MS
    rows["prompt_tokens"], rows["completion_tokens"] = 100, TOKENS
    rows["request_class"] = 0 if classes is None else classes
    for k, alone in enumerate(whole):
        times = rows["t_submit"][k] + np.array([90] if alone else [50, 60, 70, 80, 90]) * MS
        rows["t_headers"][k] = rows["t_any"][k] = rows["t_first"][k] = times[0]
        rows["t_last"][k], rows["t_end"][k] = times[-1], times[-1] + 1
        rows["events"][k] = rows["content_events"][k] = len(times)
        rows["flags"][k] = layout.FLAG_USAGE | (0 if alone else layout.FLAG_STREAM)
        events += [(int(t), k) for t in times]
    stamps = np.zeros(len(events), layout.EVENT)
    stamps["t_ns"], stamps["row"] = zip(*events, strict=True)
    stamps["kind"] = layout.EVENT_CONTENT
    borders = np.concatenate([[0], np.cumsum(rows["content_events"], dtype=np.int64)])
    names = {"plan": {"classes": ["chat", "batch"], "description": {"streaming": True}}}
    return Run(Path("."), typed(names), rows, stamps, borders)


def test_they_are_in_no_figure_of_gaps() -> None:
    """Nine streams and one body. Its 5 tokens at one instant would be a TPOT of 0, and turn ITL into TBC."""
    found = measure(run_of([False] * 9 + [True]))
    metrics = found["metrics"]
    assert found["counts"]["came_whole"] == 1
    for name in ("tpot", "tpot_n", "tpot_any", "decode_tok_s", "jitter", "max_pause"):
        assert (metrics[name]["n"], metrics[name]["n_null"]) == (9, 1), name
    assert metrics["tpot"]["min"] == metrics["tpot"]["max"] == 10.0
    assert metrics["share_single"]["value"] == 1.0 and metrics["share_single"]["itl_option"] == "direct"
    assert metrics["itl"]["n"] == 9 * 4 and metrics["itl"]["min"] == 10.0 and metrics["tbc"]["n"] == 0
    assert metrics["ttft"]["n"] == metrics["e2e"]["n"] == 10 and metrics["ttft"]["max"] == 90.0
    assert metrics["ttft"]["note"].startswith("1 of the 10 ")
    assert "left out" in metrics["tpot"]["note"] and "note" not in metrics["e2e"]


def test_many_of_them_do_not_hide_the_gaps_of_the_streams() -> None:
    metrics = measure(run_of([False] * 5 + [True] * 95))["metrics"]
    assert metrics["itl"]["n"] == 20 and metrics["itl"]["mean"] == 10.0 and metrics["tpot"]["n"] == 5


def test_nothing_is_said_of_streams_alone() -> None:
    found = measure(run_of([False] * 10))
    assert found["counts"]["came_whole"] == 0 and "note" not in found["metrics"]["ttft"]
    assert unstreamed_answers(typed(found)) is None and unstreamed_note(typed(found)) == []


@pytest.mark.parametrize("given", ["answers", "plan"])
def test_all_of_them(given: str) -> None:
    """Whether the plan asked for no streams or the server gave none."""
    run = run_of([given == "answers"] * 10)
    run = with_keys(run, plan={"description": {"streaming": given == "answers"}})
    found = measure(run)
    assert found["metrics"]["tpot"]["n"] == found["metrics"]["jitter"]["n"] == 0
    assert "not streamed" in found["metrics"]["ttft"]["note"]
    assert unstreamed_answers(typed(found)) == "all" and unstreamed_note(typed(found))[0].startswith("Not streamed")


def test_every_report_says_how_many_and_of_which_class() -> None:
    run = run_of([False] * 6 + [True] * 4, [0] * 6 + [1] * 4)
    found = measure(run)
    assert found["classes"]["batch"]["came_whole"] == 4 and found["classes"]["chat"]["came_whole"] == 0
    assert found["classes"]["batch"]["tpot"]["n"] == 0 and found["classes"]["chat"]["tpot"]["n"] == 6
    said = "4 of 10 answers (batch 4)"
    (note,) = unstreamed_note(typed(found))
    assert note.startswith(f"{said} were not streamed")
    lines = [line.text for line in summary_lines(typed(found), 100)]
    assert any(line.startswith(f"{said} not streamed") for line in lines)
    assert any(line.text.startswith(f"{said} not streamed") for line in summary_lines(typed(found), 60))
    assert f"{said} were not streamed" in render([section(ReportContext(run.with_document(typed(found))))])


def test_comparisons_leave_them_out_too() -> None:
    samples = RunSeries(run_of([False] * 6 + [True] * 4), "run").latencies
    for name in ("tpot", "tpot_any"):
        assert np.isnan(samples[name]).sum() == 4 and np.nanmin(samples[name]) == 10 * MS
