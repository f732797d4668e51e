"""Run the command against a simulated engine with a truth log, and join what we report with what happened."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import command
from msgspec.structs import replace

from fastllmload.cli.options.classes import class_from_text
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import from_table
from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.engine.run import execute
from fastllmload.records.layout import EVENT_NAMES
from fastllmload.records.run import Run, load
from fastllmload.redact import Redactor
from fastllmload.report.terminal.view import make_ui
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import Truth
from fastllmload.simulator.truth import load as load_truth

MEASURE = "measure"
CONTENT = EVENT_NAMES.index("content")
QUIET_US = 100.0
REPLIES = 200  # of bare_reply_us
PAUSES_S = (0, 1, 2, 4, 8, 15, 15, 15)  # before each try
SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
ANSWERS = """
import os, select, socket, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waiting = select.epoll()
    waiting.register(connection, select.EPOLLIN)
    while waiting.poll() and (data := connection.recv(64)):
        connection.sendall(data)
"""
TRIES = int(os.environ.get("FLL_TRIES", len(PAUSES_S)))  # fewer where what fails goes again (tools/check)


@dataclass
class Measured:
    """A run and its truth. *pairs*: rows of the run and of truth.requests that are the same request."""

    run: Run
    truth: Truth
    document: dict[str, Any]
    exit_code: int
    said: str

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        number = next(phase["number"] for phase in self.run.manifest["phases"] if phase["name"] == MEASURE)
        ours = self.run.rows[(self.run.rows["phase"] == 1) & (self.run.rows["t_submit"] > 0)]
        theirs = self.truth.requests[self.truth.requests["phase"] == number]
        theirs = theirs[np.argsort(theirs["key"], kind="stable")]
        assert list(ours["request"]) == list(theirs["key"]), "every request of the run is in the truth log, once"
        return ours, theirs

    def content_errors_ns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(stated time - true time, stamp class, how long the server's send took) of every content event of the measured
        phase. The true time is the instant before that send, in which the segment reaches this host's receiving side.
        """
        number = next(phase["number"] for phase in self.run.manifest["phases"] if phase["name"] == MEASURE)
        errors, classes, took = [], [], []
        truth = self.truth.content()
        truth = truth[truth["phase"] == number]
        order = np.lexsort((truth["index"], truth["key"]))
        truth = truth[order]
        starts = np.searchsorted(truth["key"], np.arange(len(self.run.rows) + 1))
        for r in np.flatnonzero(self.run.rows["phase"] == 1):
            mine = slice(self.run.first_event[r], self.run.first_event[r + 1])
            chosen = self.run.event_kind[mine] == CONTENT
            stated = self.run.event_t[mine][chosen]
            key = int(self.run.rows["request"][r])
            sent = truth[starts[key] : starts[key + 1]]
            true = sent["t_ns"]
            assert len(stated) == len(true), f"request {key}: {len(stated)} events stated, {len(true)} sent"
            errors.append(stated - true)
            took.append(sent["took_ns"].astype(np.int64))
            classes.append(self.run.event_stamp[mine][chosen] & 3)
        return np.concatenate(errors), np.concatenate(classes), np.concatenate(took)

    def content_brackets_ns(self) -> np.ndarray:
        """How much earlier than stated each event of content_errors_ns() may have come."""
        rows = np.flatnonzero(self.run.rows["phase"] == 1)
        events = [self.run.events[self.run.first_event[r] : self.run.first_event[r + 1]] for r in rows]
        return np.concatenate([mine["bracket_ns"][mine["kind"] == CONTENT] for mine in events]).astype(np.int64)


def measure(
    directory: Path,
    options: list[str],
    *,
    during: Callable[[Path], None] | None = None,
    pin: bool = True,
    **simulator: Any,
) -> Measured:
    """One run of the command with *options*; *during* is called with the run folder meanwhile."""
    directory.mkdir(parents=True)
    truth = directory / "truth.bin"
    folder = directory / "run"
    cores = sorted(os.sched_getaffinity(0))
    given = SimulatorOptions(truth=str(truth), cpu=cores[0], **simulator)
    with SimulatorProcess(given) as server:
        pinned = [] if not pin or len(cores) < 2 else ["--pin", str(cores[-1])]
        words = ["--url", server.url, "--ui", "plain", "-o", str(folder), *pinned, *options]
        if during is None:
            done = command(*words)
            code, said = done.returncode, done.stdout + done.stderr
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", "fastllmload", *words],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            during(folder)
            said, _ = process.communicate(timeout=120)
            code = process.returncode
    assert (folder / "run.json").exists(), said
    document = json.loads((folder / "run.json").read_text())
    return Measured(load(folder), load_truth(truth), document, code, said)


def mix_from_two_hosts(
    directory: Path,
    classes: Sequence[str],
    seconds: float,
    collect: str = "rows",
    view: Any = None,
    options: Mapping[str, Any] | None = None,
    **simulator: Any,
) -> Run:
    """A run of *classes* from two hosts with a worker each, whose events are fetched as *collect* says. *options*: more, by
    name.
    """
    with SimulatorProcess(SimulatorOptions(**simulator)) as engine:
        given = {"class": [class_from_text("", one) for one in classes], "duration": seconds, "seed": 6, "warmup": 8}
        given |= options or {}
        settings, _ = read_settings(from_table(given, "", ""), {}, Redactor([]))
        settings = replace(
            settings,
            target=replace(settings.target, urls=(engine.url,)),
            telemetry=replace(settings.telemetry, enabled=False),
            client=replace(settings.client, workers=1),
            hosts=replace(settings.hosts, collect=collect),
            output=replace(settings.output, directory=str(directory), ui="none"),
        )
        view = view or make_ui("none", io.StringIO())
        assert execute(settings, None, view, placement=LocalPlacement(2)) in (0, 3)
    return load(directory)


def until_quiet(directory: Path, check: Callable[[Path], tuple[bool | None, str]]) -> None:
    """Call *check* until it passes; a failure counts only if it came at every try of a minute: other work on this host
    disturbs it. Where no try of a minute could be judged at all (None), the test is skipped with what was seen.
    """
    problems, verdicts = [], []
    for attempt, pause_s in enumerate(PAUSES_S[:TRIES]):
        time.sleep(pause_s)
        passed, problem = check(directory / str(attempt))
        if passed:
            return
        problems.append(problem)
        verdicts.append(passed)
    described = f"{len(problems)} times: " + " | ".join(problems)
    if len(verdicts) == len(PAUSES_S) and all(verdict is None for verdict in verdicts):
        pytest.skip(f"the host was not quiet {described}")
    raise AssertionError(f"failed {described}")


def bare_reply_us() -> float:
    """Median time on this host, in us, from a send over loopback to the kernel's receipt of the reply of a process on the
    last core that sleeps until data come and sends them back.
    """
    cores = sorted(os.sched_getaffinity(0))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = [sys.executable, "-c", ANSWERS, str(listening.getsockname()[1]), str(cores[-1])]
        with subprocess.Popen(words) as answering:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                took = [reply_ns(connection) for _ in range(REPLIES)]
            assert answering.wait(timeout=10) == 0
    return float(np.median(took)) / 1e3


def reply_ns(connection: socket.socket) -> int:
    time.sleep(0.003)  # what answers has gone to sleep
    sent = time.time_ns()
    connection.sendall(bytes(40))
    data, (stamp,), _, _ = connection.recvmsg(64, 64)
    assert len(data) == 40
    seconds, ns = struct.unpack("qq", stamp[2])
    return int(seconds * 1_000_000_000 + ns - sent)


def within(
    measured: Measured, found: Mapping[str, npt.NDArray[np.float64]], p50_us: float, p99_us: float
) -> bool | None:
    """Whether P50 and P99 of each of *found*, in us, are within the limits. None where only a tail is not, and a thread of
    the run that does nothing but sleep was late as well, at QUIET_US or more by its P99: that says nothing about ours.
    """
    if any(p50 > p50_us for p50, _ in found.values()):
        return False
    if all(p99 <= p99_us for _, p99 in found.values()):
        return True
    return None if measured.document["certificate"]["host"]["hiccup_p99_us"] >= QUIET_US else False


def times_within(
    measured: Measured, p50_us: float, p99_us: float, **more_ns: npt.NDArray[np.int64]
) -> tuple[bool | None, str]:
    """The same of how far the times of all tokens, ttft and *more_ns* are from the server's, and what was found."""
    ours, theirs = measured.joined()
    tokens, _, _ = measured.content_errors_ns()
    assert np.percentile(tokens, 0.1) > -2_000, "nothing is received before it is sent"
    ttft = (ours["t_first"] - ours["t_submit"]) - (theirs["t_first"] - theirs["t_recv_last_kernel"])
    errors = {"token": tokens, "ttft": ttft, **more_ns}
    found = {name: np.percentile(np.abs(each), [50, 99]) / 1e3 for name, each in errors.items()}
    described = str({name: figures.round(1).tolist() for name, figures in found.items()})
    return within(measured, found, p50_us, p99_us), described


def wait_for_phase(folder: Path, name: str = MEASURE, after_s: float = 0.0) -> dict[str, Any]:
    """Block until the run's *name* phase has begun (and *after_s* more); returns run.json."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        path = folder / "run.json"
        if path.exists():
            document: dict[str, Any] = json.loads(path.read_text())
            started = [phase for phase in document["phases"] if phase["name"] == name]
            if started and time.monotonic_ns() > started[0]["start_ns"] + after_s * 1e9:
                return document
        time.sleep(0.02)
    raise AssertionError(f"the {name} phase did not begin")


def worker_pids(parent: int) -> list[int]:
    """Processes of the run's workers, found by their command line under *parent*."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if int(stat[1]) == parent and b"fastllmload.engine.workers.worker" in line:
            found.append(int(entry.name))
    return found


def worker_pids_of(folder: Path) -> list[int]:
    """The worker that writes to *folder*: its parent is the only process that runs the command on it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line and b"fastllmload" in line:
                found = worker_pids(int(entry.name))
                if found:
                    return found
    raise AssertionError(f"no worker of {folder} found")


def freeze(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
