"""Figures by the server that answered, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_metrics_run_blocks import run_of

from fastllmload.metrics.public import measure
from fastllmload.metrics.run.per_backend import MOST, at_random, by_session, caveat, moves_of
from fastllmload.metrics.run.sent_calls import SentCalls
from fastllmload.records import layout
from fastllmload.records.run import Run

ASKED: dict[str, Any] = {"config": {"target": {"backend_header": "x-backend"}}}


def answered(said: list[tuple[int, int]], names: dict[int, list[str]], ttft_ms: list[float]) -> Run:
    """*said*: worker and its number of each request's backend."""
    known = [{"worker": worker, "names": each} for worker, each in names.items()]
    run = run_of(ttft_ms, manifest={**ASKED, "backend_names": known}, http_status=200)
    run.rows["worker"], run.rows["backend"] = np.array(said).T
    return run


def test_names_of_workers_are_joined() -> None:
    """Number 1 of one worker is number 2 of the other; a request without an answer has no server."""
    said = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 2), (0, 0)]
    run = answered(said, {0: ["a", "b"], 1: ["b", "a"]}, [10.0, 20.0, 30.0, 10.0, 0.0, 20.0])
    run.rows["http_status"][5] = 0
    run.rows["cached_tokens"][[0, 3]] = [50, 0]
    found = measure(run)["backends"]
    assert [one["name"] for one in found["each"]] == ["a", "b"]
    a, b = found["each"]
    assert (a["sent"], a["ok"], a["failed"], a["share"]) == (3, 2, 1, 0.6) and (b["sent"], b["ok"]) == (2, 2)
    assert [(each["status"], each["count"]) for each in a["errors"]] == [("timeout", 1)] and b["errors"] == []
    assert a["ttft"]["p50"] == pytest.approx(10.0) and b["ttft"]["p50"] == pytest.approx(25.0)
    assert (a["input_tokens"], a["output_tokens"], a["cached_tokens"], a["cached_share"]) == (200, 10, 50, 0.25)
    assert (b["cached_tokens"], b["cached_share"]) == (None, None)
    assert (a["success_rate"], b["success_rate"], a["slo_attainment"]) == (pytest.approx(2 / 3), 1.0, None)
    of_all = measure(run)["metrics"]["req_s"]["value"]  # of five requests, one of which has no server
    assert (a["req_s"], b["req_s"]) == (pytest.approx(0.4 * of_all), pytest.approx(0.4 * of_all))
    assert (found["named"], found["unnamed"], found["servers"]) == (5, 0, 2)
    assert found["max_over_mean"] == pytest.approx(3 / 2.5) and found["moves"] is None and found["caveat"] is None


def test_objectives_and_gaps_are_of_the_server() -> None:
    """The first server meets the objective in one of two requests; the gaps of both are all of the run."""
    asked = {"config": {"target": {"backend_header": "x-backend"}, "output": {"goodput": [["ttft", 15.0]]}}}
    run = run_of(
        [10.0, 20.0, 12.0], manifest={**asked, "backend_names": [{"worker": 0, "names": ["a", "b"]}]}, http_status=200
    )
    run.rows["backend"] = [1, 1, 2]
    a, b = measure(run)["backends"]["each"]
    assert (a["slo_attainment"], b["slo_attainment"]) == (0.5, 1.0)
    pooled = measure(run)["metrics"]["share_single"]["pooled_as"]
    together = measure(run)["metrics"][pooled]
    assert a[pooled]["n"] + b[pooled]["n"] == together["n"] > 0
    assert a[pooled]["mean"] * a[pooled]["n"] + b[pooled]["mean"] * b[pooled]["n"] == pytest.approx(
        together["mean"] * together["n"]
    )


def test_answers_without_the_header_are_counted() -> None:
    found = measure(answered([(0, 0), (0, 1), (0, 0)], {0: ["a"]}, [10.0] * 3))["backends"]
    assert (found["named"], found["unnamed"]) == (1, 2)


def test_numbers_without_a_name_name_nothing() -> None:
    """Of a killed worker whose latest names were not written any more."""
    found = measure(answered([(0, 1), (0, 2), (1, 1)], {0: ["a"]}, [10.0] * 3))["backends"]
    assert [(one["name"], one["sent"]) for one in found["each"]] == [("a", 1)] and found["unnamed"] == 2


def test_names_beyond_the_room_are_together() -> None:
    found = measure(answered([(0, 1), (0, layout.BACKEND_OTHER), (1, layout.BACKEND_OTHER)], {0: ["a"]}, [10.0] * 3))[
        "backends"
    ]
    assert [(one["name"], one["sent"]) for one in found["each"]] == [(None, 2), ("a", 1)]
    assert found["caveat"].startswith("2 requests")


def test_a_run_that_did_not_ask_has_no_servers() -> None:
    run = run_of([10.0] * 3)
    run.rows["backend"] = 1
    assert measure(run)["backends"] is None


def calls_of(session: list[int], chain: list[int], sent: list[int], **fields: Any) -> SentCalls:
    rows = np.zeros(len(session), layout.REQUEST)
    rows["t_dispatch"], rows["cached_tokens"] = sent, -1
    for name, values in fields.items():
        rows[name] = values
    call = np.zeros(len(session), [("session", "i8"), ("chain", "i4")])
    call["session"], call["chain"] = session, chain
    first = np.append(np.flatnonzero(np.diff(session, prepend=-1)), len(session))
    zero = np.zeros(len(session), np.int64)
    return SentCalls(rows, np.arange(len(session)), call, first, np.diff(first), zero, zero > 0, zero)


def test_moves_of_agents_are_their_own() -> None:
    """A session of two agents on two servers, each of which stays; a session that moves there and back; one call alone."""
    calls = calls_of(
        [0, 0, 0, 0, 1, 1, 1, 2], [0, 1, 0, 1, 0, 0, 0, 0], [1, 2, 3, 4, 1, 2, 3, 1],
        prompt_tokens=100, cached_tokens=[0, 0, 80, 60, 0, 10, 20, 0],
    )  # fmt: skip
    found = moves_of(calls, np.array([1, 2, 1, 2, 1, 2, 1, 3]))
    assert (found.compared, found.stayed, found.moved, found.stayed_share) == (4, 2, 2, 0.5)
    assert (found.sessions, found.sessions_moved) == (3, 1)
    assert [(each.backends, each.sessions) for each in found.by_backends] == [(1, 1), (2, 2)]
    assert (found.cached_share_stayed, found.cached_share_moved) == (pytest.approx(0.7), pytest.approx(0.15))
    assert found.stayed_share_at_random == pytest.approx((4**2 + 3**2 + 1) / 64)


def test_turns_without_a_name_are_not_compared() -> None:
    """Neither they nor the turn after; the order is that of sending."""
    calls = calls_of([0] * 4, [0] * 4, [4, 3, 2, 1])
    found = moves_of(calls, np.array([1, 1, -1, 2]))
    assert (found.compared, found.stayed, found.moved, found.sessions_moved) == (1, 1, 0, 0)
    nothing = moves_of(calls, np.full(4, -1))
    assert (nothing.compared, nothing.stayed_share, nothing.sessions, nothing.by_backends) == (0, None, 0, ())


def test_balance_at_random() -> None:
    """With two requests and two servers the busiest has 2 or 1, each half of the time: 1.5 over a mean of 1."""
    assert at_random(2, 2) == pytest.approx(1.5, abs=0.06) and at_random(5, 1) == 1.0 and at_random(0, 0) is None
    assert by_session(np.array([1, 1]), 2) == pytest.approx(1.5, abs=0.06) == by_session(np.array([7, 7]), 2)
    assert by_session(np.array([9, 1]), 2) == pytest.approx(1.9, abs=0.06) and by_session(np.zeros(0), 2) is None


def test_a_header_with_a_value_of_its_own_for_each_answer_is_said() -> None:
    assert caveat(2 * MOST + 1, 2 * MOST + 1, 0) is not None and caveat(MOST, 2 * MOST + 1, 0) is None
    assert caveat(3, 3, 0) is None
