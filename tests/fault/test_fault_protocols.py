"""Faults of the simulated engine behind other protocols than chat: each has its class, none is counted as a success."""

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
RESOURCES = {  # path and body
    "ollama-chat": (b"/api/chat", b'{"model":"simulated","messages":[{"role":"user","content":"x"}],' + OPTIONS),
    "ollama-generate": (b"/api/generate", b'{"model":"simulated","prompt":"x",' + OPTIONS),
    "anthropic-messages": (
        b"/v1/messages",
        b'{"model":"simulated","messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":%d}' % TOKENS,
    ),
    "openai-responses": (
        b"/v1/responses",
        b'{"model":"simulated","input":"x","stream":true,"ignore_eos":true,"max_output_tokens":%d}' % TOKENS,
    ),
}
EACH = pytest.mark.parametrize("endpoint", sorted(RESOURCES))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=3.0, phase="spread")) as server:
        yield server.port


def faulty(directory: Path, port: int, fault: str, endpoint: str, timeout_s: float = 10.0) -> Outcome:
    path, body = RESOURCES[endpoint]
    head = HEAD.replace(b"/v1/chat/completions", path)
    assert path in head
    return drive(
        directory,
        ("127.0.0.1", port),
        gaps_ms=[20.0] * REQUESTS,
        body=body,
        head=head + (b"X-Fault: %s\r\n" % fault.encode() if fault else b""),
        endpoint=endpoint,
        timeout_s=timeout_s,
    )


@EACH
@pytest.mark.parametrize(
    "fault",
    ["", "split", "coalesce:4", "slow_head:30", "stall:30", "crlf", "cr", "comments", "no_usage",
     "until_close", "content_length", "huge_event:200000"],
)  # fmt: skip
def test_odd_but_right_streams_are_successes(tmp_path: Path, port: int, fault: str, endpoint: str) -> None:
    """Whatever the bytes are cut into, all tokens are there, and the server's durations with them."""
    outcome = faulty(tmp_path, port, fault, endpoint)
    assert outcome.statuses() == {("ok", "none"): REQUESTS}
    rows = outcome.rows
    assert set(rows["content_events"]) == {TOKENS + fault.startswith("huge_event")}
    without = fault == "no_usage" and endpoint.startswith("ollama")  # others always say it
    assert set(rows["completion_tokens"]) == ({-1} if without else {TOKENS})
    if endpoint.startswith("ollama"):
        assert (rows["server_prompt_eval_ns"] > 0).all()
        assert (rows["server_prompt_eval_ns"] + rows["server_eval_ns"] <= rows["server_total_ns"]).all()
    assert set(rows["finish"]) == {2}


@EACH
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
def test_each_failure_has_its_class(
    tmp_path: Path, port: int, fault: str, expected: tuple[str, str], endpoint: str
) -> None:
    outcome = faulty(tmp_path, port, fault, endpoint, timeout_s=0.5 if fault == "never" else 10.0)
    assert outcome.statuses() == {expected: REQUESTS}
    assert outcome.words[k.W_OK] == 0 and outcome.words[k.W_FAILED] == REQUESTS
    if fault in ("reset", "close", "no_done", "error_event"):
        assert (outcome.rows["content_events"] > 0).all()
        assert (outcome.rows["server_total_ns"] == 0).all()


@EACH
def test_thinking_is_not_the_first_token(tmp_path: Path, port: int, endpoint: str) -> None:
    outcome = faulty(tmp_path, port, "reasoning:4", endpoint)
    rows = outcome.rows
    assert set(rows["reasoning_events"]) == {4} and set(rows["content_events"]) == {TOKENS - 4}
    assert earlier(outcome).all()
