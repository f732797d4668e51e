"""Requests of sessions with several agents on the wire of a reactor: each has its own id and token, also in later passes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.reactor_drive import ANSWER, RESPONSE, drive, read_request, scripted

from fastllmload._ext.plan.talk import Talks
from fastllmload._ext.send.identity import Identity
from fastllmload.endpoint.identity import compiled, resolved
from fastllmload.plan.plan import LAST_TURN, TURN
from fastllmload.settings import SessionIdentity

BODIES = [b'{"n":%d}' % number for number in range(6)]


def plan() -> dict[str, Any]:
    """Session 0 has agents 0 and 1, session 1 has one; each has two turns and is released by itself."""
    turns = np.zeros(6, TURN)
    turns["session"] = [0, 0, 0, 0, 1, 1]
    turns["turn"] = [0, 1] * 3
    turns["flags"] = [0, LAST_TURN] * 3
    offsets = np.cumsum([0, *map(len, BODIES)]).astype(np.uint64)
    bodies = np.frombuffer(b"".join(BODIES), np.uint8)
    return {
        "body_offset": offsets, "bodies": bodies, "numbers": np.array([0, 2, 4], np.uint32),
        "talks": Talks(turns, offsets, bodies, [(b"", b"", b"")], 2),
        "chain": np.array([0, 0, 1, 1, 0, 0], np.int32), "parent": np.array([-1, -1, 0, 0, -1, -1], np.int32),
        "place": np.array([0, -2] * 3, np.int32),
    }  # fmt: skip


def asked(request: bytes) -> tuple[dict[str, str], Any]:
    head, _, body = request.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:])
    assert int(fields["Content-Length"]) == len(body)
    return fields, json.loads(body)


@pytest.mark.parametrize("over_asyncio", [False, True])
def test_agents_have_ids_and_tokens_of_their_own(tmp_path: Path, over_asyncio: bool) -> None:
    """Two passes over the plan: ids of the second are new, and no token of the first is known in it."""
    seen: list[tuple[dict[str, str], Any]] = []

    def answer(connection: socket.socket, _: int) -> None:
        while request := read_request(connection):
            seen.append(asked(request))
            name = seen[-1][0]["X-S"] + ";" + str(len(seen))
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-TOKEN:  %b \r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % (name.encode(), len(ANSWER)) + ANSWER)

    given = SessionIdentity(
        headers=(("X-S", "{session}"), ("X-P", "{parent}"), ("X-F", "{final}"), ("X-R", "{request}")),
        body=(("key", "{session}/{turn}"), ("of.user", "{user}")), token="X-Token=X-Back",
    )  # fmt: skip
    reading, writing = os.pipe()
    identity = Identity(**compiled(resolved(given), ()), ends_fd=writing)
    with scripted(answer) as address:
        outcome = drive(
            tmp_path, address, gaps_ms=[], slots=1, limit=6, conversations=plan(), identity=identity,
            over_asyncio=over_asyncio, held=True,
        )  # fmt: skip
    assert outcome.statuses() == {("ok", "none"): 12}
    latest: dict[str, str] = {}
    for at, (fields, body) in enumerate(seen):
        planned, again = at % 6, at // 6
        name = f"test-0-s{again * 2 + planned // 4}" + "-1" * (planned in (2, 3))
        assert body == {"key": f"{name}/{planned % 2}", "of": {"user": "test-0-u0"}, "n": planned}
        assert (fields["X-S"], fields["X-R"]) == (name, f"test-0-{at}")
        assert fields.get("X-P") == (name.removesuffix("-1") if planned in (2, 3) else None)
        assert fields.get("X-F") == ("true" if planned % 2 else None)
        assert fields.get("X-Back") == latest.get(name), "each agent sends what it got itself"
        assert (name in latest) == bool(planned % 2)
        latest[name] = f"{name};{at + 1}"
    os.close(writing)
    with open(reading) as stream:
        assert len(stream.readlines()) == 6


@pytest.mark.parametrize(
    ("given", "value", "header", "field"),
    [
        ("body:a.id=X-Back", '"k-1"', "k-1", None),
        ("body:a.id=X-Back", "12.50", "12.50", None),
        ("body:a.id=X-Back", '"\\u00e9\\\\"', "\u00e9\\".encode().decode("latin-1"), None),
        ("body:a.id=X-Back", '"a\\r\\nX-Evil: 1"', None, None),
        ("body:a.id=X-Back", '" a"', None, None),
        ("body:a.id=X-Back", '"\\ud800"', None, None),
        ("body:a.id=body:back.id", '"a\\r\\n\\u00e9"', None, "a\r\n\u00e9"),
        ("body:a.id=body:back.id", "12.50", None, 12.5),
        ("x-token=body:back.id", 'a"\u00e9', None, 'a"\u00e9'),
    ],
)
def test_tokens_between_headers_and_bodies(
    tmp_path: Path, given: str, value: str, header: str | None, field: object
) -> None:
    """The first request of a session has none; a value that no header can have is none."""
    seen: list[tuple[dict[str, str], Any]] = []

    def answer(connection: socket.socket, _: int) -> None:
        while request := read_request(connection):
            seen.append(asked(request))
            from_body = given.startswith("body:")
            body = b'{"a":{"id":%b},' % value.encode() + ANSWER[1:] if from_body else ANSWER
            token = b"" if from_body else b"X-Token: %b\r\n" % value.encode("latin-1")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
            connection.sendall(head % (token, len(body)) + body)

    identity = Identity(**compiled(SessionIdentity(token=given), ()))
    with scripted(answer) as address:
        outcome = drive(
            tmp_path, address, gaps_ms=[], slots=1, limit=6, conversations=plan(), identity=identity, held=True,
            token_path=[b"a", b"id"] if given.startswith("body:") else None,
        )  # fmt: skip
    assert outcome.statuses() == {("ok", "none"): 12}
    for at, (fields, body) in enumerate(seen):
        expected = {"n": at % 6}
        if at % 2 and field is not None:
            expected = {"back": {"id": field}, **expected}
        assert body == expected
        assert fields.get("X-Back") == (header if at % 2 else None)


def test_nothing_is_said_without_templates(tmp_path: Path) -> None:
    """The bytes of a request are those that it has without sessions."""
    seen: list[bytes] = []

    def answer(connection: socket.socket, _: int) -> None:
        while request := read_request(connection):
            seen.append(request)
            connection.sendall(RESPONSE)

    for folder, identity in (("a", None), ("b", Identity(**compiled(SessionIdentity(), ())))):
        (tmp_path / folder).mkdir()
        with scripted(answer) as address:
            drive(tmp_path / folder, address, gaps_ms=[1.0] * 5, identity=identity)
    assert sorted(seen[:5]) == sorted(seen[5:])
