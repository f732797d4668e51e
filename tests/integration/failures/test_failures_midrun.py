"""What goes wrong while the clock runs: the run ends with its exit code and a clear sentence, and keeps its data."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ext.reactor_drive import read_request
from integration.bad_days import EMBEDDED, FAST, Going, await_end, begin, report, run
from integration.turning_server import GOOD, JSON, STREAM, turning
from refusals import says

from fastllmload.engine.recording.tap import permitted
from fastllmload.records.layout import OK, PHASE_NAMES, STATUS_NAMES
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

LONG = ("--rate", "60", "--duration", "60")


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Going]:
    """A run of a minute against the simulated engine whose tokens come in; none of its processes outlives the test."""
    one = begin(tmp_path / "run", *LONG, *EMBEDDED)
    try:
        one.until_ok()
        family = one.family()
        yield one
        await_end(family)
    finally:
        one.kill()


# -- where its processes live ------------------------------------------------------------------------------------------


def test_every_process_shares_the_session_and_has_a_process_group_of_its_own(tmp_path: Path) -> None:
    """A session of its own would be a scheduling group of its own (docs/decisions/02-processes.md); the run's group would
    get the Ctrl-C that is meant for the run.
    """
    options = ("--workers", "2", "--timestamps", "tap" if permitted() else "kernel")
    one = begin(tmp_path / "run", *LONG, *options, *(each for each in EMBEDDED if each != "--no-telemetry"))
    try:
        one.until_ok()
        family = one.family()
        parts = ("worker", "rowwriter", "simulat", "telemetry", "tapreader")
        assert len(family) == 5 + permitted(), [one.family(word) for word in parts]
        assert {os.getsid(pid) for pid in family} == {os.getsid(0)}
        assert [os.getpgid(pid) for pid in family] == family
        one.signal(signal.SIGINT)
        one.end().kept(4, "interrupted")
    finally:
        one.kill()


# -- signals ----------------------------------------------------------------------------------------------------------


def test_interrupted_once_it_drains_and_marks(going: Going) -> None:
    going.signal(signal.SIGINT)
    ended = going.end()
    document = ended.kept(4, "interrupted")
    assert "no more requests" in ended.out and "interrupt again" in ended.out
    assert document["failed"] == 0, document["errors"]  # nothing in flight was cut
    assert "INCOMPLETE" in ended.out


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_interrupted_twice_or_asked_to_end_it_cancels_and_writes(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Answers of many minutes are in flight: it does not wait for them."""
    slow = ("--isl", "16", "--osl", "uniform:1,30000", "--warmup", "0", "--simulate", "ttft_ms=5", "itl_ms=20")
    one = begin(tmp_path / "run", *LONG, *slow)
    try:
        one.until_answered()
        for number in numbers:
            one.signal(number)
            one.until_said("no more requests are sent")
        ended = one.end()
    finally:
        one.kill()
    assert ended.code == 4 and "Traceback" not in ended.said, ended.said
    assert ended.document is not None and ended.document["status"] == "interrupted"
    statuses = {STATUS_NAMES[status] for status in load(ended.folder).rows["status"]}
    assert "cancelled" in statuses and "in_flight" not in statuses


def test_interrupted_before_the_clock_nothing_is_left(tmp_path: Path) -> None:
    """The plan of a million requests takes a while: the signal comes before it is ready."""
    one = begin(tmp_path / "run", "--rate", "20000", "--duration", "50", *EMBEDDED)
    try:
        one.until_said("target:")
        one.signal(signal.SIGINT)
        one.end().refused(4, "interrupted", "nothing was measured")
    finally:
        one.kill()


# -- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 2), (signal.SIGSEGV, 70)])
def test_the_simulated_engine_dies(going: Going, number: int, code: int) -> None:
    """Killed from outside it is the host's doing, crashed it is our own fault; either way nothing more is sent."""
    os.kill(going.child("fastllmload.simulator"), number)
    ended = going.end()
    document = ended.kept(code, "partial")
    assert any(says(sentence, "simulator-ended", f"signal {number}") for sentence in document["incidents"])
    assert "target has ended" in ended.out
    assert document["phases"][-1]["end_ns"] < document["phases"][-1]["start_ns"] + 60 * 10**9


@pytest.mark.parametrize(
    ("workers", "number"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (1, signal.SIGTERM), (2, signal.SIGTERM)]
)
def test_a_worker_is_killed(tmp_path: Path, workers: int, number: int) -> None:
    """The only one, or one of two: what it wrote stays, the others go on to the end."""
    one = begin(tmp_path / "run", "--rate", "60", "--duration", "3", "--workers", str(workers), *EMBEDDED)
    try:
        one.until_ok()
        os.kill(one.family("engine.worker")[0], number)
        ended = one.end()
    finally:
        one.kill()
    document = ended.kept(2, "partial")
    assert any(says(sentence, "worker-died", f"signal {number}") for sentence in document["incidents"])
    assert document["certificate"]["verdict"] == "invalid"
    assert [worker["died"] for worker in document["workers"]].count(True) == 1
    assert document["counts"]["not_sent"] > 0


BUG = """
import sys
if "fastllmload.engine.workers.worker" in sys.orig_argv:
    from fastllmload._ext.send import loop

    class LoopConnection(loop.LoopConnection):
        made = 0
        def __init__(self, *names):
            super().__init__(*names)
            LoopConnection.made += 1
            if LoopConnection.made == 9:
                raise ZeroDivisionError("a bug of a callback")

    loop.LoopConnection = LoopConnection
"""


def test_a_bug_in_a_callback_of_the_event_loop_ends_the_run_with_its_trace(tmp_path: Path) -> None:
    """The loop would only log it, and the request that it hit would wait for its time-out."""
    (tmp_path / "sitecustomize.py").write_text(BUG)
    options = ("-c", "2", "-n", "40", "--workers", "1", "--transport", "asyncio", "--fresh-connections", *EMBEDDED)
    ended = run(tmp_path / "run", *options, PYTHONPATH=str(tmp_path))
    assert ended.code == 70
    assert "ZeroDivisionError: a bug" in ended.said and "Traceback" in ended.said


def test_the_server_of_a_socket_has_ended(tmp_path: Path) -> None:
    """Requests fail within the call that connects, 64 at once of very many that are due: an end must not begin another."""
    path = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    server = threading.Thread(target=answer_once, args=(listener,), daemon=True)
    server.start()
    options = ("--unix-socket", path, "-m", "one", "--rate", "inf", "-n", "60000", "--workers", "1", *FAST)
    ended = run(tmp_path / "run", *options, "--max-concurrency", "64")
    server.join()
    assert ended.code == 3 and ended.document is not None, ended.said
    assert ended.document["counts"]["connection_error"] == 60_000


def answer_once(listener: socket.socket) -> None:
    """Answers what a run asks before its clock, and goes away."""
    posted = False
    while not posted:
        connection, _ = listener.accept()
        with connection:
            if not (asked := read_request(connection)):
                continue  # checks whether a server listens
            posted = asked.startswith(b"POST")
            kind, content = (STREAM, GOOD) if posted else (JSON, b'{"object":"list","data":[{"id":"one"}]}')
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n"
            connection.sendall(head.encode() + b"\r\n" + content)
    listener.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_is_killed_in_the_warm_up(tmp_path: Path, workers: int) -> None:
    """The measurement needs all of them: it is not begun, and the run says so instead of announcing it."""
    given = ("--rate", "60", "--duration", "3", *EMBEDDED, "--warmup", "600", "--workers", str(workers))
    one = begin(tmp_path / "run", *given)
    try:
        one.until_answered("warmup")
        os.kill(one.family("engine.worker")[-1], signal.SIGKILL)
        ended = one.end()
    finally:
        one.kill()
    document = ended.document
    assert ended.code == 2 and "Traceback" not in ended.said, ended.said
    assert document is not None and document["status"] == "partial" and document["counts"]["planned"] == 0
    assert [phase["name"] for phase in document["phases"]] == ["warmup"]
    assert document["phases"][0]["released"] < 600
    assert document["certificate"]["verdict"] == "invalid"
    assert says(document["incidents"][0], "worker-died", "signal 9")
    assert "[workers-missing]" in document["incidents"][-1] and "\nmeasure:" not in ended.out


def test_a_worker_is_killed_before_the_first_request(tmp_path: Path) -> None:
    """From outside: a sentence, not a bug of ours."""
    one = begin(tmp_path / "run", "--rate", "60", "--duration", "3", "--workers", "2", *EMBEDDED)
    try:
        one.until(lambda: bool(one.family("engine.worker")))
        os.kill(one.family("engine.worker")[0], signal.SIGKILL)
        killed = time.monotonic()
        ended = one.end()
    finally:
        one.kill()
    assert time.monotonic() - killed < 30  # at once; the other workers are not waited for
    assert ended.code == 2 and len(ended.sentences) == 1 and "Traceback" not in ended.said, ended.said
    assert says(ended.sentences[0], "workers-killed", "signal 9")
    assert ended.document is not None and ended.document["status"] == "failed"


def test_the_supervisor_is_killed(going: Going) -> None:
    """No process is left; `report` shows what was measured, says what happened, and clears up."""
    family = going.family()
    assert len(family) == 3  # a worker, the simulated engine and what writes rows
    going.kill()
    await_end(family)
    found = load(going.folder)
    assert found.incomplete and (found.rows["status"] == OK).any()
    for reading in ("export", "compliance"):
        reported = report(going.folder, reading)
        assert says(reported.stderr, "run-killed", f"fastllmload report {going.folder}"), reported.stderr
        assert (going.folder / ".work").exists()
    again = report(going.folder)
    assert again.returncode == 0 and "INCOMPLETE (killed)" in again.stdout, again.stdout + again.stderr
    assert "[run-killed]" in again.stdout
    assert not (going.folder / ".work").exists()
    assert json.loads((going.folder / "run.json").read_text())["status"] == "killed"
    assert "working files" not in report(going.folder).stdout
    assert "working files" not in report(going.folder, "export").stderr


def test_what_writes_rows_is_killed(going: Going) -> None:
    """A new process continues its work; nothing that was recorded is missing."""
    os.kill(going.family("recording.row_writer")[0], signal.SIGKILL)
    going.until(lambda: "a new process continues its work" in going.text())
    going.signal(signal.SIGINT)
    ended = going.end()
    document = ended.kept(4, "interrupted")
    assert document["disk_full"] is False
    found = load(going.folder)
    assert (found.rows["status"] == OK).sum() == document["counts"]["ok"] > 0
    assert (np.diff(found.first_event) == found.rows["events"]).all()


def test_everything_is_killed_at_once(going: Going) -> None:
    """At most a second is lost: rows and events are those of an instant that is not older."""
    family = going.family()
    time.sleep(1.5)
    killed_ns = time.monotonic_ns()
    for pid in [*family, going.process.pid]:
        os.kill(pid, signal.SIGKILL)
    await_end(family)
    found = load(going.folder)
    assert found.incomplete
    assert killed_ns - int(found.events["t_ns"].max()) < 1_000_000_000
    assert killed_ns - int(found.rows["t_end"].max()) < 1_000_000_000


# -- the target -------------------------------------------------------------------------------------------------------


def test_a_server_goes_away(tmp_path: Path) -> None:
    """It may come back, so the run continues; a dead address is not tried at full rate."""
    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2)) as server:
        one = begin(tmp_path / "run", "--url", server.url, "--concurrency", "4", "--duration", "3", *FAST)
        try:
            one.until_ok()
            server.stop()
            ended = one.end()
        finally:
            one.kill()
    document = ended.kept(0, "done")
    failed = {group["error"]: group["count"] for group in document["errors"]}
    assert 0 < failed["connect_refused"] < 2_000
    assert f"connect_refused {failed['connect_refused']}" in ended.out


def test_a_server_lost_in_the_warm_up_is_reported_before_the_measurement(tmp_path: Path) -> None:
    """To a closed port nothing is measured: exit code 3, and what the warm-up has is kept."""
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=2.0)) as server:
        one = begin(tmp_path / "run", "--url", server.url, *LONG, *FAST, "--warmup", "300")
        try:
            one.until_answered("warmup")
            os.kill(server.pid, signal.SIGKILL)
            ended = one.end()
        finally:
            one.kill()
            server.ending()
    document = ended.document
    assert ended.code == 3 and "Traceback" not in ended.said and "\nmeasure:" not in ended.out, ended.said
    assert document is not None and document["status"] == "partial"
    assert [phase["name"] for phase in document["phases"]] == ["warmup"]
    (reported,) = document["incidents"]
    assert says(reported, "target-lost", "300", server.url)
    assert reported in ended.out
    assert {"warmup"} == {PHASE_NAMES[phase] for phase in load(ended.folder).rows["phase"]}


def test_a_declared_drain_time_out_says_what_it_cut(tmp_path: Path) -> None:
    """Answers of minutes: it is over long before them."""
    slow = ("--isl", "16", "--osl", "30000", "--warmup", "0", "--simulate", "ttft_ms=5", "itl_ms=20", "--no-telemetry")
    ended = run(
        tmp_path / "run", "--concurrency", "3", "--num-requests", "3", *slow, "--grace", "0.5", "--duration", "1"
    )
    document = ended.document
    assert document is not None and document["counts"]["cancelled"] == 3, ended.said
    assert document["phases"][-1]["drain_timed_out"] is True
    assert "0.5 s (--grace)" in ended.out and ": 3 requests" in ended.out


def test_failures_of_the_warm_up_do_not_stop_what_still_answers(tmp_path: Path) -> None:
    with turning(500, good=4) as url:  # two of them to the preflight
        ended = run(tmp_path / "run", "--url", url, "--rate", "40", "--num-requests", "5", *FAST, "--warmup", "6")
    document = ended.document
    assert document is not None and (ended.code, document["status"]) == (3, "done")
    assert document["incidents"] == [
        "4 of the 6 warm-up requests failed (http_status 4); the measurement continues [warmup-failures]"
    ]


BAD = {429: "rate_limited", 500: "http_error", "page": "protocol_error", "silence": "timeout"}


def test_servers_that_refuse_everything_after_the_first_probe(tmp_path: Path) -> None:
    """Not one answer: exit code 3, every request under its own status, and no echo of the key is shown."""
    with contextlib.ExitStack() as servers:
        urls = [option for bad in BAD for option in ("--url", servers.enter_context(turning(bad)))]
        ended = run(tmp_path / "run", *urls, "--rate", "inf", "--num-requests", "40", "--timeout", "2", *FAST)
    assert ended.code == 3 and "Traceback" not in ended.said, ended.said
    assert ended.document is not None and ended.document["status"] == "done"
    assert (ended.document["completed"], ended.document["failed"]) == (0, 40)
    assert {status: ended.document["counts"][status] for status in BAD.values()} == dict.fromkeys(BAD.values(), 10)


def test_a_server_that_recovers_does_not_fail_the_run(tmp_path: Path) -> None:
    with turning(500, good=9) as url:  # two of them to the preflight
        ended = run(tmp_path / "run", "--url", url, "--rate", "40", "--duration", "0.5", *FAST)
    document = ended.kept(0, "done")
    assert document["completed"] == 7 and document["counts"]["http_error"] == document["failed"] > 0


# -- this host --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of *size* at *folder*; skips where mounting is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    tried = subprocess.run(mount, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_disk_fills_up(tmp_path: Path) -> None:
    """Sending stops, what is on the disk stays and is measured, and there is room for the report."""
    flood = ("--concurrency", "32", "--duration", "60", "--warmup", "0", "--isl", "8", "--osl", "400")
    with small_disk(tmp_path / "disk", "12m") as disk:
        ended = run(disk / "run", *flood, "--simulate", "null=true")
        document = ended.kept(2, "partial")
        events = len(load(ended.folder).events)
    assert "[disk-full]" in ended.out
    assert document["disk_full"] is True and document["certificate"]["verdict"] == "invalid"
    assert events > 100_000


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        run(disk / "run", "--rate", "60", "--duration", "1", *EMBEDDED).refused(2, "the disk of", "is full", "--output")


def test_open_files_run_out_while_the_clock_runs(tmp_path: Path) -> None:
    """The probe found a quick server, the load makes it slow: each request that gets no socket says so, no process dies."""
    slow = ("--simulate", "set.max_running=1", "set.step_ms=20", "--grace", "0.5")
    limited = ("bash", "-c", 'ulimit -n 100 && exec "$@"', "limited")
    one = ("--rate", "40", "--duration", "4", "--workers", "1", "--isl", "8", "--osl", "10", "--warmup", "0")
    document = run(tmp_path / "run", *one, "--no-telemetry", *slow, wrap=limited).kept(0, "done")
    failed = {group["error"]: group["count"] for group in document["errors"]}
    assert failed["no_fd"] > 0
    assert [worker["died"] for worker in document["workers"]] == [False]
    assert document["certificate"]["verdict"] == "invalid"
