"""What the simulated engine notes of sessions, and the tokens that it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sim_client import Client, request

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.truth import load
from fastllmload.simulator.visits import Visits

HEAD = b"POST / HTTP/1.1\r\nX-Session-ID:  a b \r\nx-token:%b\r\nAuthorization: Bearer secret\r\n\r\n"
BODY = json.dumps({"user": 7, "metadata": {"id": "é"}, "messages": []}).encode()


def test_notes_have_what_was_named_alone() -> None:
    """No other header, such as the key; a field is the value at its path, and is left out where there is none."""
    visits = Visits(("X-Session-Id", "body:user", "body:metadata.id", "body:user.id", "body:none"), None)
    assert visits(HEAD % b"t0-1", BODY) == ("x-session-id: a b\nbody:user: 7\nbody:metadata.id: é".encode(), b"")
    assert visits(b"", b"no JSON") == (b"", b"")


def test_backends_are_chosen_by_the_first_key_or_in_turn() -> None:
    """Equal keys go to one; of a field of the body too. The note has the name, and no header that was not asked for."""
    visits = Visits((), None, ("X-Backend", [f"b{number}" for number in range(64)]), ("X-First", "body:user", "X-Last"))
    line = b"POST / HTTP/1.1\r\n%b\r\n"

    def chosen(fields: bytes, body: bytes = b"{}") -> bytes:
        note, said = visits(line % fields, body)
        assert said is not None and said == b"x-backend: " + note.removeprefix(b"backend: ") + b"\r\n"
        return note.removeprefix(b"backend: ")

    assert len({chosen(b"X-First: a\r\nX-Last: %d\r\n" % number) for number in range(9)}) == 1
    assert len({chosen(b"X-Last: %d\r\n" % number, BODY) for number in range(9)}) == 1
    assert chosen(b"X-First: 7\r\n") == chosen(b"", BODY) == chosen(b"x-last: 7\r\n"), "the same hash of 7"
    assert len({chosen(b"X-First: %d\r\n" % number) for number in range(99)}) > 30
    assert len({chosen(b"") for _ in range(64)}) == 64, "in turn"


def test_only_the_latest_token_of_a_session_is_taken() -> None:
    """Each answer has a new one; a request without begins a session."""
    visits = Visits((), "X-Token")
    assert visits(HEAD % b"t0-1", BODY)[1] is None
    for token, answer in [
        (None, b"t0-1"), (None, b"t1-1"), (b"t0-1", b"t0-2"), (b"t0-1", None), (b"t0-2", b"t0-3"), (b"t1-2", None),
        (b"t1-1", b"t1-2"), (b"t2-1", None), (b"", None), (b"x", None), (b"t-1", None), (b"t0-", None),
    ]:  # fmt: skip
        head = b"POST / HTTP/1.1\r\n\r\n" if token is None else HEAD % token
        assert visits(head, BODY)[1] == (None if answer is None else b"x-token: " + answer + b"\r\n"), token


@pytest.mark.parametrize("stream", [True, False])
def test_tokens_and_notes_on_the_wire(simulator: Callable[..., SimulatorProcess], tmp_path: Path, stream: bool) -> None:
    path = str(tmp_path / "truth")
    process = simulator(ttft_ms=0.0, itl_ms=0.0, truth=path, session_token="X-Token", logged=("X-Who",))
    with Client(process.port) as client:
        first = client.ask(request(stream=stream, max_tokens=2, headers=("X-Who: me",)))
        again = client.ask(request(stream=stream, max_tokens=2, headers=("x-token: t0-1",)))
        late = client.ask(request(stream=stream, max_tokens=2, headers=("x-token: t0-1",)))
    process.stop()
    assert [each.status for each in (first, again, late)] == [200, 200, 409]
    assert [each.headers.get("x-token") for each in (first, again, late)] == ["t0-1", "t0-2", None]
    assert load(path).notes == {
        0: "x-who: me\nanswered: t0-1",
        1: "x-token: t0-1\nanswered: t0-2",
        2: "x-token: t0-1\nanswered: ",
    }
