"""What run.json says of one run beyond latencies: in flight, shape, cost, cache, fairness; null where unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typed_documents import typed

from fastllmload.metrics.levels.fairness import fairness_block
from fastllmload.metrics.public import measure
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run

MS, BASE = 1_000_000, 10**12
TOKENS = 5


def run_of(
    ttft_ms: list[float], classes: list[int] | None = None, manifest: dict[str, Any] | None = None, **fields: Any
) -> Run:
    """One request per TTFT, each with 5 tokens 10 ms apart; a TTFT of 0 is a request that failed without a token."""
    n = len(ttft_ms)
    rows, events = np.zeros(n, layout.REQUEST), np.zeros(n * TOKENS, layout.EVENT)
    for name in ("reasoning_tokens", "cached_tokens"):
        rows[name] = -1
    rows["phase"], rows["request"] = layout.MEASURE, np.arange(n)
    for name in ("t_sched", "t_dispatch", "t_submit"):
        rows[name] = BASE + np.arange(n) * MS
    rows["prompt_tokens"], rows["completion_tokens"] = 100, TOKENS
    rows["request_class"] = 0 if classes is None else classes
    first = rows["t_submit"] + np.round(np.array(ttft_ms) * MS).astype(np.int64)
    rows["t_headers"] = rows["t_any"] = rows["t_first"] = first
    rows["t_last"] = first + (TOKENS - 1) * 10 * MS
    rows["t_end"], rows["content_events"], rows["status"] = rows["t_last"] + 1, TOKENS, layout.OK
    failed = np.array(ttft_ms) == 0
    for name in ("t_headers", "t_any", "t_first", "t_last", "content_events"):
        rows[name][failed] = 0
    rows["status"][failed], rows["t_end"][failed] = layout.TIMEOUT, rows["t_submit"][failed] + 900 * MS
    rows["completion_tokens"][failed] = -1
    for name, value in fields.items():
        rows[name] = value
    events["t_ns"] = (first[:, None] + np.arange(TOKENS) * 10 * MS).ravel()
    events["row"], events["kind"] = np.repeat(np.arange(n), TOKENS), layout.EVENT_CONTENT
    events = events[~failed[events["row"]]]
    first_event = np.concatenate([[0], np.cumsum(np.where(failed, 0, TOKENS))])
    return Run(Path("."), typed(manifest or {}), rows, events, first_event)


def test_tokens_in_flight_and_shape() -> None:
    """Requests 1 ms apart: when the first one ends, it has 5 tokens and the other three have 4."""
    metrics = measure(run_of([50.0] * 4))["metrics"]
    assert metrics["tokens_in_flight"]["max"] == 4 * 100 + 5 + 3 * 4 and 0 < metrics["tokens_in_flight"]["value"] < 417
    assert metrics["tail_ratio"]["value"] == 1.0 and metrics["tail_ratio"]["pooled_as"] == "itl"
    assert metrics["modality"]["label"] == "unimodal" and metrics["modality"]["enough"] is False
    assert metrics["tail_index"]["value"] is None


def test_cost_only_where_declared() -> None:
    free = measure(run_of([50.0] * 4))["metrics"]
    assert free["tok_per_gpu_s"]["value"] is free["tokens_per_dollar"]["value"] is None
    paid = measure(run_of([50.0] * 4, manifest={"config": {"output": {"gpus": 8, "price_per_hour": 20.0}}}))["metrics"]
    rate = paid["output_tok_s"]["value"]
    assert paid["tok_per_gpu_s"]["value"] == pytest.approx(rate / 8) and paid["tok_per_gpu_s"]["gpus"] == 8
    assert paid["tok_s_per_dollar_hour"]["value"] == pytest.approx(rate / 20)
    assert paid["tokens_per_dollar"]["value"] == pytest.approx(180 * rate)


@pytest.mark.parametrize(
    ("cached", "prefix_len", "rate", "known"),
    [([0, 64, 80, 80], 80, 0.7, 4), (-1, 80, None, 0), ([0, 64, -1, -1], 64, 0.5, 2), (40, 0, None, 0)],
)
def test_cache_hit_rate_of_the_planned_prefix(cached: Any, prefix_len: int, rate: float | None, known: int) -> None:
    plan = {"plan": {"description": {"workload": {"prefix_len": prefix_len}}}}
    found = measure(run_of([50.0] * 4, manifest=plan, cached_tokens=cached))["metrics"]["cache_hit_rate"]
    assert found["value"] == rate and found["n"] == known


def test_tokens_of_another_tokenizer_are_not_a_share_of_the_planned_prefix() -> None:
    """The server found all of the prefix, 408 of its tokens; as a share of our 800 that was 0.51."""
    plan = {"plan": {"description": {"workload": {"prefix_len": 800}}}}
    alike = measure(run_of([50.0] * 4, manifest=plan, cached_tokens=800, input_target=1000, prompt_tokens=1030))
    assert alike["metrics"]["cache_hit_rate"]["value"] == 1.0
    found = measure(run_of([50.0] * 4, manifest=plan, cached_tokens=408, input_target=1000, prompt_tokens=510))[
        "metrics"
    ]
    assert found["cache_hit_rate"]["value"] is None and "another unit" in found["cache_hit_rate"]["note"]
    assert found["cached_prompt_share"]["value"] == pytest.approx(0.8) and found["cached_prompt_share"]["n"] == 4


def test_fairness_needs_two_classes() -> None:
    assert measure(run_of([50.0] * 4))["fairness"] is None
    assert measure(run_of([]))["fairness"] is None


def test_fairness_of_two_classes() -> None:
    """EX-STARV-3 in a run: medians 105 and 1100; a request without a first token counts in its class."""
    names = {"plan": {"classes": ["short", "long"]}}
    run = run_of([100, 110, 90, 600, 1000, 1200, 1100, 0], [0, 0, 0, 0, 1, 1, 1, 1], names)
    found = measure(run)["fairness"]
    assert list(found["classes"]) == ["short", "long"]
    assert found["classes"]["short"]["starvation_rate"] == 0.25 and found["classes"]["long"]["starvation_rate"] == 0.0
    assert found["classes"]["long"]["submitted"] == 4 and found["classes"]["long"]["ok"] == 3
    assert found["classes"]["short"]["ttft"]["p50"] == pytest.approx(105)
    assert found["classes"]["long"]["tpot"]["p50"] == pytest.approx(10)
    e2e = np.array([100, 110, 90, 600, 1000, 1200, 1100]) + 40
    jain = found["jain_norm_latency"]
    assert jain["value"] == pytest.approx(e2e.sum() ** 2 / (7 * (e2e**2).sum())) and jain["n"] == 7
    assert jain["significantly_unfair"] is True and jain["normalisation"] == "e2e / output tokens"
    assert found["jain_index"]["value"] is found["jain_index"]["significantly_unfair"] is None


def test_jain_index_with_isolated_runs() -> None:
    """EX-JAIN-4."""
    run = run_of([100, 150, 600, 400], [0, 0, 1, 1])
    chosen = populations(run, window_of(run))
    found = fairness_block(run, chosen, count_tokens(run), {0: 100.0, 1: 400.0})
    assert found is not None and found.jain_index.value == pytest.approx(0.9615384615)
    assert found.jain_index.significantly_unfair is False


def test_a_request_that_never_got_out_can_starve() -> None:
    """Its connection hung for 900 ms, nine medians."""
    run = run_of([100, 100, 100, 0, 50], [0, 0, 0, 0, 1])
    run.rows["t_submit"][3] = 0
    run.rows["status"][3] = layout.CONNECTION_ERROR
    found = measure(run)["fairness"]
    assert found["classes"]["0"]["starvation_rate"] == 0.25


CLOSED = {"loop": "closed", "duration_s": None, "cycles": False}
PHASE = {"number": 1, "name": "measure", "start_ns": BASE, "end_ns": None, "bound": "count", "ramp_share": 0.0}


@pytest.mark.parametrize(
    ("load", "more", "unsent"),
    [
        (CLOSED, {}, 6),
        ({**CLOSED, "duration_s": 3.0}, {}, 0),  # the clock was the bound
        ({**CLOSED, "loop": "open"}, {}, 0),  # each has a row of its own
        (CLOSED, {"conversations": {"conversations": 4, "requests": 10}}, 0),
    ],
)
def test_requests_of_a_closed_loop_that_no_slot_came_to_are_planned_and_not_sent(
    load: dict[str, Any], more: dict[str, Any], unsent: int
) -> None:
    manifest = {"phases": [PHASE], "plan": {"requests": 10, "description": {"load": load, **more}}}
    counts = measure(run_of([50.0] * 3 + [0.0], manifest=manifest))["counts"]
    assert (counts["planned"], counts["not_sent"], counts["dispatched"]) == (4 + unsent, unsent, 4)
    assert (counts["ok"], counts["failed"]) == (3, 1)


def test_nothing_was_planned_for_a_measurement_that_did_not_begin() -> None:
    counts = measure(run_of([], manifest={"phases": [], "plan": {"requests": 10, "description": {"load": CLOSED}}}))[
        "counts"
    ]
    assert (counts["planned"], counts["not_sent"]) == (0, 0)
