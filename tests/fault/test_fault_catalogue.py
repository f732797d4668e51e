"""Every fault of the simulated engine against the real reactor: what is recorded is what was done, and memory stays
bounded.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ext.reactor_drive import HEAD, Outcome, drive

from fastllmload._ext.record import counters as k
from fastllmload.records import layout
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

OK = ("ok", "none")
TOKENS = 10
REQUESTS = 4
BODY = (
    b'{"model":"simulated","messages":[{"role":"user","content":"x"}],"stream":true,"ignore_eos":true,'
    b'"stream_options":{"include_usage":true},"max_tokens":%d}' % TOKENS
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=3.0, phase="spread")) as server:
        yield server.port


def faulty(directory: Path, port: int, fault: str, requests: int = REQUESTS, **options: object) -> Outcome:
    head = HEAD + (b"X-Fault: %s\r\n" % fault.encode() if fault else b"")
    return drive(
        directory, ("127.0.0.1", port), gaps_ms=[20.0] * requests, body=BODY, head=head, preconnect=2,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    ["", "split", "coalesce:4", "slow_head:30", "stall:30", "drip:1", "crlf", "cr", "comments", "idle_close:5", "no_usage",
     "until_close", "content_length", "huge_event:200000"],
)  # fmt: skip
def test_odd_but_right_streams_are_successes(tmp_path: Path, port: int, fault: str) -> None:
    """Whatever the bytes are cut into, all tokens are there, in time order."""
    requests = 1 if fault.startswith("drip") else REQUESTS
    outcome = faulty(tmp_path, port, fault, requests, timeout_s=20.0)
    assert outcome.statuses() == {OK: requests}
    rows = outcome.rows
    assert set(rows["content_events"]) == {TOKENS + fault.startswith("huge_event")}
    assert set(rows["completion_tokens"]) == ({-1} if fault == "no_usage" else {TOKENS})
    assert (rows["t_first"] <= rows["t_last"]).all()
    if fault == "comments":
        assert (rows["comments"] > 0).all()
    if fault.startswith("coalesce"):
        together = [
            outcome.tokens["stamp"][outcome.tokens["row"] == row] & layout.STAMP_SAME_READ for row in range(requests)
        ]
        assert all((one > 0).sum() >= TOKENS // 2 for one in together)
    if fault.startswith("stall"):
        gaps = [np.diff(outcome.tokens["t_ns"][outcome.tokens["row"] == row]).max() for row in range(requests)]
        assert max(gaps) > 25_000_000


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("reset", ("connection_error", "reset")),
        ("close", ("truncated", "closed_in_body")),
        ("error_event", ("stream_error", "event")),
        ("bad_json", ("protocol_error", "bad_event")),
        ("deep_json", ("protocol_error", "bad_event")),
        ("no_done", ("truncated", "no_done")),
        ("status:429", ("rate_limited", "http_status")),
        ("status:500", ("http_error", "http_status")),
        ("status:503", ("http_error", "http_status")),
        ("abort", ("stream_error", "finish_reason")),
        ("abort:0", ("stream_error", "finish_reason")),
        ("empty", ("empty", "none")),
        ("no_body", ("truncated", "no_done")),
        ("html", ("protocol_error", "unexpected_content_type")),
        ("gzip", ("protocol_error", "encoded_body")),
        ("endless_head:10000000", ("protocol_error", "head_too_large")),
        ("huge_line:40000000", ("protocol_error", "event_too_large")),
        ("huge_event:3000000", ("protocol_error", "event_too_large")),
        ("never", ("timeout", "deadline")),
    ],
)
def test_each_failure_has_its_class_and_costs_bounded_memory(
    tmp_path: Path, port: int, fault: str, expected: tuple[str, str]
) -> None:
    """Never counted as a success; what arrived before is kept; memory does not follow what the peer sends."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = faulty(tmp_path, port, fault, timeout_s=1.0 if fault == "never" else 10.0)
    assert outcome.statuses() == {expected: REQUESTS}
    assert outcome.words[k.W_OK] == 0 and outcome.words[k.W_FAILED] == outcome.words[k.W_FAILED_AT0] == REQUESTS
    assert (outcome.rows["t_end"] > 0).all()
    if fault in ("reset", "close", "abort"):
        assert (outcome.rows["content_events"] > 0).all()
    if fault == "status:429":
        assert (outcome.rows["retry_after_ms"] > 0).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_connection_that_dies_unanswered_tells_fresh_from_reused(tmp_path: Path, port: int) -> None:
    outcome = faulty(tmp_path, port, "close_before_response")
    assert outcome.statuses() == {("connection_error", "closed_before_response"): REQUESTS}


def earlier(outcome: Outcome) -> np.ndarray:
    """Where t_any lies before t_first, or a client that was late read both at once and says so."""
    rows = outcome.rows
    shared = np.bincount(outcome.tokens["row"], (outcome.tokens["stamp"] & layout.STAMP_SAME_READ) > 0, len(rows)) > 0
    return (rows["t_any"] < rows["t_first"]) | (rows["t_any"] == rows["t_first"]) & shared


def test_leading_whitespace_and_reasoning_are_not_the_first_token(tmp_path: Path, port: int) -> None:
    """t_any comes earlier than t_first; the counts are kept apart."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    outcome = faulty(tmp_path / "a", port, "whitespace_first:3")
    rows = outcome.rows
    assert set(rows["leading_events"]) == {3} and set(rows["content_events"]) == {TOKENS - 3}
    assert earlier(outcome).all()
    outcome = faulty(tmp_path / "b", port, "reasoning:4")
    rows = outcome.rows
    assert (rows["reasoning_events"] > 0).all() and earlier(outcome).all()
    assert (rows["reasoning_events"] + rows["content_events"] == TOKENS).all()


def test_nothing_is_ever_sent_twice(tmp_path: Path) -> None:
    """The server counts as many requests as were dispatched, whatever went wrong."""
    truth = tmp_path / "truth.bin"
    options = SimulatorOptions(
        ttft_ms=3.0,
        itl_ms=1.0,
        truth=str(truth),
        faults=("reset:0.2", "close_before_response:0.2", "status:0.2", "close:0.2"),
    )
    with SimulatorProcess(options) as server:
        outcome = drive(tmp_path, ("127.0.0.1", server.port), gaps_ms=[5.0] * 100, body=BODY, preconnect=4)
    from fastllmload.simulator.truth import load

    seen = load(truth).requests["key"]
    assert len(outcome.rows) == 100 and sorted(seen) == list(range(100))
    assert len(set(outcome.rows["status"])) >= 4
    assert (outcome.rows["status"] != layout.IN_FLIGHT).all()
