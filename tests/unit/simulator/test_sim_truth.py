"""The truth log against what a plain client saw, and against itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import raises_code
from sim_client import Client, get, request

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.truth import FLAGS, NO_KEY, Truth, load

pytestmark = pytest.mark.slow

MS = 1_000_000
ROLE, CONTENT, USAGE, FINISH, DONE = 1, 3, 7, 8, 10


def test_kinds_are_those_of_the_event_classifier() -> None:
    """Numbers of EventKind in delta.pxd and of TRUTH_* stay one list."""
    import re

    from fastllmload._ext.simserver.responder import KINDS

    text = (Path(__file__).parents[3] / "ext/fastllmload/_ext/events/delta.pxd").read_text()
    names = dict(re.findall(r"^    EVENT_(\w+) = (\d+)", text, re.MULTILINE))
    assert {name: int(names[name.upper()]) for name in KINDS} == KINDS


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 10 s"
        time.sleep(0.01)


def test_the_log_agrees_with_a_plain_client(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    """Every event is in the log once, in order, stamped between the request and the client's own read of it."""
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=15.0, itl_ms=5.0, truth=path)
    sent, seen, closed = [], [], []
    with Client(process.port) as client:
        for index in range(5):
            sent.append(time.monotonic_ns())
            reply = client.ask(request(max_tokens=10, headers=(f"X-Request-Id: run-1a-3-{index}",)))
            assert len(reply.events) == 14
            data, marks = b"", []
            for at, piece in reply.reads:
                data += piece
                marks += [at] * (data.count(b"\n\n") - len(marks))
            seen.append(marks)
            closed.append(time.monotonic_ns())
    process.stop()
    truth = load(path)
    assert truth.requests["key"].tolist() == list(range(5)) and set(truth.requests["phase"]) == {3}
    assert set(truth.requests["connection"]) == {0}
    for index, row in enumerate(truth.requests):
        events = truth.of(index, 3)
        assert events["index"].tolist() == list(range(14))
        assert events["kind"].tolist() == [ROLE] + [CONTENT] * 10 + [FINISH, USAGE, DONE]
        assert (events["t_ns"] <= np.array(seen[index])).all() and (np.diff(events["t_ns"]) >= 0).all()
        assert sent[index] < row["t_recv_first"] == row["t_recv_last"] < events["t_ns"][0]
        assert row["t_first"] == events["t_ns"][1] and events["t_ns"][-1] <= row["t_end"] <= closed[index]
        # Never early: token k is due at arrival + ttft + phase + k x itl.
        due = row["t_recv_last"] + 15 * MS + np.arange(10) * 5 * MS
        assert (events["t_ns"][1:11] >= due).all()
        assert row["status"] == 200 and row["output_tokens"] == 10 and row["fault"] == 0
        assert row["flags"] == FLAGS["stream"] | FLAGS["length"] | (FLAGS["reused"] if index else 0)
    assert not truth.events["queued"].any()


def test_kernel_stamps_lie_before_user_stamps(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(null=True, truth=path)
    data = request(max_tokens=1)
    with Client(process.port) as client:
        client.ask(data)
        before = time.monotonic_ns()
        client.send(data[:40])
        middle = time.monotonic_ns()
        client.send(data[40:])
        client.response()
    process.stop()
    first, second = load(path).requests
    for row in (first, second):
        assert 0 < row["t_recv_first_kernel"] <= row["t_recv_first"]
        assert 0 < row["t_recv_last_kernel"] <= row["t_recv_last"]
        assert row["t_accept"] == first["t_accept"]
    # The wall clock that kernel stamps come from is read to well below 50 us.
    assert second["t_recv_first_kernel"] >= before - 50_000
    assert second["t_recv_last_kernel"] >= middle - 50_000


def test_requests_without_an_id_have_no_key(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(null=True, truth=path)
    with Client(process.port) as client:
        for name in (
            "",
            "x",
            "12",
            "a-b",
            "run-7",
            "run-2-7",
            "9-4294967294",
            "r-1-4294967295",
            "r-1-99999999999",
        ):
            client.ask(request(max_tokens=1, headers=(f"X-Request-Id: {name}",)))
        client.ask(get("/health"))
    process.stop()
    rows = load(path).requests
    assert [(int(row["phase"]), int(row["key"])) for row in rows] == [
        (NO_KEY, NO_KEY), (NO_KEY, NO_KEY), (NO_KEY, NO_KEY), (NO_KEY, NO_KEY),
        (NO_KEY, 7), (2, 7), (9, 4294967294), (NO_KEY, NO_KEY), (NO_KEY, NO_KEY),
    ]  # fmt: skip


def lockstep(simulator: Callable[..., SimulatorProcess], path: str, streams: int) -> Truth:
    process = simulator(ttft_ms=50.0, itl_ms=10.0, phase="lockstep", truth=path)
    clients = [Client(process.port) for _ in range(streams)]
    for index, client in enumerate(clients):
        client.send(request(max_tokens=60, headers=(f"X-Request-Id: r-1-{index}",)))
    for client in clients:
        assert client.response().usage["completion_tokens"] == 60
        client.socket.close()
    process.stop()
    return load(path)


def test_lockstep_writes_one_token_of_every_stream_in_each_burst(
    simulator: Callable[..., SimulatorProcess], tmp_path: Path
) -> None:
    truth = lockstep(simulator, str(tmp_path / "t.truth"), 32)
    tokens = truth.content()
    order = tokens[np.argsort(tokens["t_ns"], kind="stable")]
    # While all run, tokens come in rounds: each stream once, in the same order every time.
    start = max(tokens["t_ns"][tokens["key"] == key].min() for key in range(32))
    stop = min(tokens["t_ns"][tokens["key"] == key].max() for key in range(32))
    middle = order["key"][(order["t_ns"] > start) & (order["t_ns"] < stop)]
    rounds = middle[: len(middle) // 32 * 32].reshape(-1, 32)
    assert len(rounds) >= 4 and (rounds == rounds[0]).all() and len(set(rounds[0])) == 32
    # No token before its step: the first lies on the grid, at or after arrival + ttft.
    due = -(-(truth.requests["t_recv_last"] + 50 * MS) // (10 * MS)) * 10 * MS
    first = np.array([tokens["t_ns"][tokens["key"] == key].min() for key in truth.requests["key"]])
    assert (first >= due).all()


def test_documents_have_one_content_event(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=2.0, itl_ms=1.0, truth=path)
    with Client(process.port) as client:
        client.ask(request(stream=False, max_tokens=3, headers=("X-Request-Id: r-1-5",)))
    process.stop()
    truth = load(path)
    assert truth.of(5)["kind"].tolist() == [CONTENT]
    assert truth.requests["flags"][0] & FLAGS["stream"] == 0 and truth.requests["output_tokens"][0] == 3


def test_the_log_is_written_at_idle_and_on_a_signal(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = tmp_path / "t.truth"
    process = simulator(null=True, truth=str(path))
    with Client(process.port) as client:
        client.ask(request(max_tokens=3))
        wait_for(lambda: len(load(path).requests) == 1)
        client.ask(request(max_tokens=3))
        os.kill(process.pid, signal.SIGUSR1)
        wait_for(lambda: len(load(path).requests) == 2)
    assert len(load(path).content()) == 6


def test_a_stop_marks_what_was_in_flight(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=60_000.0, phase="spread", truth=path)
    process.stop()
    process = simulator(ttft_ms=1.0, itl_ms=2.0, truth=path)
    with Client(process.port) as client:
        client.send(request(max_tokens=100_000))
        client.until(b"data: ")
        assert process.stop() == 0
    (row,) = load(path).requests
    assert row["flags"] & FLAGS["aborted"] and row["output_tokens"] < 100_000


def test_a_client_that_goes_away_is_logged_as_aborted(
    simulator: Callable[..., SimulatorProcess], tmp_path: Path
) -> None:
    path = tmp_path / "t.truth"
    process = simulator(ttft_ms=1.0, itl_ms=2.0, truth=str(path))
    with Client(process.port) as client:
        client.send(request(max_tokens=100_000))
        client.until(b"data: ")
    wait_for(lambda: len(load(path).requests) == 1)
    assert load(path).requests["flags"][0] & FLAGS["aborted"]


def test_coalesced_events_share_a_stamp(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=1.0, coalesce=4, truth=path)
    with Client(process.port) as client:
        assert client.ask(request(max_tokens=10)).usage["completion_tokens"] == 10
    process.stop()
    stamps = load(path).content()["t_ns"]
    assert [len(set(stamps[i : i + 4])) for i in (0, 4, 8)] == [1, 1, 1] and len(set(stamps)) == 3


def test_a_log_that_was_cut_off_is_read_up_to_the_cut(
    simulator: Callable[..., SimulatorProcess], tmp_path: Path
) -> None:
    path = tmp_path / "t.truth"
    process = simulator(null=True, truth=str(path))
    with Client(process.port) as client:
        for index in range(3):
            client.ask(request(max_tokens=5, headers=(f"X-Request-Id: r-1-{index}",)))
    process.stop()
    whole = load(path)
    assert len(whole.requests) == 3 and len(whole.events) == 3 * 9
    data = path.read_bytes()
    for size in range(16, len(data), 7):
        path.write_bytes(data[:size])
        part = load(path)
        assert len(part.events) <= 27 and (part.events["index"] < 9).all()
    path.write_bytes(data[:15])
    with raises_code("truth-log-damaged", path):
        load(path)


def test_another_file_is_reported_as_not_a_truth_log(tmp_path: Path) -> None:
    with raises_code("file-unreadable", tmp_path / "absent"):
        load(tmp_path / "absent")
    (tmp_path / "other").write_bytes(b"something else entirely")
    with raises_code("truth-log-damaged", tmp_path / "other", "version 7"):
        load(tmp_path / "other")
    (tmp_path / "other").write_bytes(b"FLLTRUTH" + (7).to_bytes(8, "little") + (9).to_bytes(8, "little"))
    with raises_code("truth-log-damaged", "unknown kind 9"):
        load(tmp_path / "other")


def test_logs_of_several_processes_are_joined(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(null=True, processes=3, truth=path)
    for index in range(30):
        with Client(process.port) as client:
            client.ask(request(max_tokens=2, headers=(f"X-Request-Id: r-0-{index}",)))
    process.stop()
    truth = load(path)
    assert sorted(truth.requests["key"]) == list(range(30)) and len(set(truth.requests["serial"])) == 30
    assert all(len(truth.of(index)) == 6 for index in range(30))
