"""Of a run of many events every figure is made some rows at a time: it says the same as one that is looked at whole."""

from __future__ import annotations

import math
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_run import real_run
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers
from typed_documents import with_keys

from fastllmload.certificate import error_bounds, judge
from fastllmload.documents.write import plain
from fastllmload.metrics.public import measure
from fastllmload.metrics.run import bounds
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens import timeline, times
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.itl import pooled
from fastllmload.records import layout, scratch
from fastllmload.records.merge import merge_workers
from fastllmload.records.run import Run, load
from fastllmload.statistics import order_statistics

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
import report_scale

pytestmark = pytest.mark.slow

GOODPUT = [["ttft", 300.0], ["itl", 400.0], ["tbc", 400.0], ["fluidity", 0.9]]
SHAPES = {
    "one token an event": Shape(requests=400),
    "several tokens an event, stated": Shape(requests=400, tokens_per_event=4, say_tokens=True),
    "several tokens an event, unsaid": Shape(requests=300, tokens_per_event=4),
}


def made(folder: Path, shape: Shape) -> Run:
    """A run whose events have brackets of all sizes, some of them open; where tokens are stated, some events have none, and
    gaps are those between tokens (option B).
    """
    write_workers(folder, draw_requests(3, shape), 2)
    write_manifest(folder, phases=[duration_phase(ORIGIN_NS, shape.requests / shape.rate)])
    run = load(folder)
    events, rng = run.events.copy(), np.random.default_rng(4)
    events["bracket_ns"] = rng.choice([0, 1_000, 40_000_000, 2**32 - 1], len(events), p=[0.6, 0.2, 0.15, 0.05])
    if shape.say_tokens:
        events["tokens"][rng.random(len(events)) < 0.1] = layout.TOKENS_NONE
        run = with_keys(run, config={"output": {"itl_option": "B"}})
    return replace(run, events=events)


def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (order_statistics, bounds, error_bounds, timeline, times):
        monkeypatch.setattr(module, "AT_ONCE", 50)
    monkeypatch.setattr(order_statistics, "MANY", 1)
    monkeypatch.setattr(scratch, "LARGE", 1)


def same(one: Any, other: Any, where: str = "") -> None:
    """Equal but for the rounding of sums in another order."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{where}.{k}")
    elif isinstance(one, float) and isinstance(other, float):
        assert math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12), (where, one, other)
    else:
        assert one == other, where


@pytest.mark.parametrize("name", SHAPES)
def test_figures_and_certificate_in_pieces_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = made(tmp_path, SHAPES[name])
    whole, verdict = measure(run), plain(judge.judge(run))
    in_pieces(monkeypatch)
    same(whole, measure(run))
    same(verdict, plain(judge.judge(run)))
    gap = next(found for found in (whole["metrics"][key] for key in ("itl", "tbc", "itl_b")) if found["n"])
    assert gap["n"] > 1000 and gap["bounds"]["p99"][1] > gap["p99"]  # the comparison is of something


@pytest.mark.parametrize("name", SHAPES)
def test_bounds_of_gaps_are_those_of_the_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run = made(tmp_path, SHAPES[name])
    chosen, tokens = populations(run, window_of(run)), count_tokens(run)
    gaps = pooled(run, chosen.latency, tokens, times.token_times(run, chosen.submitted, tokens))
    in_pieces(monkeypatch)
    pairs = [np.concatenate(side) for side in zip(*bounds.bounds_of_gaps(run, gaps), strict=True)]
    expected = [pair for row in gaps.rows.tolist() for pair in defined(run, row, gaps.bearing is not None)]
    inside = len(gaps.gaps.ns) - len(expected)
    assert np.column_stack(pairs).tolist() == expected + [[0, 0]] * inside
    assert (inside > 0) == (name == "several tokens an event, stated")


def defined(run: Run, row: int, bearing: bool) -> list[list[int]]:
    """[least, most] of each gap between chunks of *row*, event by event; *bearing*: chunks without a token do not count."""
    begun, before, found = False, None, []
    for event in run.events[run.first_event[row] : run.first_event[row + 1]]:
        kind = layout.EVENT_NAMES[event["kind"]]
        begun = begun or kind in ("content", "tool", "refusal")
        if not begun or kind not in ("content", "tool", "refusal", "whitespace"):
            continue
        if bearing and event["tokens"] == layout.TOKENS_NONE:
            continue
        t, submitted, bracket = int(event["t_ns"]), int(run.rows["t_submit"][row]), int(event["bracket_ns"])
        low = min(t, submitted if bracket == 2**32 - 1 else max(submitted, t - bracket))
        if before is not None:
            found.append([max(low - before[0], 0), t - before[1]])
        before = (t, low)
    return found


def test_counts_that_no_server_means_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes of an event can state 65,534 tokens: a folder of a few MB could ask for a terabyte."""
    run = made(tmp_path, SHAPES["several tokens an event, stated"])
    run.events["tokens"][run.event_kind == layout.EVENT_CONTENT] = 60_000
    monkeypatch.setattr(times, "MOST_TOKENS", 1 << 22)
    everybody = np.ones(len(run.rows), np.bool_)
    found = times.token_times(run, everybody, count_tokens(run))
    assert len(found.t_ns) == len(found.chunks.t_ns) > 1000
    assert (found.source[found.chunks.events > 0] != times.SERVER).all()
    run.events["tokens"][run.event_kind == layout.EVENT_CONTENT] = 200  # many, and yet meant
    believed = times.token_times(run, everybody, count_tokens(run))
    assert len(believed.t_ns) > 100 * len(believed.chunks.t_ns)
    assert 0 < len(believed.t_ns) < 1 << 22


def test_memory_grows_with_requests_and_not_with_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_statistics, "MANY", 1 << 12)
    monkeypatch.setattr(order_statistics, "PICKED", 1 << 12)
    monkeypatch.setattr(scratch, "LARGE", 1 << 16)
    peaks = []
    for tokens in (2_000, 8_000):
        folder = tmp_path / str(tokens)
        report_scale.make_folder(folder, real_run(), requests=100, tokens=tokens)
        merge_workers(folder)
        run = load(folder)
        config = run.manifest["config"]
        run = with_keys(run, config={**config, "output": {**config["output"], "goodput": GOODPUT}})
        tracemalloc.start()
        try:
            assert measure(run)["metrics"]["itl"]["n"] > 80 * tokens
            assert judge.judge(run).events > 80 * tokens
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 1_000_000  # a whole array of one byte per event would be 600,000 more
