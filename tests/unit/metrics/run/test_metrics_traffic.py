"""Users who do more than wait, classes and conversations in the numbers of a run."""

from __future__ import annotations

import numpy as np
import pytest
from test_metrics_run_blocks import run_of

from fastllmload.metrics.public import measure
from fastllmload.records import layout
from fastllmload.records.run import Run


def ended(run: Run, which: list[int], error: int, client: int) -> Run:
    """These requests were cancelled by their users."""
    run.rows["status"][which], run.rows["error"][which] = layout.CANCELLED, error
    run.rows["client"][which] = client
    return run


def test_who_leaves_by_plan_is_in_no_population() -> None:
    """Two of ten leave: latencies and rates of success are over eight, and nothing failed."""
    run = ended(run_of([20.0] * 10), [3, 7], layout.CLIENT_CANCELLED, layout.CLIENT_CANCELS)
    found = measure(run)
    assert found["failed"] == 0 and found["completed"] == 8 and found["errors"] == []
    assert found["metrics"]["ttft"]["n"] == 8 and found["counts"]["submitted_in_window"] == 8
    assert found["metrics"]["success_rate"]["value"] == 1.0 and found["metrics"]["fail_rate"]["value"] == 0.0
    assert "abandon_rate" not in found["metrics"]
    assert found["users"]["left_by_plan"] == 2 and found["users"]["events_until_they_left"] == 5.0
    assert found["counts"]["cancelled"] == 2 == found["counts"]["left"]
    assert found["metrics"]["failed_output_tok_s"]["value"] == 0


def test_who_gives_up_is_neither_ok_nor_failed() -> None:
    """3 of 10 give up, one fails: the three rates make 1."""
    run = run_of([20.0] * 6 + [0.0] * 4)
    run = ended(run, [6, 7, 8], layout.CLIENT_ABANDONED, layout.CLIENT_ABANDONS)
    run.rows["client"] = layout.CLIENT_ABANDONS
    found = measure(run)
    rates = [found["metrics"][name]["value"] for name in ("success_rate", "fail_rate", "abandon_rate")]
    assert rates == pytest.approx([0.6, 0.1, 0.3]) and found["failed"] == 1
    assert [(group["status"], group["count"]) for group in found["errors"]] == [("timeout", 1)]


def test_slow_readers_are_in_no_latency() -> None:
    run = run_of([20.0] * 5)
    run.rows["client"][[0, 1]] = layout.CLIENT_SLOW
    found = measure(run)
    assert found["metrics"]["ttft"]["n"] == found["metrics"]["e2e"]["n"] == 3 and found["completed"] == 5
    assert found["users"]["slow_readers"] == 2


def test_users_who_wait_are_not_mentioned() -> None:
    assert measure(run_of([20.0] * 3))["users"] is None


def test_classes_add_up() -> None:
    """Counts and rates of the classes are those of the run; each latency is its own."""
    manifest = {"plan": {"classes": ["chat", "bulk"]}}
    found = measure(run_of([10.0, 30.0, 10.0, 30.0, 10.0, 0.0], classes=[0, 1, 0, 1, 0, 1], manifest=manifest))
    chat, bulk = found["classes"]["chat"], found["classes"]["bulk"]
    assert (chat["ok"], bulk["ok"], bulk["failed"]) == (3, 2, 1)
    assert chat["ttft"]["p50"] == pytest.approx(10.0) and bulk["ttft"]["p50"] == pytest.approx(30.0)
    assert bulk["success_rate"] == pytest.approx(2 / 3)
    for name in ("req_s", "output_tok_s"):
        assert chat[name] + bulk[name] == pytest.approx(found["metrics"][name]["value"])
    assert measure(run_of([10.0] * 3))["classes"] is None


def test_conversations_by_turn() -> None:
    """Two conversations of three turns, one of them broken off by a failure in its second."""
    manifest = {"plan": {"description": {"conversations": {"conversations": 2, "requests": 6}}}}
    run = run_of([10.0, 20.0, 30.0, 10.0, 0.0], manifest=manifest)
    run.rows["session"], run.rows["turn"] = [0, 0, 0, 1, 1], [0, 1, 2, 0, 1]
    run.rows["cached_tokens"] = [0, 50, 80, 0, -1]
    found = measure(run)["conversations"]
    assert (found["begun"], found["turns_sent"], found["turns_planned"], found["ended_by_failure"]) == (2, 5, 6, 1)
    assert [turn["requests"] for turn in found["turns"]] == [2, 1, 1]
    assert [turn["cached_share"] for turn in found["turns"]] == [0.0, 0.5, 0.8]
    assert np.isclose(found["turns"][2]["ttft"]["p50"], 30.0)


def test_prompt_tokens_of_turns_need_no_word_of_a_cache() -> None:
    """A server that counts prompts and says nothing of what it had cached: the mean is there, the share is not."""
    manifest = {"plan": {"description": {"conversations": {"conversations": 2, "requests": 4}}}}
    run = run_of([50.0] * 4, manifest=manifest, session=[0, 0, 1, 1], turn=[0, 1, 0, 1], cached_tokens=[-1, -1, -1, 40])
    run.rows["prompt_tokens"] = [10, 30, 20, 50]
    turns = measure(run)["conversations"]["turns"]
    assert [turn["prompt_tokens_mean"] for turn in turns] == [15.0, 40.0]
    assert [turn["cached_share"] for turn in turns] == [None, 0.8]
