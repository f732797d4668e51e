"""Faults of the simulated engine behind Ollama's API: each has its class, none is counted as a success."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ext.reactor_drive import HEAD, Outcome, drive
from test_fault_catalogue import earlier

from fastllmload._ext.record import counters as k
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

TOKENS = 10
REQUESTS = 2
OPTIONS = b'"options":{"num_predict":%d}}' % TOKENS
RESOURCES = {
    "/api/chat": (2, b'{"model":"simulated","messages":[{"role":"user","content":"x"}],' + OPTIONS),
    "/api/generate": (3, b'{"model":"simulated","prompt":"x",' + OPTIONS),
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=3.0, phase="spread")) as server:
        yield server.port


def faulty(directory: Path, port: int, fault: str, resource: str = "/api/chat", timeout_s: float = 10.0) -> Outcome:
    dialect, body = RESOURCES[resource]
    head = HEAD.replace(b"/v1/chat/completions", resource.encode())
    assert resource.encode() in head
    return drive(
        directory,
        ("127.0.0.1", port),
        gaps_ms=[20.0] * REQUESTS,
        body=body,
        head=head + (b"X-Fault: %s\r\n" % fault.encode() if fault else b""),
        dialect=dialect,
        timeout_s=timeout_s,
    )


@pytest.mark.parametrize("resource", sorted(RESOURCES))
@pytest.mark.parametrize(
    "fault",
    ["", "split", "coalesce:4", "slow_head:30", "stall:30", "crlf", "cr", "comments", "no_usage",
     "until_close", "content_length", "huge_event:200000"],
)  # fmt: skip
def test_odd_but_right_streams_are_successes(tmp_path: Path, port: int, fault: str, resource: str) -> None:
    """Whatever the bytes are cut into, all tokens are there, and the server's durations with them."""
    outcome = faulty(tmp_path, port, fault, resource)
    assert outcome.statuses() == {("ok", "none"): REQUESTS}
    rows = outcome.rows
    assert set(rows["content_events"]) == {TOKENS + fault.startswith("huge_event")}
    assert set(rows["completion_tokens"]) == ({-1} if fault == "no_usage" else {TOKENS})
    assert (rows["server_prompt_eval_ns"] > 0).all()
    assert (rows["server_prompt_eval_ns"] + rows["server_eval_ns"] <= rows["server_total_ns"]).all()
    assert set(rows["finish"]) == {2}


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
        ("status:503", ("http_error", "http_status")),
        ("abort", ("stream_error", "finish_reason")),
        ("empty", ("empty", "none")),
        ("no_body", ("truncated", "no_done")),
        ("html", ("protocol_error", "unexpected_content_type")),
        ("gzip", ("protocol_error", "encoded_body")),
        ("huge_line:4000000", ("protocol_error", "event_too_large")),
        ("huge_event:3000000", ("protocol_error", "event_too_large")),
        ("never", ("timeout", "deadline")),
    ],
)
def test_each_failure_has_its_class(tmp_path: Path, port: int, fault: str, expected: tuple[str, str]) -> None:
    outcome = faulty(tmp_path, port, fault, timeout_s=0.5 if fault == "never" else 10.0)
    assert outcome.statuses() == {expected: REQUESTS}
    assert outcome.words[k.W_OK] == 0 and outcome.words[k.W_FAILED] == REQUESTS
    if fault in ("reset", "close", "no_done", "error_event"):
        assert (outcome.rows["content_events"] > 0).all()
        assert (outcome.rows["server_total_ns"] == 0).all()


@pytest.mark.parametrize("resource", sorted(RESOURCES))
def test_thinking_is_not_the_first_token(tmp_path: Path, port: int, resource: str) -> None:
    outcome = faulty(tmp_path, port, "reasoning:4", resource)
    rows = outcome.rows
    assert set(rows["reasoning_events"]) == {4} and set(rows["content_events"]) == {TOKENS - 4}
    assert earlier(outcome).all()
