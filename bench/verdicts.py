"""A campaign of labelled runs: is the verdict right, does it alarm for nothing, and is the cause the one that was made?

Each run drives the bundled engine, which logs when it wrote each event, while one thing is disturbed: nothing (quiet), the
worker (client: SIGSTOP, once or again and again), the processors (host: busy loops), the engine (server: SIGSTOP), or what
is between (path: a relay that collects output for 20 to 80 ms). The truth is the run measured once more with the engine's
own times in place of the client's; where a front adds TLS, with the times at which that passed the events on.

A verdict is right when it is valid and every headline figure is within the rule of the truth, or when it is not valid and a
figure is not, or requests were sent or read so late that the bounds of a figure do not vouch for it. A false alarm is a
verdict that is not valid of a run in which every figure is within half of the rule, by the truth and by its bounds.

    python bench/verdicts.py [--runs 400] [--seconds 5] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.certificate.figures import LIMITS, STATISTICS
from fastllmload.metrics.core import measure
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.simulator import truth
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

LABELS = ("quiet", "client", "host", "server", "path")
CAUSES = {"client": {"generator"}, "host": {"host"}, "server": {"host"}, "path": {"path", "host"}}
TEXT_KINDS = (layout.EVENT_WHITESPACE, layout.EVENT_CONTENT, layout.EVENT_REASONING, layout.EVENT_TOOL)
FIGURES = ("ttft", "tpot", "itl", "e2e")
LATE_US = 1_000.0
PEERS = Path(__file__).parent / "peers"
RELAY, TLS_FRONT = PEERS / "batching_relay.py", PEERS / "tls_front.py"
TARGETS = {"right": 0.99, "false_alarms": 0.01, "cause_right": 0.95}


@dataclass(frozen=True)
class Case:
    """One run: what is disturbed, how much, and the load."""

    label: str
    severity: float  # 0 mild to 1 severe
    rate: float
    osl: int
    itl_ms: float
    transport: tuple[str, ...]
    tls: bool


def cases(rng: random.Random, runs: int) -> Iterator[Case]:
    for number in range(runs):
        label = LABELS[number % len(LABELS)]
        yield Case(
            label,
            rng.random(),
            rng.choice((20.0, 60.0, 150.0)),
            rng.choice((16, 48)),
            rng.choice((8.0, 20.0)),
            rng.choice(((), (), ("--transport", "asyncio"))),
            rng.random() < 0.25 and label != "path",
        )


# -- disturbances -----------------------------------------------------------------------------------------------------


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


def stop(pids: list[int], seconds: float) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def stop_again_and_again(pids: list[int], case: Case, seconds: float) -> None:
    """Once for 20 to 400 ms, or for 30 to 80 % of every 20 ms of the run."""
    if case.severity < 0.5:
        stop(pids, 0.02 + 0.76 * case.severity)
        return
    share, end = 0.3 + (case.severity - 0.5), time.monotonic() + seconds
    while time.monotonic() < end:
        stop(pids, 0.02 * share)
        time.sleep(0.02 * (1 - share))


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


@contextmanager
def front(case: Case, port: int, folder: Path) -> Iterator[list[str]]:
    """The client's options for where to send to: the engine itself, or what is put before it."""
    if case.label != "path" and not case.tls:
        yield ["--url", f"http://127.0.0.1:{port}/v1"]
        return
    command, options = [sys.executable, str(RELAY), "--to", str(port), "--every-ms", str(20 + 60 * case.severity)], []
    if case.tls:
        pem, key = folder / "front.pem", folder / "front.key"
        make_certificate(pem, key)
        command = [sys.executable, str(TLS_FRONT), "--to", str(port), "--certificate", str(pem), "--key", str(key)]
        command += ["--log", str(folder / "passed.npy")]
        options = ["--cacert", str(pem)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            at = f"localhost:{int(process.stdout.readline())}/v1"
            yield ["--url", f"{'https' if case.tls else 'http'}://{at}", *options]
        finally:
            process.terminate()


def make_certificate(pem: Path, key: Path) -> None:
    """One that signs itself, for localhost."""
    asked = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(["openssl", *asked, *names], check=True, capture_output=True)


def disturb(case: Case, client: int, engine: int, seconds: float) -> None:
    """What happens from the second second of the run on."""
    time.sleep(1.5)
    if case.label == "client":
        stop_again_and_again(children(client, "fastllmload.engine.worker"), case, seconds - 2.5)
    elif case.label == "server":
        stop([engine], 0.02 + 0.4 * case.severity)
    elif case.label == "host":
        with busy_loops(1 + round(5 * case.severity)):
            time.sleep(seconds - 2)


# -- one run ----------------------------------------------------------------------------------------------------------


def drive(case: Case, seconds: float, seed: int, folder: Path) -> Run | None:
    """The run and its truth log in *folder*; None where the client could not run at all."""
    options = SimulatorOptions(ttft_ms=20.0, itl_ms=case.itl_ms, phase="spread", truth=str(folder / "truth"))
    with SimulatorProcess(options) as engine, front(case, engine.port, folder) as target:
        command = [
            sys.executable, "-m", "fastllmload.cli.main", *target, "--rate", str(case.rate),
            "--duration", str(seconds), "--osl", str(case.osl), "--isl", "16", "--warmup", "0", "--workers", "1",
            "--seed", str(seed), "--ui", "none", "-o", str(folder / "run"), *case.transport,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            wait_until_it_measures(client, folder / "run" / "run.json")
            work = threading.Thread(target=disturb, args=(case, client.pid, engine.pid, seconds))
            work.start()
            client.wait()
            work.join()
    return load(folder / "run") if (folder / "run" / "requests.npy").exists() else None


def wait_until_it_measures(client: subprocess.Popen[bytes], path: Path) -> None:
    while client.poll() is None:
        if path.exists() and any(
            phase["name"] == "measure" for phase in json.loads(path.read_text()).get("phases", ())
        ):
            return
        time.sleep(0.05)


def with_true_times(run: Run, known: truth.Truth, passed: np.ndarray[Any, Any] | None = None) -> Run | None:
    """The run as it would be with the engine's own times, or with those at which a front passed the events on; None where
    the two do not have the same events.
    """
    rows, events = run.rows.copy(), run.events.copy()
    written = known.content()
    for number, row in enumerate(rows):
        mine = slice(int(run.first_event[number]), int(run.first_event[number + 1]))
        text = np.isin(events["kind"][mine], TEXT_KINDS)
        if row["status"] != layout.OK:
            continue
        sent = written["t_ns"][written["key"] == row["request"]]
        if len(sent) != int(text.sum()):
            return None
        if passed is not None:
            given = passed[passed["port"] == row["local_port"]]
            places = np.searchsorted(given["bytes"], events["offset"][mine][text])
            if len(given) == 0 or places.max() >= len(given):
                return None
            sent = given["t_ns"][places]
        events["t_ns"][mine][text] = sent
        row["t_first"], row["t_last"] = sent[0], sent[-1]
    events["bracket_ns"] = 0
    return replace(run, rows=rows, events=events)


def errors(run: Run, true: Run) -> dict[str, float]:
    """By figure: how far the stated one is from the true one, over what the rule allows of a valid one."""
    stated, known = run.manifest["metrics"], measure(true)["metrics"]
    share, least, _ = LIMITS[0]
    found = {}
    for name in FIGURES:
        for statistic in STATISTICS:
            value, right = stated[name][statistic], known[name][statistic]
            if value is not None and right is not None:
                found[f"{name}_{statistic}"] = abs(value - right) / max(share * right, least)
    return found


@dataclass(frozen=True)
class Outcome:
    """What is asked of one run; *cause_right* is None where nothing had to be named."""

    right: bool
    false_alarm: bool
    cause_right: bool | None


def judged(case: Case, run: Run, true: Run) -> Outcome:
    certificate = run.manifest["certificate"]
    valid, wrong = certificate["verdict"] == "valid", errors(run, true)
    lag = certificate["schedule_lag_us"].get("p99") or 0.0
    worst = max(wrong.values(), default=0.0)
    if case.label == "path":  # the relay's own delay is in the client's times, and is the truth for the user
        worst = 0.0
    late = lag > LATE_US or any(one["verdict"] != "valid" for one in certificate["figures"].values())
    right = worst <= 1.0 if valid else worst > 1.0 or late
    alarm = not valid and worst <= 0.5 and not late
    causes = {
        reason["cause"]
        for reason in certificate["reasons"]
        if reason["severity"] != "note" or reason["cause"] == "path"
    }
    wanted = CAUSES.get(case.label)
    if case.label == "path":
        return Outcome(right, alarm, "path" in causes and "generator" not in causes)
    return Outcome(
        right, alarm, None if valid or wanted is None else bool(causes & wanted) and not causes - wanted - {"plan"}
    )


# -- all of them ------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    counts: dict[str, Counter[str]] = {label: Counter() for label in LABELS}
    for number, case in enumerate(cases(random.Random(asked.seed), asked.runs)):
        with tempfile.TemporaryDirectory(prefix="fastllmload-verdicts-") as folder:
            run = drive(case, asked.seconds, asked.seed + number, Path(folder))
            passed = np.load(Path(folder) / "passed.npy") if case.tls else None
            true = None if run is None else with_true_times(run, truth.load(str(Path(folder) / "truth")), passed)
            mine = counts[case.label]
            mine["runs"] += 1
            if run is None or true is None or "certificate" not in run.manifest:
                mine["without_truth"] += 1
                continue
            found = judged(case, run, true)
        tally(mine, found, run.manifest["certificate"]["verdict"])
        print(
            json.dumps({"run": number, **vars(case), **vars(found), **shown(run.manifest["certificate"])}), flush=True
        )
    finish(counts)


def tally(mine: Counter[str], found: Outcome, verdict: str) -> None:
    mine[verdict] += 1
    mine["judged"] += 1
    mine["right"] += found.right
    mine["false_alarms"] += found.false_alarm
    if found.cause_right is not None:
        mine["caused"] += 1
        mine["cause_right"] += found.cause_right


def shown(certificate: dict[str, Any]) -> dict[str, Any]:
    reasons = [f"{each['severity']} {each['code']} {each['figure']} {each['cause']}" for each in certificate["reasons"]]
    return {"verdict": certificate["verdict"], "reasons": reasons}


def finish(counts: dict[str, Counter[str]]) -> None:
    total: Counter[str] = Counter()
    for label, mine in counts.items():
        print(label, dict(mine))
        total += mine
    share: Callable[[str, str], float | None] = lambda name, of: total[name] / total[of] if total[of] else None  # noqa: E731
    figures = {
        "right": share("right", "judged"),
        "false_alarms": share("false_alarms", "judged"),
        "cause_right": share("cause_right", "caused"),
    }
    print(json.dumps({"bench": "verdicts", **total, **figures, "targets": TARGETS}))


if __name__ == "__main__":
    main()
