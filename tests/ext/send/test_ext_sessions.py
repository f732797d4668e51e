"""Sessions that are graphs of requests, over sockets: order, instants, bodies, and what ends early."""

from __future__ import annotations

import json
import os
import random
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.reactor_drive import RESPONSE, drive, read_request, scripted
from ext.send.test_ext_reactor_traffic import CHAT, LAST, STREAM, event

from fastllmload._ext.plan.talk import Talks
from fastllmload._ext.send.identity import Identity
from fastllmload.endpoint.identity import compiled, resolved
from fastllmload.endpoint.turns import TurnTemplate
from fastllmload.plan.plan import (
    EDGE,
    EDGE_CONTEXT,
    EDGE_START,
    LAST_TURN,
    PIECE,
    REAL_REPLY,
    STITCHED,
    TURN,
)
from fastllmload.settings import SessionIdentity, Workload

Edges = list[tuple[int, int, int, int]]  # source, target, wait in ns, flags; requests of one session
MS = 1_000_000
BAD = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}"


class Graphs:
    """Plan arrays of *sessions*: their numbers of requests, edges and waits after the latest instant."""

    def __init__(self, sessions: list[tuple[int, Edges, list[int]]]) -> None:
        sizes = [size for size, _, _ in sessions]
        self.first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
        self.turns = np.zeros(sum(sizes), TURN)
        rows = []
        for number, (size, edges, waits) in enumerate(sessions):
            begin = int(self.first[number])
            mine = self.turns[begin : begin + size]
            mine["session"], mine["think_ns"] = number, waits
            for source, target, wait, flags in sorted(edges):
                mine["turn"][target] = max(mine["turn"][target], mine["turn"][source] + 1)
                mine["waits_for"][target] += 1
                rows.append((wait, begin + source, begin + target, flags, 0))
            mine["flags"] = [0 if any(source == one for source, *_ in edges) else LAST_TURN for one in range(size)]
        self.edges = np.array(rows, EDGE)
        self.starts = self.first[:-1]

    def conversations(
        self, bodies: list[bytes], joint: TurnTemplate = CHAT.joint, pieces: bool = False
    ) -> dict[str, Any]:
        """Arguments of a reactor; *pieces*: each body lies in two of them."""
        raw = np.frombuffer(b"".join(bodies), np.uint8)
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in bodies])]).astype(np.uint64)
        parts = None
        if pieces:
            parts = np.array([(at, size) for begin, end in pairwise(offsets)
                              for at, size in ((begin, 4), (begin + 4, end - begin - 4))], PIECE)  # fmt: skip
        counted = np.arange(len(bodies) + 1, dtype=np.uint64) * 2 if pieces else offsets
        first_edge = np.searchsorted(self.edges["source"], np.arange(len(bodies) + 1)).astype(np.uint32)
        texts = [tuple(text.encode() for text in joint.described())]
        talks = Talks(self.turns, counted, raw, texts, len(self.starts), edges=self.edges, first_edge=first_edge,
                      first_request=self.first, pieces=parts)  # fmt: skip
        return {"body_offset": counted, "bodies": raw, "talks": talks, "numbers": self.starts.copy()}


def drawn(seed: int, sessions: int = 8) -> Graphs:
    """Random graphs: forks, joins, waits of edges and of requests, second roots."""
    stream = random.Random(seed)
    found = []
    for _ in range(sessions):
        size = stream.randint(1, 12)
        edges: Edges = []
        for target in range(1, size):
            many = stream.randint(1, min(3, target))
            for source in stream.sample(range(target), many):
                flags = EDGE_START if many == 1 and stream.random() < 0.2 else 0
                edges.append((source, target, stream.choice([0, 0, 3, 20]) * MS, flags))
        found.append((size, edges, [0] + [stream.choice([0, 1, 10]) * MS for _ in range(size - 1)]))
    return Graphs(found)


def numbered(count: int) -> list[bytes]:
    return [b'{"number":%d,"text":"%s"}' % (number, b"x" * (number % 50)) for number in range(count)]


def due_instants(graphs: Graphs, rows: np.ndarray) -> dict[int, int]:
    """The instant at which each request must have been due, from the others' rows."""
    by_request = {int(row["request"]): row for row in rows}
    found: dict[int, int] = {}
    for edge in graphs.edges:
        source = by_request.get(int(edge["source"]))
        if source is None:
            continue
        t = int(source["t_sched"] if edge["flags"] & EDGE_START else source["t_end"]) + int(edge["wait_ns"])
        found[int(edge["target"])] = max(found.get(int(edge["target"]), 0), t)
    return {target: t + int(graphs.turns["think_ns"][target]) for target, t in found.items()}


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_every_request_is_due_after_all_that_it_waits_for(tmp_path: Path, seed: int, pieces: bool) -> None:
    graphs = drawn(seed)
    bodies = numbered(len(graphs.turns))
    seen: list[int] = []

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            body = request.partition(b"\r\n\r\n")[2]
            seen.append(json.loads(body)["number"])
            assert body == bodies[seen[-1]]
            connection.sendall(RESPONSE)

    talk = graphs.conversations(bodies, pieces=pieces)
    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[2.0] * len(graphs.starts), conversations=talk)
    assert found.statuses() == {("ok", "none"): len(bodies)} and sorted(seen) == list(range(len(bodies)))
    due = due_instants(graphs, found.rows)
    for row in found.rows:
        if int(row["request"]) in due:
            assert int(row["t_sched"]) == due[int(row["request"])]
        assert row["t_dispatch"] >= row["t_sched"] - 1000
        assert row["turn"] == graphs.turns["turn"][row["request"]]
    assert talk["talks"].alive == 0


@pytest.mark.parametrize("seed", range(6))
def test_what_waits_for_a_failed_request_is_not_sent(tmp_path: Path, seed: int) -> None:
    graphs = drawn(seed)
    bodies = numbered(len(graphs.turns))
    failing = set(random.Random(seed).sample(range(len(bodies)), 4))

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            own = json.loads(request.partition(b"\r\n\r\n")[2])["number"]
            connection.sendall(BAD if own in failing else RESPONSE)

    talk = graphs.conversations(bodies)
    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[2.0] * len(graphs.starts), conversations=talk)
    lost: set[int] = set()
    for edge in np.sort(graphs.edges, order="target"):
        source, from_start = int(edge["source"]), bool(edge["flags"] & EDGE_START)
        if source in lost or (source in failing and not from_start):
            lost.add(int(edge["target"]))
    assert sorted(found.rows["request"].tolist()) == sorted(set(range(len(bodies))) - lost)
    assert talk["talks"].alive == 0


def test_a_slot_holds_a_session_until_all_of_it_has_ended(tmp_path: Path) -> None:
    """Two slots, five sessions that end with two requests at once: never more than two sessions at a time."""
    one = (3, [(0, 1, 5 * MS, 0), (0, 2, 15 * MS, 0)], [0, 0, 0])
    graphs = Graphs([one] * 5)
    talk = graphs.conversations(numbered(15))

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[], slots=2, limit=5, conversations=talk)
    assert found.statuses() == {("ok", "none"): 15}
    spans = [(rows["t_sched"].min(), rows["t_end"].max()) for session in range(5)
             if len(rows := found.rows[found.rows["session"] == session])]  # fmt: skip
    for begin, _ in spans:
        assert sum(other <= begin < end for other, end in spans) <= 2


def test_a_drain_ends_sessions(tmp_path: Path) -> None:
    graphs = Graphs([(4, [(0, 1, 0, 0), (0, 2, 60_000 * MS, 0), (1, 3, 0, 0), (2, 3, 0, 0)], [0] * 4)])
    talk = graphs.conversations(numbered(4))

    def stop(reactor: Any) -> None:
        if reactor.in_flight == 0 and talk["talks"].alive == 1:
            reactor.drain()

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[2.0], conversations=talk, during=stop)
    assert found.rows["request"].tolist() == [0, 1] and talk["talks"].alive == 0


def test_each_branch_continues_the_conversation_with_the_reply(tmp_path: Path) -> None:
    """One reply, then three branches of it, one of which joins another that is not of its conversation."""
    heard: dict[str, list[str]] = {}

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            said = [one["content"] for one in json.loads(request.partition(b"\r\n\r\n")[2])["messages"]]
            heard[said[-1]] = said
            connection.sendall(STREAM + event(f"re {said[-1]}") + LAST)
            return

    edges = [(0, 1, 0, EDGE_CONTEXT), (0, 2, 3 * MS, EDGE_CONTEXT), (0, 3, 0, EDGE_CONTEXT), (1, 3, MS, 0),
             (3, 4, 0, EDGE_CONTEXT)]  # fmt: skip
    graphs = Graphs([(5, edges, [0] * 5)])
    pieces = CHAT.messages_pieces("m", Workload())
    bodies = [pieces.encode([{"role": "user", "content": text}], 3) for text in "abcde"]
    graphs.turns["skip"], graphs.turns["tail"] = pieces.skip, pieces.closing(3)
    graphs.turns["flags"][1:] |= STITCHED | REAL_REPLY
    talk = graphs.conversations(bodies)
    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[2.0], conversations=talk, fresh=True)
    assert found.statuses() == {("ok", "none"): 5}
    assert heard == {
        "a": ["a"], "b": ["a", "re a", "b"], "c": ["a", "re a", "c"], "d": ["a", "re a", "d"],
        "e": ["a", "re a", "d", "re d", "e"],
    }  # fmt: skip
    assert talk["talks"].alive == 0


@pytest.mark.parametrize("own", [True, False])
def test_each_agent_that_was_named_ends_once(tmp_path: Path, own: bool) -> None:
    """Session 0 ends well; in session 1 the child fails, so the main agent never sends its second call. With the parent's id
    there is one end for each session.
    """
    one: tuple[int, Edges, list[int]] = (3, [(0, 1, 0, 0), (0, 2, 0, 0), (1, 2, 0, 0)], [0, 0, 0])
    graphs = Graphs([one, one])
    talk = graphs.conversations(numbered(6))
    agents = {"chain": [0, 1, 0] * 2, "parent": [-1, 0, -1] * 2, "place": [0, -1, -2] * 2}
    talk |= {name: np.array(values, np.int32) for name, values in agents.items()}

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            connection.sendall(BAD if b'"number":4,' in request else RESPONSE)

    reading, writing = os.pipe()
    given = SessionIdentity(end="POST /end/{session}", children="own" if own else "parent")
    identity = Identity(**compiled(resolved(given), ()), ends_fd=writing)
    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[2.0, 2.0], conversations=talk, identity=identity)
    assert sorted(found.rows["request"].tolist()) == [0, 1, 2, 3, 4]
    ends = sorted(os.read(reading, 4096).decode().split("\n"))
    names = ["s0", "s0-1", "s1", "s1-1"] if own else ["s0", "s1"]
    assert ends == ["", *(f"0 /end/test-0-{name}" for name in names)]
    os.close(reading)
    os.close(writing)
