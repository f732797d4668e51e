"""What the benchmarks do to a run while it measures, what they put before the engine, and when each event really came."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.simulator import truth

PEERS = Path(__file__).parent / "peers"
FRONT, HOG = PEERS / "front.py", PEERS / "hog.py"
TEXT_KINDS = (layout.EVENT_WHITESPACE, layout.EVENT_CONTENT, layout.EVENT_REASONING, layout.EVENT_TOOL)
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
Numbers = np.ndarray[Any, Any]

# -- processes --------------------------------------------------------------------------------------------------------


def children(parent: int, command: str) -> list[int]:
    """Processes below *parent* whose command line holds *command*."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
            if above == parent and command in line:
                found.append(int(entry.name))
    return found


def workers_of(client: int) -> list[int]:
    return children(client, "fastllmload.engine.workers.worker")


def wait_until_it_measures(client: subprocess.Popen[bytes], path: Path) -> None:
    while client.poll() is None:
        if path.exists() and any(
            phase["name"] == "measure" for phase in json.loads(path.read_text()).get("phases", ())
        ):
            return
        time.sleep(0.05)


def stop(pids: list[int], seconds: float) -> None:
    """All of *pids* stand still; those that have ended meanwhile do that by themselves."""
    for sign in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, sign)
        if sign == signal.SIGSTOP:
            time.sleep(seconds)


def stop_again_and_again(pids: list[int], stopped_s: float, period_s: float, seconds: float) -> None:
    """Stopped for so much of every period, for *seconds*, or until all have ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in pids):
        stop(pids, stopped_s)
        time.sleep(period_s - stopped_s)


@contextmanager
def hogs(count: int, *options: str) -> Iterator[None]:
    """Processes that take CPU time, as *options* of peers/hog.py say."""
    started = [subprocess.Popen([sys.executable, str(HOG), *options]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def hastened(pid: int, nice: int = -10) -> None:
    """What makes the truth gets its processor before what disturbs, where that is permitted."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, nice)


# -- a CPU quota ------------------------------------------------------------------------------------------------------


class Quota:
    """A cgroup of its own for the processes that `command` starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, command: list[str]) -> list[str]:
        """*command* inside the group, with all that it starts."""
        return ["sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh", *command]

    def limit(self, share: float) -> None:
        """So much of one CPU for all of them together."""
        quota = max(1_000, round(share * PERIOD_US))
        if (self._folder / "cpu.max").exists():
            (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))


@contextmanager
def quota() -> Iterator[Quota | None]:
    """None where this process may not make a group."""
    for above in (CGROUPS / "cpu", CGROUPS):
        folder = above / f"fastllmload-bench-{os.getpid()}"
        with suppress(OSError):
            folder.mkdir()
            break
    else:
        yield None
        return
    try:
        known = (folder / "cpu.max").exists() or (folder / "cpu.cfs_quota_us").exists()
        yield Quota(folder) if known else None
    finally:
        folder.rmdir()


# -- between the engine and the client --------------------------------------------------------------------------------


@contextmanager
def front(kind: str, port: int, folder: Path, every_ms: float, cpu: int) -> Iterator[list[str]]:
    """The client's options for where to send to. *kind*: "" (the engine itself), "plain", "tls", "cork" or "tls cork"."""
    if not kind:
        yield ["--url", f"http://127.0.0.1:{port}/v1"]
        return
    command = [sys.executable, str(FRONT), "--to", str(port), "--log", str(folder / "passed.npy")]
    options, scheme = [], "http"
    if "cork" in kind:
        command += ["--every-ms", str(every_ms)]
    if "tls" in kind:
        pem, key = folder / "front.pem", folder / "front.key"
        make_certificate(pem, key)
        command += ["--certificate", str(pem), "--key", str(key)]
        options, scheme = ["--cacert", str(pem)], "https"
    with ExitStack() as held:
        process = held.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        held.callback(process.terminate)
        hastened(process.pid)
        os.sched_setaffinity(process.pid, {cpu})
        assert process.stdout is not None
        yield ["--url", f"{scheme}://localhost:{int(process.stdout.readline())}/v1", *options]


def make_certificate(pem: Path, key: Path) -> None:
    """One that signs itself, for localhost."""
    asked = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(["openssl", *asked, *names], check=True, capture_output=True)


# -- the truth --------------------------------------------------------------------------------------------------------


def passed_by_front(folder: Path) -> Numbers | None:
    path = folder / "passed.npy"
    return np.load(path) if path.exists() else None


def sent_of(run: Run, number: int, written: Numbers, passed: Numbers | None) -> tuple[Numbers, Numbers] | None:
    """Between which instants each event with text of row *number* was sent to the client; None where the two sides do not
    have the same events. *written*: what the engine wrote of that request.
    """
    row, mine = run.rows[number], slice(int(run.first_event[number]), int(run.first_event[number + 1]))
    events = run.events[mine][np.isin(run.events["kind"][mine], TEXT_KINDS)]
    if len(written) != len(events):
        return None
    if passed is None:
        return written["t_ns"], written["t_ns"] + written["took_ns"]
    given = passed[passed["port"] == row["local_port"]]
    places = np.searchsorted(given["bytes"], events["offset"])
    if len(given) == 0 or places.max(initial=0) >= len(given):
        return None
    return given["begin_ns"][places], given["end_ns"][places]


def truth_of(run: Run, folder: Path) -> dict[int, tuple[Numbers, Numbers]] | None:
    """`sent_of` for every row that is ok; None where one has other events than the engine wrote."""
    known, passed = truth.load(str(folder / "truth")).content(), passed_by_front(folder)
    known = known[np.argsort(known["key"], kind="stable")]
    found = {}
    for number in np.flatnonzero(run.rows["status"] == layout.OK).tolist():
        key = run.rows["request"][number]
        mine = slice(np.searchsorted(known["key"], key), np.searchsorted(known["key"], key, side="right"))
        sent = sent_of(run, number, known[mine], passed)
        if sent is None:
            return None
        found[number] = sent
    return found
