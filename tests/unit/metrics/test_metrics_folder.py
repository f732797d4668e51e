"""measure() on run folders: any split into workers, any order of rows, and folders without what newer ones have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import says
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers
from typed_documents import typed, with_keys

from fastllmload.metrics.public import measure
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.timeline import timeline
from fastllmload.records.layout import EVENT_EMPTY, EVENT_NAMES
from fastllmload.records.run import Run, load
from fastllmload.report.text.doubts import token_texts

pytestmark = pytest.mark.slow

GOODPUT = [["ttft", 60.0], ["1/tbt", 40.0], ["idle", 300.0], ["fluidity", 0.5], ["reading", 4.0], ["tbc", 90.0]]
SHAPES = {
    "said": Shape(requests=120, tokens_per_event=4, say_tokens=True),
    "usage": Shape(requests=120),
    "text": Shape(requests=60, tokens_per_event=3, usage=False, text=True),
    "nothing": Shape(requests=60, tokens_per_event=3, usage=False),
}


def folder(path: Path, shape: Shape, workers: int, **output: Any) -> Run:
    path.mkdir()
    write_workers(path, draw_requests(3, shape), workers, text=shape.text)
    write_manifest(path, phases=[duration_phase(ORIGIN_NS, 1.5)])
    run = load(path)
    return with_keys(run, config={"output": {"goodput": GOODPUT, **output}})


def near(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(near, found, expected))
    if isinstance(expected, float) and not isinstance(found, str) and found is not None:
        return bool(found == pytest.approx(expected, rel=1e-9, abs=1e-9))
    return bool(found == expected)


@pytest.mark.parametrize("name", SHAPES)
def test_split_into_workers_and_merged_is_the_whole(tmp_path: Path, name: str) -> None:
    whole = measure(folder(tmp_path / "one", SHAPES[name], 1))
    split = measure(folder(tmp_path / "three", SHAPES[name], 3))
    assert whole["counts"]["ok"] > 20 and near(split, whole)
    json.dumps(whole, allow_nan=False)  # null is null


def permuted(run: Run, order: np.ndarray) -> Run:
    """The same requests in another order of rows."""
    sizes = np.diff(run.first_event)[order]
    events = np.concatenate([run.events[run.first_event[r] : run.first_event[r + 1]] for r in order])
    events["row"] = np.repeat(np.arange(len(order)), sizes)
    return replace(run, rows=run.rows[order], events=events, first_event=np.concatenate([[0], np.cumsum(sizes)]))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_changes_nothing(tmp_path: Path, seed: int) -> None:
    run = folder(tmp_path / "run", SHAPES["said"], 2)
    order = np.random.default_rng(seed).permutation(len(run.rows))
    found, expected = measure(permuted(run, order)), measure(run)
    for document in (found, expected):
        document["errors"].sort(key=str)
        for entry in document["slo"]["objectives"]:
            entry["failed_requests"] = sorted(entry["failed_requests"])[:0]  # the first 20 in the order of rows
    assert near(found, expected)


@pytest.mark.parametrize(
    ("name", "asked", "option", "source"),
    [
        ("usage", "auto", "direct", "single"),
        ("usage", "A", "A", "single"),
        ("said", "auto", "A", "server"),
        ("said", "B", "B", "server"),
        ("text", "B", "B", "text"),
        ("nothing", "B", "A", "chunk"),
    ],
)
def test_the_option_of_the_gaps_is_chosen_and_declared(
    tmp_path: Path, name: str, asked: str, option: str, source: str
) -> None:
    metrics = measure(folder(tmp_path / "run", SHAPES[name], 1, itl_option=asked))["metrics"]
    declared = metrics["share_single"]
    assert declared["itl_option"] == option
    assert max(declared["token_times_source"], key=declared["token_times_source"].get) == source
    pooled = {"direct": "itl", "A": "tbc", "B": "itl_b"}
    assert all((metrics[key]["n"] > 0) == (key == pooled[option]) for key in pooled.values())


def test_an_option_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    for name, several in (("nothing", True), ("said", False)):
        document = measure(folder(tmp_path / name, SHAPES[name], 1, itl_option="B"))
        assert document["metrics"]["share_single"]["itl_option_asked"] == "B"
        assert bool(token_texts(typed(document))) == several == (document["metrics"]["share_single"]["n_unknown"] > 0)


@pytest.mark.parametrize(
    ("kind", "more", "carrying"), [(EVENT_EMPTY, 9, 2), (EVENT_NAMES.index("role"), 1, 1), (EVENT_EMPTY, 0, 0)]
)
def test_unreported_chunks_without_text_bound_the_mean_gap(tmp_path: Path, kind: int, more: int, carrying: int) -> None:
    """Two of four gaps may hide one more token each, as far as the answer has *more* tokens than chunks with text; what
    comes before the first token and after the last is not a gap.
    """
    run = folder(tmp_path / "run", SHAPES["usage"], 1)
    several = (run.rows["content_events"] > 3) & (run.rows["reasoning_events"] == 0)
    row = int(np.flatnonzero(populations(run, window_of(run)).latency & several)[0])
    line = timeline(run, np.arange(len(run.rows)) == row)
    empty = np.zeros(4, run.events.dtype)
    empty["t_ns"] = [line.t_ns[0] - 1, line.t_ns[0] + 1, line.t_ns[1] + 1, line.t_ns[-1] + 1]
    empty["kind"], empty["row"] = kind, row
    events = np.concatenate([run.events, empty])
    events = events[np.lexsort((events["t_ns"], events["row"]))]
    first = np.searchsorted(events["row"], np.arange(len(run.rows) + 1))
    rows = run.rows.copy()
    rows["completion_tokens"][row] += more
    before = measure(run)["metrics"]
    found = measure(replace(run, rows=rows, events=events, first_event=first))["metrics"]
    assert before["empty_chunks"]["value"] == 0 and found["empty_chunks"]["n"] == 2
    n, mean = found["itl"]["n"], found["itl"]["mean"]
    assert (n, mean) == (before["itl"]["n"], before["itl"]["mean"])
    assert found["empty_chunks"]["n_carrying"] == carrying
    assert found["empty_chunks"]["itl_mean_least"] == pytest.approx(mean * n / (n + carrying))
    assert any("had no text" in text for text in token_texts(typed({"metrics": found}))) == (carrying > 0)


def test_failed_requests_are_in_no_latency_but_in_every_share(tmp_path: Path) -> None:
    document = measure(folder(tmp_path / "run", SHAPES["usage"], 1))
    submitted, ok = document["counts"]["submitted_in_window"], document["counts"]["latency_population"]
    metrics = document["metrics"]
    assert submitted > ok == metrics["ttft"]["n"] == metrics["fluidity_index"]["n"]
    assert metrics["idle_latency"]["n"] == submitted == metrics["benefit_sg_default"]["n"]
    assert 0 < metrics["idle_latency"]["n_censored"] <= submitted - ok
    assert metrics["fluid_share"]["value"] <= ok / submitted == metrics["completion_rate"]["value"]
    for entry in document["slo"]["objectives"]:
        assert entry["met"] + entry["missed"] + entry["failed"] == entry["submitted"]


def test_an_unknown_objective_of_a_folder_costs_only_the_objectives(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", SHAPES["usage"], 1, goodput=[["ttft", 60.0], ["speed", 5.0]])
    document = measure(run)
    assert document["slo"]["met"] is None and document["request_goodput"] is None
    assert says(document["slo"]["problem"], "objective-invalid", "'speed:5'") and document["completed"] > 0
