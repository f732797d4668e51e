"""Session identity on the wire: what the simulated engine got is what the record says of each request."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from truth.truth_bench import Measured, measure

from fastllmload.records.layout import STATUS_NAMES

TRANSPORTS = pytest.mark.parametrize(
    "transport", [[], ["--http-version", "2"], ["--insecure"], ["--insecure", "--http-version", "2"]],
    ids=["http1", "http2", "http1-tls", "http2-tls"],
)  # fmt: skip
LOAD = ["--isl", "16", "--osl", "4", "--seed", "7", "--no-telemetry"]
TURNS = ["--rate", "40", "-n", "20", "--turns", "uniform:1,4", "--warmup", "6"]


def sent(directory: Path, options: list[str], logged: tuple[str, ...], **simulator: Any) -> Measured:
    engine: dict[str, Any] = {"ttft_ms": 1.0, "itl_ms": 1.0, "phase": "spread", "logged": logged}
    measured = measure(directory, [*LOAD, *options], **engine, tls="--insecure" in options, **simulator)
    assert measured.exit_code == 0, measured.said
    assert {STATUS_NAMES[each] for each in measured.run.rows["status"]} == {"ok"}
    return measured


def noted(measured: Measured) -> list[tuple[np.void, dict[str, str]]]:
    """(row, what the engine noted) of every request of both phases, in the order in which they came."""
    numbers = {"warmup": 0, "measure": 1}
    of_phase = {phase["number"]: numbers[phase["name"]] for phase in measured.run.manifest["phases"]}
    theirs = {
        (of_phase[int(one["phase"])], int(one["key"])): int(one["serial"])
        for one in measured.truth.requests
        if int(one["phase"]) in of_phase
    }
    rows = {(int(row["phase"]), int(row["request"])): row for row in measured.run.rows}
    assert rows.keys() == theirs.keys()
    found = [
        (rows[key], dict(line.split(": ", 1) for line in measured.truth.notes[serial].split("\n") if line))
        for key, serial in sorted(theirs.items(), key=lambda item: item[1])
    ]
    return found


def names(measured: Measured, row: np.void) -> tuple[str, str]:
    """Prefix of the ids of a row's phase, and the id of its session."""
    of_phase = {{"warmup": 0, "measure": 1}[one["name"]]: one["number"] for one in measured.run.manifest["phases"]}
    prefix = f"{measured.document['run_id']}-{of_phase[int(row['phase'])]}-"
    return prefix, f"{prefix}s{row['session']}"


@TRANSPORTS
def test_headers_and_fields_are_the_records(tmp_path: Path, transport: list[str]) -> None:
    """Session, turn, end and request of every request, in headers and body; ids of warm-up and measured requests differ."""
    options = [
        "--session-header", "X-Session-ID: {session}", "--session-header", "X-Turn: {turn} of {class}, {root}",
        "--session-header", "X-Final: {final}", "--session-header", "X-Parent: {parent}",
        "--session-header", "X-Request-Id: {request}", "--session-header", "X-User: {{{user}}}",
        "--session-body", "prompt_cache_key: {session}", "--session-body", "metadata.run: {request}",
        "--session-body", "metadata.who.turn: {turn}",
    ]  # fmt: skip
    logged = (
        "X-Session-ID", "X-Turn", "X-Final", "X-Parent", "X-Request-Id", "X-User",
        "body:prompt_cache_key", "body:metadata.run", "body:metadata.who.turn",
    )  # fmt: skip
    measured = sent(tmp_path / "run", [*TURNS, *transport, *options], logged)
    sessions: dict[str, int] = {}
    for row, said in noted(measured):
        prefix, session = names(measured, row)
        last = said.pop("x-final", None)
        assert said == {
            "x-session-id": session,
            "x-turn": f"{row['turn']} of default, {session}",
            "x-request-id": f"{prefix}{row['request']}",
            "x-user": f"{{{prefix}u{row['session']}}}",
            "body:prompt_cache_key": session,
            "body:metadata.run": f"{prefix}{row['request']}",
            "body:metadata.who.turn": str(row["turn"]),
        }
        assert last in (None, "true")
        assert session not in sessions or sessions[session] == row["turn"] - 1, "after its last turn, or out of order"
        sessions[session] = -9 if last else int(row["turn"])
    assert set(sessions.values()) == {-9}, "each session said once that it was its last request"
    phases = {each.split("-")[1] for each in sessions}
    assert len(phases) == 2 and len(sessions) > 20


@TRANSPORTS
@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["stream", "whole"])
def test_tokens_go_back_in_their_session(tmp_path: Path, transport: list[str], stream: list[str]) -> None:
    """The first request of a session has none, each later one the latest that the server said there."""
    options = ["--affinity", "llm-d", "--session-header", "X-Session-ID: {session}", *stream]
    measured = sent(
        tmp_path / "run", [*TURNS, *transport, *options], ("X-Session-ID",), session_token="X-Session-Token"
    )
    latest: dict[str, str] = {}
    turns = 0
    for row, said in noted(measured):
        _, session = names(measured, row)
        assert said["x-session-id"] == session
        assert said.get("x-session-token") == latest.get(session)
        assert (session in latest) == (row["turn"] > 0)
        latest[session] = said["answered"]
        turns += session in latest and row["turn"] > 0
    assert turns > 10 and len(set(latest.values())) == len(latest)


def test_a_token_under_another_name(tmp_path: Path) -> None:
    options = [*TURNS, "--session-token", "x-session-token=X-Back"]
    measured = sent(tmp_path / "run", options, ("X-Back",), session_token="x-session-token")
    latest: dict[str, str] = {}
    for row, said in noted(measured):
        _, session = names(measured, row)
        assert said.get("x-back") == latest.get(session) and "x-session-token" not in said
        latest[session] = said["answered"]


@TRANSPORTS
@pytest.mark.parametrize(("stream", "path"), [([], "response.id"), (["--no-stream"], "id")], ids=["stream", "whole"])
def test_ids_of_answers_go_back_in_their_session(
    tmp_path: Path, transport: list[str], stream: list[str], path: str
) -> None:
    """In a header and a body: the id of the answer before, which a stored history names, too."""
    stored = ["--endpoint-type", "openai-responses", "--history", "stored", *stream]
    for place, field in (("X-Back", "x-back"), ("body:metadata.back", "body:metadata.back")):
        options = [*stored, "--session-token", f"body:{path}={place}"]
        measured = sent(
            tmp_path / field.replace(":", "-"), [*TURNS, *transport, *options], (place, "body:previous_response_id")
        )
        turns = 0
        for row, said in noted(measured):
            assert said.get(field) == said.get("body:previous_response_id")
            assert (field in said) == (row["turn"] > 0)
            turns += row["turn"] > 0
        assert turns > 10


def test_sessions_are_ended_at_the_server(tmp_path: Path) -> None:
    """One request for each session that has ended, in both phases, also where turns did not come; none is measured."""
    with answering() as (port, asked):
        url = f"POST http://127.0.0.1:{port}/finish_session?session_id={{session}}&last={{request}}"
        options = [*TURNS, "--session-header", "X-S: {session}", "--session-end", url, "-d", "1"]
        measured = sent(tmp_path / "run", options, ("X-S",))
    said = [each["x-s"] for _, each in noted(measured)]
    ended = [parse_qs(path.partition("?")[2])["session_id"][0] for _, path in asked]
    assert sorted(ended) == sorted(set(said)) and {method for method, _ in asked} == {"POST"}
    assert measured.document["session_ends"] == {"sent": len(ended), "failed": 0, "failure": None}
    assert len(measured.run.rows) == len(said)


@pytest.mark.parametrize("tls", [[], ["--insecure"]], ids=["clear", "tls"])
def test_sessions_that_are_not_ended_are_counted(tmp_path: Path, tls: list[str]) -> None:
    """At the target itself, which is the simulated engine and has no such page."""
    options = ["--rate", "40", "-n", "10", "--warmup", "0", "--affinity", "vllm-sticky", *tls]
    measured = sent(tmp_path / "run", options, ("X-Session-ID",))
    assert measured.document["session_ends"] == {"sent": 10, "failed": 10, "failure": "HTTP 404"}
    assert "[session-ends-failed]" in measured.said and "/finish_session?session_id={session}" in measured.said


@contextlib.contextmanager
def answering() -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """The port of a server that answers every request, and (method, path) of these."""
    asked: list[tuple[str, str]] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.append((self.command, self.path))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """What matters is kept."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port, asked
        server.shutdown()


# What vLLM's router hashes, the first that a request has: its docs/load_balancing. Headers, then fields of the body.
HASHED = (
    "x-session-id", "x-user-id", "x-tenant-id", "x-request-id", "x-correlation-id", "x-trace-id",
    "body:session_params.session_id", "body:user", "body:session_id", "body:user_id",
)  # fmt: skip
BACKENDS = 8


def backend(said: dict[str, str], body: str) -> int:
    """The server that consistent hashing chooses of BACKENDS."""
    key = next((said[name] for name in HASHED if name in said), body)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) % BACKENDS


@pytest.mark.parametrize(
    ("options", "together"),
    [
        (["--affinity", "vllm"], True),
        (["--affinity", "vllm", "--session-header", "X-Request-ID: {request}"], True),  # X-Session-ID ranks above it
        (["--session-body", "user: {session}"], True),  # our own id of the request is none of these
        (["--session-body", "user: {session}", "--session-header", "X-Request-ID: {request}"], False),
        ([], False),  # by the body, which grows
    ],
)
def test_turns_stay_together_at_a_router_that_hashes(tmp_path: Path, options: list[str], together: bool) -> None:
    """Sessions spread over the servers, and each turn goes where the turn before went, if the session is named first."""
    measured = sent(
        tmp_path / "run",
        ["--rate", "40", "-n", "40", "--turns", "uniform:1,4", "--warmup", "0", *options],
        (*HASHED, "body:messages"),
    )
    chosen: dict[int, set[int]] = {}
    for row, said in noted(measured):
        chosen.setdefault(int(row["session"]), set()).add(backend(said, said["body:messages"]))
    assert (max(map(len, chosen.values())) == 1) == together
    assert len(set.union(*chosen.values())) > BACKENDS // 2


def test_requests_alone_are_sessions_of_their_own(tmp_path: Path) -> None:
    """Also in later passes over a plan, and users of a closed loop are its slots."""
    given = ["--session-header", "X-S: {session}", "--session-header", "X-U: {user}"]
    options = ["-c", "3", "-d", "1", "--warmup", "0", *given]
    measured = sent(tmp_path / "run", options, ("X-S", "X-U"))
    said = [each for _, each in noted(measured)]
    assert len({each["x-s"] for each in said}) == len(said) > 50
    prefix = f"{measured.document['run_id']}-{measured.run.manifest['phases'][-1]['number']}-"
    assert {each["x-u"] for each in said} == {f"{prefix}u{slot}" for slot in range(3)}
