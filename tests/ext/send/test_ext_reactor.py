"""The reactor against scripted servers: every way a connection can behave has its row, and every socket is given
back.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ext.reactor_drive import RESPONSE, Outcome, answer_all, drive, read_request, scripted

from fastllmload._ext.record import counters as k
from fastllmload._ext.send.loop import LoopConnection
from fastllmload._ext.send.reactor import Reactor
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

OK = ("ok", "none")
GAPS = [1.0] * 50


def test_the_kernel_joins_no_pages_of_connections_while_the_clock_runs(tmp_path: Path) -> None:
    """It does so with memory that is marked for huge pages ("hg"), and stops a process that uses it meanwhile."""

    def marked() -> int:
        return sum(line.startswith("VmFlags:") and " hg" in line for line in smaps.read_text().splitlines())

    smaps, found = Path("/proc/self/smaps"), []
    found.append(marked())
    with scripted(answer_all) as address:
        drive(tmp_path, address, gaps_ms=GAPS, preconnect=4, before=lambda _: found.append(marked()))
    assert found[1] == found[0]


@pytest.mark.parametrize("over_asyncio", [False, True])
def test_open_loop_reuses_connections(tmp_path: Path, over_asyncio: bool) -> None:
    """50 requests, 1 ms apart: all answered, none early, times in order, connections reused."""
    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=GAPS, preconnect=4, over_asyncio=over_asyncio)
    assert outcome.statuses() == {OK: 50}
    rows = outcome.rows
    assert (outcome.lags_us > -1).all()
    for earlier, later in [
        ("t_sched", "t_dispatch"),
        ("t_dispatch", "t_submit_start"),
        ("t_submit_start", "t_submit"),
        ("t_submit", "t_headers"),
        ("t_headers", "t_first"),
        ("t_first", "t_last"),
        ("t_last", "t_end"),
    ]:
        late = rows[earlier] - rows[later]
        assert (late <= (1000 if earlier == "t_sched" else 0)).all(), (earlier, later)
    assert rows["flags"].astype(bool).any()
    assert (rows["bytes_received"] == len(RESPONSE)).all()
    assert set(outcome.tokens["stamp"] & 3) == {1}
    assert outcome.words[k.W_OK] == 50 and outcome.words[k.W_IN_FLIGHT] == 0


def test_closed_loop_sends_exactly_the_limit(tmp_path: Path) -> None:
    """4 slots, 101 requests: each index once, never more than 4 in flight."""
    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=[], slots=4, limit=101, preconnect=4)
    assert outcome.statuses() == {OK: 101}
    assert sorted(outcome.rows["request"]) == list(range(101))
    starts, ends = outcome.rows["t_dispatch"], outcome.rows["t_end_user"]
    assert max(((starts <= t) & (ends > t)).sum() for t in starts) <= 4


def test_a_closed_loop_opens_no_more_connections_than_it_has_slots(tmp_path: Path) -> None:
    """A server that serves one connection at a time would never answer on a spare one."""

    def slowly(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            time.sleep(0.02)
            connection.sendall(RESPONSE)

    with scripted(slowly) as address:
        outcome = drive(tmp_path, address, gaps_ms=[], slots=2, limit=20, preconnect=2)
    assert outcome.statuses() == {OK: 20}
    assert outcome.words[k.W_CONNECTS] == 2


DONE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'55\r\ndata: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}     \n\n\r\n'
    b"e\r\ndata: [DONE]\n\n\r\n"
)
# Answers one request, then sends chunks of comments until all of them are sent or the client has gone.
FLOODS = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.recv(65536)
connection.sendall(bytes.fromhex(sys.argv[1]))
piece = (b"8000\\r\\n" + b":" * 0x7fff + b"\\n\\r\\n") * 128
try:
    for _ in range(int(sys.argv[2])):
        connection.sendall(piece)
except OSError:
    pass
"""


def test_a_server_that_sends_without_end_is_read_in_turns(tmp_path: Path) -> None:
    """One read of each socket in a batch, also while there is more: what else is due is looked at in between."""
    command = [sys.executable, "-c", FLOODS, DONE[:-19].hex(), "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        outcome = drive(tmp_path, ("127.0.0.1", port), gaps_ms=[1.0], preconnect=1, timeout_s=60)
    assert outcome.words[k.W_READS] > 500  # 256 MiB in buffers of 256 KiB at the most
    assert outcome.words[k.W_READS] <= outcome.words[k.W_BATCHES] + 10


def test_a_message_without_an_end_holds_its_connection_for_a_while_only(tmp_path: Path) -> None:
    """The second request is answered once the client has given up the connection of the first."""
    closed, requests = threading.Event(), itertools.count()

    def script(connection: socket.socket, number: int) -> None:
        if not read_request(connection):  # a spare connection
            return
        if next(requests) == 0:
            connection.sendall(DONE)
            if not connection.recv(1):
                closed.set()
        elif closed.wait(20):
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[1.0, 20.0], preconnect=0, timeout_s=30)
    assert outcome.statuses() == {OK: 2}


def test_fresh_connections_are_used_once(tmp_path: Path) -> None:
    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=GAPS, fresh=True)
    assert outcome.statuses() == {OK: 50}
    assert outcome.words[k.W_CONNECTS] == 50
    assert len(set(outcome.rows["local_port"])) == 50
    assert (outcome.rows["t_connected"] > 0).all()


def test_an_idle_connection_closed_by_the_server_is_dropped_before_use(tmp_path: Path) -> None:
    """The server closes the first four connections at once: no request is lost to that."""

    def script(connection: socket.socket, number: int) -> None:
        if number >= 4:
            answer_all(connection, number)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[20.0] * 5, preconnect=4, settle_s=0.3)
    assert outcome.statuses() == {OK: 5}
    assert outcome.words[k.W_IDLE_DROPPED] == 4


def test_a_reused_connection_that_dies_has_its_own_class(tmp_path: Path) -> None:
    """The server answers once, reads the second request and closes without a byte."""

    def script(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(RESPONSE)
        read_request(connection)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[30.0] * 6, preconnect=1)
    counted = outcome.statuses()
    assert counted[("connection_error", "reused_connection_lost")] >= 2
    assert counted[OK] + counted[("connection_error", "reused_connection_lost")] == 6


def test_a_fresh_connection_that_dies_is_not_called_reused(tmp_path: Path) -> None:
    def script(connection: socket.socket, number: int) -> None:
        read_request(connection)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[5.0] * 4)
    assert outcome.statuses() == {("connection_error", "closed_before_response"): 4}


def test_a_reset_in_the_body_is_a_reset(tmp_path: Path) -> None:
    def script(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(RESPONSE[:-20])
        time.sleep(0.01)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[5.0] * 3)
    assert outcome.statuses() == {("connection_error", "reset"): 3}
    assert set(outcome.rows["error_number"]) == {104}


def test_no_server_listens(tmp_path: Path) -> None:
    with scripted(answer_all) as address:
        pass
    outcome = drive(tmp_path, address, gaps_ms=[5.0] * 3, preconnect=0)
    assert outcome.statuses() == {("connection_error", "connect_refused"): 3}


def test_a_socket_that_cannot_be_watched_says_why(tmp_path: Path) -> None:
    """epoll_ctl fails for another reason than file descriptors: the row has its errno, and no word of descriptors."""

    def unwatch(reactor: Reactor) -> None:
        with open(os.devnull) as other:
            os.dup2(other.fileno(), reactor.fileno())  # no epoll descriptor any more: EINVAL

    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=[20.0], preconnect=0, fresh=True, before=unwatch)
    assert outcome.statuses() == {("connection_error", "connect_failed"): 1}
    assert outcome.rows["error_number"][0] == errno.EINVAL


def test_a_server_that_never_answers_times_out(tmp_path: Path) -> None:
    def script(connection: socket.socket, number: int) -> None:
        read_request(connection)
        read_request(connection)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[5.0] * 3, timeout_s=0.2)
    assert outcome.statuses() == {("timeout", "deadline"): 3}
    waited = (outcome.rows["t_end"] - outcome.rows["t_dispatch"]) / 1e9
    assert (waited >= 0.2).all()


def test_an_answer_in_time_does_not_time_out_when_the_client_was_stopped(tmp_path: Path) -> None:
    """600 answers come while the client is stopped past their deadlines, more than one poll returns: all are read first.

    The client's own thread sends them for the server before it stops, so that no server thread can be late. On a busy host
    it may take so long to send the requests that the first are late before they are answered.
    """
    accepted: list[socket.socket] = []
    stood = False

    def script(connection: socket.socket, number: int) -> None:
        accepted.append(connection)
        while read_request(connection):
            pass

    def stand(reactor: Reactor) -> None:
        nonlocal stood
        if reactor.in_flight == 600 and not stood:
            stood = True
            assert len(accepted) == 600
            for connection in accepted:
                connection.sendall(RESPONSE)
            time.sleep(5.5)

    def all_accepted(reactor: Reactor) -> None:
        limit = time.monotonic() + 30
        while len(accepted) < 600 and time.monotonic() < limit:
            time.sleep(0.01)

    for attempt in range(3):
        accepted.clear()
        stood = False
        directory = tmp_path / str(attempt)
        directory.mkdir()
        with scripted(script) as address:
            outcome = drive(
                directory, address, gaps_ms=[], slots=600, limit=600, preconnect=600, timeout_s=5.0, before=all_accepted,
                during=stand,
            )  # fmt: skip
        if stood and outcome.statuses() == {OK: 600}:
            return
    assert stood and outcome.statuses() == {OK: 600}


def test_what_came_after_its_deadline_is_a_time_out_for_a_client_that_stood_still_too(tmp_path: Path) -> None:
    """Ten answers come 0.3 s after their deadlines and are read as soon as the client continues: their stamps decide."""
    stood = False

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            time.sleep(0.6)
            connection.sendall(RESPONSE)

    def stand(reactor: Reactor) -> None:
        nonlocal stood
        if reactor.in_flight == 10 and not stood:
            stood = True
            time.sleep(1.2)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[], slots=10, limit=10, preconnect=10, timeout_s=0.3, during=stand)
    assert stood and outcome.statuses() == {("timeout", "deadline"): 10}


@pytest.mark.parametrize("over_asyncio", [False, True])
def test_a_large_body_is_sent_in_parts(tmp_path: Path, over_asyncio: bool) -> None:
    """8 MiB to a reader who waits 100 ms when the first byte is there: t_submit is that of the last byte."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(1, socket.MSG_PEEK)
        time.sleep(0.1)
        if len(read_request(connection)) > 8 << 20:
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[1.0], body=b"x" * (8 << 20), over_asyncio=over_asyncio)
    assert outcome.statuses() == {OK: 1}
    (row,) = outcome.rows
    assert row["t_submit"] - row["t_submit_start"] >= 100_000_000
    assert row["bytes_sent"] > 8 << 20


def test_unix_socket_and_ipv6(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    path = str(tmp_path / "socket")
    with scripted(answer_all, socket.AF_UNIX, path):
        outcome = drive(tmp_path / "a", path, family="unix", gaps_ms=GAPS)
    assert outcome.statuses() == {OK: 50}
    with scripted(answer_all, socket.AF_INET6, ("::1", 0)) as address:
        outcome = drive(tmp_path / "b", address, family="inet6", gaps_ms=GAPS)
    assert outcome.statuses() == {OK: 50}


def test_several_source_addresses_are_used(tmp_path: Path) -> None:
    seen: set[str] = set()

    def script(connection: socket.socket, number: int) -> None:
        seen.add(connection.getpeername()[0])
        answer_all(connection, number)

    with scripted(script) as address:
        outcome = drive(
            tmp_path, address, gaps_ms=GAPS, fresh=True, sources=[("inet", "127.0.0.2"), ("inet", "127.0.0.3")]
        )
    assert outcome.statuses() == {OK: 50}
    assert seen == {"127.0.0.2", "127.0.0.3"}


def test_a_cap_delays_but_keeps_the_schedule(tmp_path: Path) -> None:
    """Two in flight at most, 20 ms each, ten due at once: t_sched stays, the wait shows as lag."""

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            time.sleep(0.02)
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[0.0] * 10, cap=2, preconnect=2)
    assert outcome.statuses() == {OK: 10}
    assert len(set(outcome.rows["t_sched"])) == 1
    assert outcome.lags_us.max() > 60_000


@pytest.mark.parametrize("over_asyncio", [False, True])
def test_a_cap_holds_where_every_request_fails_at_once(tmp_path: Path, over_asyncio: bool) -> None:
    """60,000 due at once, 64 in flight at most, and no server at the socket: each fails, none inside of another's end."""
    outcome = drive(
        tmp_path,
        str(tmp_path / "no-server"),
        family="unix",
        gaps_ms=[0.0] * (2_000 if over_asyncio else 60_000),
        preconnect=0,
        cap=64,
        over_asyncio=over_asyncio,
    )
    assert outcome.statuses() == {("connection_error", "connect_failed"): len(outcome.rows)}
    assert len(outcome.rows) == (2_000 if over_asyncio else 60_000)
    assert outcome.words[k.W_IN_FLIGHT] == 0


def test_what_a_callback_raises_is_kept(tmp_path: Path) -> None:
    """The fifth connection cannot be made, because of a bug: the event loop would log that, and the run would wait."""
    made = 0

    def broken(stream: LoopConnection) -> LoopConnection:
        nonlocal made
        made += 1
        if made == 5:
            raise ZeroDivisionError("a bug")
        return stream

    with scripted(answer_all) as address, pytest.raises(ZeroDivisionError, match="a bug"):
        drive(tmp_path, address, gaps_ms=[], slots=2, limit=20, fresh=True, over_asyncio=True, streams=broken)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda stream: stream.connection_made(None), AttributeError),
        (lambda stream: stream.connection_lost(OSError("no number", "")), TypeError),
    ],
    ids=["made", "lost"],
)
def test_an_exception_inside_a_callback_ends_the_run(
    tmp_path: Path, call: Callable[[LoopConnection], None], error: type
) -> None:
    """The event loop passes what it should not, to each connection; who waits for the answers gets the exception."""
    made: list[LoopConnection] = []

    def kept(stream: LoopConnection) -> LoopConnection:
        made.append(stream)
        return stream

    def called(reactor: object) -> None:
        for stream in made:
            call(stream)

    with scripted(answer_all) as address, pytest.raises(error):
        drive(tmp_path, address, gaps_ms=[20.0] * 20, over_asyncio=True, streams=kept, during=called)


def stalls_ms(outcome: Outcome) -> np.ndarray:
    stalls = outcome.words[k.STALLS_START :].reshape(-1, k.STALL_WORDS)
    return stalls[: outcome.words[k.W_STALLS]] / 1e6


def test_a_stop_is_a_stall_of_that_length(tmp_path: Path) -> None:
    """Asleep four times for 40 ms with the beat due within 5 ms: 35 ms of each at least, and no more than it slept."""
    slept: list[tuple[int, int]] = []

    def sleep(reactor: object) -> None:
        if len(slept) < 4:
            begin = time.monotonic_ns()
            time.sleep(0.04)
            slept.append((begin, time.monotonic_ns()))

    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=[30.0] * 10, during=sleep)
    assert outcome.statuses() == {OK: 10}
    found = stalls_ms(outcome)
    for begin, end in slept:
        mine = found[(found[:, 0] + found[:, 1] >= end / 1e6) & (found[:, 0] <= end / 1e6)]
        assert len(mine) == 1, f"slept from {begin} to {end}: {found}"
        assert mine[0, 0] >= begin / 1e6 - 5 and mine[0, 1] >= (end - begin) / 1e6 - 5.1
    assert outcome.words[k.W_STALL_MAX_NS] / 1e6 == found[:, 1].max()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_stall_by_a_signal_is_not_a_wait_for_a_processor(tmp_path: Path, stopped: bool) -> None:
    """40 ms of work next to a busy process on the same processor: it also waits for the host, unless a signal stopped it."""
    here, busy = os.sched_getaffinity(0), 0

    def work(reactor: object) -> None:
        nonlocal busy
        if busy < 2:
            busy += 1
            until = time.thread_time() + 0.04
            while time.thread_time() < until:
                pass
            if stopped:
                os.kill(os.getpid(), signal.SIGCONT)

    os.sched_setaffinity(0, {min(here)})
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with scripted(answer_all) as address:
            outcome = drive(tmp_path, address, gaps_ms=[80.0] * 10, during=work)
    finally:
        hog.kill()
        hog.wait()
        os.sched_setaffinity(0, here)
    found = stalls_ms(outcome)
    of_work = found[found[:, 3] >= 35]
    assert len(of_work) == 2 and outcome.statuses() == {OK: 10}
    assert (of_work[:, 2] == 0).all() if stopped else (of_work[:, 2] > 0).all(), found


SLEPT = """
import ctypes, os, sys
from pathlib import Path
from fastllmload._ext.record import counters as k
from ext.reactor_drive import drive

def late(reactor):
    for path in [Path("/proc/self/fdinfo", fd) for fd in os.listdir("/proc/self/fd")]:
        if reactor.released and path.exists() and "settime flags: 00" in path.read_text():  # the beat, not the pacer
            ctypes.CDLL(None).timerfd_settime(int(path.name), 0, (ctypes.c_long * 4)(0, 0, 0, 60_000_000), None)

found = drive(Path(sys.argv[1]), ("127.0.0.1", int(sys.argv[2])), gaps_ms=[40.0] * 10, during=late)
for stall in found.words[k.STALLS_START :].reshape(-1, k.STALL_WORDS)[: found.words[k.W_STALLS]]:
    print(*stall[1:4])
"""


def test_a_sleep_past_a_timer_is_a_wait_for_the_host(tmp_path: Path) -> None:
    """The beat comes 60 ms late each time: the thread neither ran nor was ready, as the kernel did not wake it."""
    with SimulatorProcess(SimulatorOptions(null=True)) as engine:
        command = [sys.executable, "-c", SLEPT, str(tmp_path), str(engine.port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    stalls = [tuple(map(int, line.split())) for line in ended.stdout.splitlines()]
    asleep = [ready / length for length, ready, ran in stalls if length > 10_000_000 > 10 * ran]
    assert len(asleep) >= 3 and min(asleep) >= 0.8, ended.stdout + ended.stderr


def test_what_held_up_a_late_release_is_a_stall(tmp_path: Path) -> None:
    """Next to a process that takes the same processor for 3 ms again and again, also while it polls only the
    clock, as it is about to send.
    """
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(here)})
    work = "t = time.monotonic() + 0.003\n  while time.monotonic() < t: pass\n  time.sleep(0.002)"
    hog = subprocess.Popen([sys.executable, "-c", f"import time\nwhile True:\n  {work}"])
    try:
        with scripted(answer_all) as address:
            outcome = drive(tmp_path, address, gaps_ms=[2.0] * 2_000, preconnect=20)
    finally:
        hog.kill()
        hog.wait()
        os.sched_setaffinity(0, here)
    found, sent = stalls_ms(outcome), outcome.rows["t_sched"] > 0
    begin = outcome.rows["t_sched"][sent] / 1e6
    end = outcome.rows["t_dispatch"][sent] / 1e6
    late = end - begin > 2
    inside = [
        np.clip(np.minimum(found[:, 0] + found[:, 1], to) - np.maximum(found[:, 0], since), 0, None).sum()
        / (to - since)
        for since, to in zip(begin[late], end[late], strict=True)
    ]
    assert late.sum() >= 20 and np.mean(np.array(inside) >= 0.5) >= 0.98, np.sort(inside)[:10]


def test_a_worker_with_nothing_to_do_does_not_stall(tmp_path: Path) -> None:
    """It waits 300 ms for its one answer. The host may stop it meanwhile, but not for all of that."""

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            time.sleep(0.3)
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[1.0])
    assert outcome.statuses() == {OK: 1}
    assert stalls_ms(outcome)[:, 1].sum() < 250


def test_cancel_all_ends_what_is_in_flight(tmp_path: Path) -> None:
    def script(connection: socket.socket, number: int) -> None:
        read_request(connection)
        read_request(connection)

    def stop(reactor: object) -> None:
        if reactor.in_flight == 5:  # type: ignore[attr-defined]
            reactor.cancel_all()  # type: ignore[attr-defined]

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[1.0] * 5, during=stop)
    assert outcome.statuses() == {("cancelled", "drain"): 5}


def test_ten_errors_in_a_row_slow_a_slot_down(tmp_path: Path) -> None:
    """A dead server must not be stormed: after ten errors a slot waits 100 ms each time (spec/procedures 0.5)."""
    with scripted(answer_all) as address:
        pass
    outcome = drive(tmp_path, address, gaps_ms=[], slots=1, limit=13, preconnect=0)
    assert outcome.statuses() == {("connection_error", "connect_refused"): 13}
    gaps = np.diff(np.sort(outcome.rows["t_dispatch"]))
    assert (gaps[10:] > 90_000_000).all()
    assert gaps[6:9].min() < 90_000_000  # some of the last before: what stops us does not stop all of them


def test_responses_are_matched_to_the_plan(tmp_path: Path) -> None:
    """The request id carries run, phase and index; Content-Length is the body's."""
    heads: list[bytes] = []

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            heads.append(request)
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        drive(tmp_path, address, gaps_ms=[2.0] * 3)
    assert sorted(heads)[0] == (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        b'X-Fastllmload-Request: test-0-0\r\nContent-Length: 13\r\n\r\n{"model":"m"}'
    )
