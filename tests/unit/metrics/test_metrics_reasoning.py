"""Answers with reasoning: figures to the first token of any kind next to those of the answer, tokens, rate; and answers that
are nothing but reasoning, which are ok without an answer token.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from example_runs import run_of, streamed

from fastllmload.metrics.levels.asiai import from_rows
from fastllmload.metrics.objectives.report import slo_ok
from fastllmload.metrics.public import measure
from fastllmload.metrics.run.measure import REASONING
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records import layout

# 5 reasoning tokens from 100 ms on, 10 ms apart, answer tokens from 150 ms on, 20 ms apart; stated by usage
THINKS = streamed([], ended=210, chunks=[[100 + 10 * k, 1, "reason"] for k in range(5)]
                  + [[150 + 20 * k, 1, "text"] for k in range(4)], output_tokens=9, hidden_reasoning_tokens=5)  # fmt: skip
ALONE = streamed([], ended=140, chunks=[[100 + 10 * k, 1, "reason"] for k in range(5)], output_tokens=5)
PLAIN = streamed([50, 60, 70])


def counts(*requests: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = measure(run_of(list(requests)))["counts"]
    return found


def test_figures_of_any_token_and_of_the_answer() -> None:
    found = measure(run_of([THINKS] * 3))
    metrics = found["metrics"]
    assert [metrics[name]["p50"] for name in ("ttft", "ttft_any", "tpot")] == [150, 100, 20]
    assert metrics["tpot_any"]["p50"] == pytest.approx(110 / 8)
    assert metrics["reasoning_tok_s"]["p50"] == pytest.approx(5 / 0.050) and metrics["reasoning_tok_s"]["n"] == 3
    for key in ("mean_ttft_any_ms", "p99_ttft_any_ms"):
        assert found[key] == 100
    assert found["median_tpot_any_ms"] == pytest.approx(110 / 8)
    assert (found["counts"]["reasoned"], found["counts"]["all_reasoning"]) == (3, 0)
    assert (found["counts"]["reasoning_tokens"], found["counts"]["answer_tokens"]) == (15, 12)
    assert found["counts"]["reasoning_tokens_source"]["usage"] == 3


def test_a_run_without_reasoning_has_the_flat_keys_of_vllm_alone() -> None:
    found = measure(run_of([PLAIN] * 3))
    assert not [key for key in found for name in REASONING if f"_{name}_ms" in key]
    assert found["metrics"]["reasoning_tok_s"]["n"] == found["metrics"]["reasoning_tok_s"]["n_null"] == 0
    assert found["counts"]["reasoned"] == found["counts"]["reasoning_tokens"] == 0
    assert found["counts"]["answer_tokens"] == found["counts"]["output_tokens"] == 9
    assert sum(found["counts"]["reasoning_tokens_source"].values()) == 0


def test_a_token_rate_is_over_the_time_of_the_reasoning_too() -> None:
    """Nine tokens from 100 ms to 210 ms; over the time of the answer alone they would be 150 tokens/s."""
    metrics = measure(run_of([THINKS]))["metrics"]
    assert metrics["gen_duration"]["p50"] == 110 and metrics["gen_tok_s"]["p50"] == pytest.approx(9 / 0.110)
    run = run_of([THINKS, ALONE, PLAIN])
    thinking, alone, plain = from_rows(run.rows, count_tokens(run).output)
    assert thinking is not None and alone is not None and plain is not None
    assert (thinking.ttft_ns, thinking.gen_tok_s) == (150_000_000, pytest.approx(9 / 0.110))
    assert (alone.ttft_ns, alone.gen_tok_s) == (100_000_000, pytest.approx(5 / 0.040))
    assert (plain.ttft_ns, plain.gen_tok_s) == (50_000_000, pytest.approx(3 / 0.020))


@pytest.mark.parametrize(
    ("change", "source", "tokens"),
    [
        ({}, "usage", 5),
        ({"hidden_reasoning_tokens": -1}, "events", 5),  # each event says its tokens
        ({"hidden_reasoning_tokens": -1, "silent": True}, "chunks", 5),  # one event per token
        ({"hidden_reasoning_tokens": -1, "silent": True, "output_tokens": 90}, "unknown", 0),
    ],
)
def test_where_the_number_of_reasoning_tokens_comes_from(change: dict[str, Any], source: str, tokens: int) -> None:
    each = THINKS | change
    if change.get("silent"):
        each["chunks"] = [[t, 0, what] for t, _, what in each["chunks"]]
    found = counts(each)
    assert found["reasoning_tokens_source"] == {
        name: int(name == source) for name in ("usage", "events", "output", "chunks", "unknown")
    }
    assert found["reasoning_tokens"] == tokens
    assert found["answer_tokens"] == (0 if source == "unknown" else 4)
    rate = measure(run_of([each]))["metrics"]["reasoning_tok_s"]
    assert (rate["n"], rate["n_null"]) == ((0, 1) if source == "unknown" else (1, 0))


def test_reasoning_after_the_answer_began_has_no_rate() -> None:
    again = THINKS | {"chunks": [*THINKS["chunks"], [230, 1, "reason"]], "t_end": 240}
    assert measure(run_of([again]))["metrics"]["reasoning_tok_s"]["n_null"] == 1


def test_hidden_reasoning_has_tokens_and_no_rate() -> None:
    hidden = streamed([50, 60, 70], output_tokens=13, hidden_reasoning_tokens=10)
    found = measure(run_of([hidden]))
    assert (found["counts"]["reasoned"], found["counts"]["reasoning_tokens"]) == (0, 10)
    assert found["counts"]["answer_tokens"] == 3 and found["metrics"]["reasoning_tok_s"]["n"] == 0


def test_an_answer_that_is_all_reasoning() -> None:
    """No first answer token: no ttft, tpot, gap. Everything else has a value."""
    found = measure(run_of([THINKS, ALONE]))
    metrics = found["metrics"]
    for name in ("ttft", "ttft_sched", "tpot", "tpot_n", "decode_tok_s", "jitter", "max_pause"):
        assert (metrics[name]["n"], metrics[name]["n_null"]) == (1, 1), name
    for name in ("e2e", "ttft_any", "tpot_any", "request_tok_s", "norm_latency", "reasoning_tok_s", "gen_tok_s"):
        assert (metrics[name]["n"], metrics[name]["n_null"]) == (2, 0), name
    assert metrics["e2e"]["min"] == 140 and metrics["tpot_any"]["min"] == 10
    assert metrics["itl"]["n"] == 3
    assert metrics["reasoning_tok_s"]["min"] == pytest.approx(4 / 0.040)  # the fifth ends with an answer token
    assert metrics["success_rate"]["value"] == 1.0
    assert (found["counts"]["reasoned"], found["counts"]["all_reasoning"]) == (2, 1)
    assert (found["counts"]["reasoning_tokens"], found["counts"]["answer_tokens"]) == (10, 4)
    assert found["counts"]["reasoning_tokens_source"]["output"] == 1
    json.dumps(found, allow_nan=False)


def test_a_run_of_nothing_else() -> None:
    """Everything is computed, what needs an answer token is null."""
    found = measure(run_of([ALONE] * 5, {"config": {"output": {"goodput": [["ttft", 500], ["idle", 9_000]]}}}))
    metrics = found["metrics"]
    assert metrics["ttft"]["p50"] is None and metrics["itl"]["n"] == metrics["tbc"]["n"] == 0
    assert metrics["ttft_any"]["p50"] == 100 and found["output_throughput"] > 0
    assert set(metrics["ttft_any"]["bounds"]) == set(metrics["tpot_any"]["bounds"]) and "bounds" not in metrics["ttft"]
    assert "bounds" in metrics["e2e"]
    assert found["slo"]["met"] == 0
    json.dumps(found, allow_nan=False)


def test_input_tokens_are_taken_in_when_the_reasoning_begins() -> None:
    """An answer without an answer token read its prompt all the same."""
    one, both = (measure(run_of(list(each)))["metrics"]["req_s"] for each in ((THINKS,), (THINKS, ALONE)))
    run = run_of([THINKS, ALONE])
    run.rows["prompt_tokens"] = 100
    found = measure(run)
    assert found["metrics"]["input_tok_s"]["value"] == pytest.approx(200 / found["duration"])
    assert both["value"] > one["value"]


@pytest.mark.parametrize("name", ["ttft", "ttft_sched", "tpot", "itl", "tbt", "tbc", "idle", "reading", "fluidity"])
def test_an_objective_on_the_answer_is_missed_without_one(name: str) -> None:
    limit = {"fluidity": 0.01, "reading": 0.001}.get(name, 1e6)
    assert slo_ok(run_of([THINKS, ALONE]), run_of([THINKS, ALONE]).rows["status"] == layout.OK, {name: limit}).tolist() == [
        True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "limit", "met"),
    [("ttft_any", 100, [True, True]), ("ttft_any", 99, [False, False]), ("tpot_any", 10, [False, True]),
     ("tpot_any", 14, [True, True]), ("e2el", 140, [False, True])],
)  # fmt: skip
def test_an_objective_on_all_tokens_judges_what_there_is(name: str, limit: float, met: list[bool]) -> None:
    run = run_of([THINKS, ALONE])
    assert slo_ok(run, run.rows["status"] == layout.OK, {name: limit}).tolist() == met


def test_requests_without_a_value_are_named_first_among_misses() -> None:
    late = streamed([900.0, 910.0])
    config = {"output": {"goodput": [["ttft", 200]]}}
    entry = measure(run_of([late, ALONE, THINKS], {"config": config, "run_id": "r"}))["slo"]["objectives"][0]
    assert (entry["met"], entry["missed"]) == (1, 2)
    assert entry["worst"] == [{"request_id": "r-1-1", "excess": None}, {"request_id": "r-1-0", "excess": 700.0}]
    assert entry["excess"]["n"] == 1


def test_bounds_hold_the_figures_and_widen_with_the_brackets() -> None:
    run = run_of([THINKS, ALONE] * 3)
    exact = measure(run)["metrics"]
    run.events["bracket_ns"] = 4_000_000
    wide = measure(run)["metrics"]
    for name in ("ttft_any", "ttft_any_sched", "tpot_any", "e2e", "ttft"):
        low, high = wide[name]["bounds"]["p50"]
        assert low < exact[name]["bounds"]["p50"][0] <= exact[name]["p50"] <= high, name
    assert wide["ttft_any"]["bounds"]["p50"][0] == pytest.approx(96, abs=0.1)
    assert wide["e2e"]["bounds"]["mean"][0] < exact["e2e"]["mean"] - 3.9


def test_it_is_not_waiting_for_a_first_answer_token() -> None:
    """A request that was cut off is counted as unfinished; an answer that is all reasoning is not."""
    cut = streamed([], ended=500, chunks=[[100, 1, "reason"]], output_tokens=1, status=layout.TIMEOUT)
    found = measure(run_of([THINKS] * 8 + [ALONE, cut]))["metrics"]
    assert (found["ttft"]["with_unfinished"]["n"], found["ttft"]["with_unfinished"]["n_unfinished"]) == (9, 1)
    assert found["ttft_any"]["with_unfinished"]["n_unfinished"] == 0


def test_classes_have_both_where_they_reason() -> None:
    found = measure(run_of([THINKS | {"class": 1}] * 3 + [PLAIN | {"class": 0}] * 3))["classes"]
    thinking = next(one for one in found.values() if one["ttft"]["p50"] == 150)
    assert (thinking["ttft_any"]["p50"], thinking["tpot_any"]["p50"]) == (100, pytest.approx(110 / 8))
    assert [("ttft_any" in one) for one in found.values()].count(True) == 1
