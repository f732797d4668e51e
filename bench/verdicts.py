"""A campaign of labelled runs: is the verdict right, does it alarm for nothing, and is the cause the one that was made?

Each run drives the bundled engine, which logs when it wrote each event, while one thing is disturbed (`KINDS`): nothing
(quiet), the worker (client: stopped by signals once, again and again, or for seconds; a CPU quota), the processors (host:
busy loops, contention of 1 to 5 ms, a worker that yields to all others), the engine (server: stopped once or again and
again), or what is between (path: a front that corks for 20 to 200 ms). The loads are open and closed, plain and TLS, of one
and two workers. The truth is the run measured once more with the times at which the engine, or the front, sent the events.

A verdict is right when it is valid and every headline figure is within the rule of the truth, or when it is not valid and
a figure is not, or releases were late. Where the client itself was disturbed (client, host), and where neither the kernel
nor a packet ring stamped its reads, a verdict that is not valid is right also when a bound does not vouch for a figure that
is right by luck, or a disturbed client stood still for more than a second, in which it sent nothing; else it is a false
alarm where all figures are within half of the rule. A cause is right when one that was made (`CAUSES`) is named, and none
that was not; `timestamps` (a bound that is wide without a late read) may come with it, and alone where nothing disturbed the
client.

    python bench/verdicts.py [--runs 400] [--first 0] [--seconds 5] [--seed 1] [--save FILE] [--keep FOLDER]
    python bench/verdicts.py --sum FILE ...

Run n of a seed is the same whatever --first is, so that a campaign can be collected in pieces. --keep keeps the folders of
runs that were not judged right.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from disturbances import (
    TEXT_KINDS,
    Quota,
    front,
    hastened,
    hogs,
    quota,
    stop,
    stop_again_and_again,
    truth_of,
    wait_until_it_measures,
    workers_of,
)
from pair import CLIENT_CPU, SERVER_CPU

from fastllmload.certificate.figures import LIMITS, STATISTICS
from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import known
from fastllmload.documents.write import plain
from fastllmload.errors import RunFolderError
from fastllmload.metrics.run.measure import measure
from fastllmload.records.run import Run, load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

KINDS = {
    "quiet": ("quiet",),
    "client": ("stop", "stops", "long stop", "quota"),
    "host": ("busy", "contention", "starved"),
    "server": ("stop", "stops"),
    "path": ("cork",),
}
LABELS = tuple(KINDS)
CAUSES = {  # of a verdict that is not valid; what else ran on this host may disturb any run
    "quiet": {"host"},
    "client": {"generator"},
    "host": {"host"},
    "server": {"host", "path"},
    "path": {"path", "host"},
}
DISTURBED = ("client", "host")  # labels under which the client may be late
FIGURES = ("ttft", "ttft_sched", "tpot", "itl", "e2e", "e2e_sched")
LATE_US = 1_000.0
CPU = str(CLIENT_CPU)  # of a single worker
TARGETS = {"right": 0.99, "false_alarms": 0.01, "cause_right": 0.95}


@dataclass(frozen=True)
class Case:
    """One run: what is disturbed and how much (0 mild to 1 severe), and the load."""

    label: str
    kind: str
    severity: float
    load: tuple[str, ...]
    osl: int
    itl_ms: float
    client: tuple[str, ...]
    front: str

    @property
    def cork_ms(self) -> float:
        return 20 + 180 * self.severity**2


def case(seed: int, number: int, kinds: dict[str, tuple[str, ...]]) -> Case:
    rng = random.Random(f"{seed} {number}")
    label = LABELS[number % len(LABELS)]
    kind = kinds[label][number // len(LABELS) % len(kinds[label])]
    tls = rng.random() < 0.25
    load = rng.choice([("--rate", "20"), ("--rate", "60"), ("--rate", "150"), ("-c", "4"), ("-c", "16")])
    transport = ("--transport", "asyncio") if rng.random() < 0.25 else ()
    stamps = ("--timestamps", "kernel") if rng.random() < 0.5 else ()
    workers = ("--workers", "1", "--pin", CPU)
    if rng.random() < 0.25 and label != "host":
        workers = ("--workers", "2")
    where = " ".join([*(["tls"] if tls else []), *(["cork"] if label == "path" else [])])
    size, itl = rng.choice((16, 48)), rng.choice((8.0, 20.0))
    return Case(label, kind, rng.random(), load, size, itl, (*transport, *stamps, *workers), where)


# -- one run ----------------------------------------------------------------------------------------------------------


def disturb(one: Case, client: int, engine: int, seconds: float, group: Quota | None) -> None:
    """What happens from the second second of the run on."""
    time.sleep(1.5)
    left = seconds - 2.5
    pids = [engine] if one.label == "server" else workers_of(client)
    if one.kind == "stop":
        stop(pids, 0.02 + 0.4 * one.severity)
    elif one.kind == "long stop":
        stop(pids, 0.5 + 1.5 * one.severity)
    elif one.kind == "stops":
        period = 0.005 if one.severity < 0.3 else 0.02
        stop_again_and_again(pids, period * (0.3 + 0.5 * one.severity), period, left)
    elif one.kind == "quota" and group is not None:
        group.limit(0.12 - 0.1 * one.severity)
        time.sleep(left)
        group.limit(2.0)
    elif one.label == "host":
        trouble(one, pids, left + 0.5)


def trouble(one: Case, workers: list[int], seconds: float) -> None:
    """By other processes of the host."""
    if one.kind == "busy":
        count, options = 1 + round(5 * one.severity), []
    elif one.kind == "contention":
        count, options = 1, ["--cpu", CPU, "--nice", "-5", "--busy-ms", str(1 + 4 * one.severity), "--idle-ms", "15"]
    else:
        count, options = 1, ["--cpu", CPU]
        for pid in workers:
            hastened(pid, round(5 + 14 * one.severity))
    with hogs(count, *options):
        time.sleep(seconds)


def drive(one: Case, seconds: float, seed: int, folder: Path) -> Run | None:
    """The run and its truth log in *folder*; None where the client could not run at all."""
    options = SimulatorOptions(
        ttft_ms=20.0, itl_ms=one.itl_ms, phase="spread", truth=str(folder / "truth"), cpu=SERVER_CPU
    )
    with ExitStack() as held:
        engine = held.enter_context(SimulatorProcess(options))
        hastened(engine.pid)
        target = held.enter_context(front(one.front, engine.port, folder, one.cork_ms, SERVER_CPU))
        command = [
            sys.executable, "-m", "fastllmload.cli.main", *target, *one.load, "--duration", str(seconds), "--osl",
            str(one.osl), "--isl", "16", "--warmup", "0", "--seed", str(seed), "--ui", "none", "-o", str(folder / "run"),
            *one.client,
        ]  # fmt: skip
        group = held.enter_context(quota()) if one.kind == "quota" else None
        command = command if group is None else group.command(command)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(folder / "stderr").open("wb")) as client:
            wait_until_it_measures(client, folder / "run" / "run.json")
            work = threading.Thread(target=disturb, args=(one, client.pid, engine.pid, seconds, group))
            work.start()
            client.wait()
            work.join()
    with suppress(RunFolderError):
        return load(folder / "run")
    return None


def with_true_times(run: Run, folder: Path) -> Run | None:
    """The run as it would be with the times at which events were sent, and with releases that went out when they were due;
    None where the two do not have the same events.
    """
    known = truth_of(run, folder)
    if not known:
        return None
    rows, events = run.rows.copy(), run.events.copy()
    for number, (sent, _) in known.items():
        mine = slice(int(run.first_event[number]), int(run.first_event[number + 1]))
        events["t_ns"][mine][np.isin(events["kind"][mine], TEXT_KINDS)] = sent
        rows[number]["t_first"], rows[number]["t_last"] = sent[0], sent[-1]
    events["bracket_ns"] = 0
    rows["t_sched"] = np.where(rows["t_dispatch"] > 0, rows["t_dispatch"], rows["t_sched"])
    return replace(run, rows=rows, events=events)


# -- judging ----------------------------------------------------------------------------------------------------------


def errors(run: Run, true: Run) -> dict[str, float]:
    """By figure: how far the stated one is from the true one, over what the rule allows of a valid one."""
    truth = measure(true)
    share, least, _ = LIMITS[0]
    found = {}
    for name in FIGURES:
        for statistic in STATISTICS:
            value, right = (known(each.metric(name).statistic(statistic)) for each in (run.document, truth))
            if value is not None and right is not None:
                found[f"{name}_{statistic}"] = abs(value - right) / max(share * right, least)
    return found


@dataclass(frozen=True)
class Outcome:
    """What is asked of one run; *cause_right* is None where nothing had to be named."""

    right: bool
    false_alarm: bool
    cause_right: bool | None


def lag_p99_us(certificate: Certificate) -> float | None:
    return None if certificate.schedule_lag_us is None else known(certificate.schedule_lag_us.p99)


def judged(label: str, certificate: Certificate, worst: float) -> Outcome:
    """*worst*: how far the worst headline figure is from the truth, over what the rule allows."""
    valid = certificate.verdict == "valid"
    lag = lag_p99_us(certificate) or 0.0
    uncertain = any(one.verdict != "valid" for one in certificate.figures.values())
    stood_still = any(one.code == "worker_stall" and one.severity != "note" for one in certificate.reasons)
    excused = lag > LATE_US or (uncertain and (label in DISTURBED or certificate.timestamp_source == "user"))
    excused = excused or (stood_still and label in DISTURBED)
    right = worst <= 1.0 if valid else worst > 1.0 or excused
    alarm = not valid and worst <= 0.5 and not excused
    noted = label in (
        "server",
        "path",
    )  # what is delivered in batches is a note; a client that stopped sends a burst, too
    causes = {
        reason.cause
        for reason in certificate.reasons
        if reason.severity != "note" or (noted and reason.cause == "path")
    }
    if causes == {"timestamps"} and label in ("quiet", "server"):
        return Outcome(right, alarm, True)
    causes -= {"plan", "timestamps"}
    wanted = CAUSES[label]
    if label == "path":
        return Outcome(right, alarm, "path" in causes and "generator" not in causes)
    return Outcome(right, alarm, None if valid else bool(causes & wanted) and not causes - wanted)


def outcome(one: Case, run: Run | None, folder: Path) -> dict[str, Any]:
    """What a line of the campaign says of a run."""
    if run is None or run.document.certificate is None:
        said = (folder / "stderr").read_text(errors="replace")[-300:]
        return {"verdict": "no run", "said": said}
    true = with_true_times(run, folder)
    if true is None:
        return {"verdict": "no truth", "status": dict(Counter(run.rows["status"].tolist()))}
    certificate, wrong = run.document.certificate, errors(run, true)
    worst = max(wrong, key=lambda name: wrong[name])
    return {
        **asdict(judged(one.label, certificate, wrong[worst])),
        "verdict": certificate.verdict,
        "worst": [worst, round(wrong[worst], 3)],
        "lag_p99_us": lag_p99_us(certificate),
        "bars": plain(certificate)["latency_error_bar_us"],
        "source": certificate.timestamp_source,
        "host": [certificate.host.hiccup_p99_us, certificate.host.steal_share],
        "reasons": [f"{r.severity} {r.code} {r.figure} {r.value:.4g} {r.cause}" for r in certificate.reasons],
    }


# -- all of them ------------------------------------------------------------------------------------------------------


def kinds_here() -> dict[str, tuple[str, ...]]:
    """Without quotas where this process may set none."""
    with quota() as group:
        if group is not None:
            return KINDS
    return {label: tuple(kind for kind in kinds if kind != "quota") for label, kinds in KINDS.items()}


def campaign(asked: argparse.Namespace) -> list[dict[str, Any]]:
    kinds, lines = kinds_here(), []
    for number in range(asked.first, asked.first + asked.runs):
        one = case(asked.seed, number, kinds)
        with tempfile.TemporaryDirectory(prefix="fastllmload-verdicts-") as folder:
            run = drive(one, asked.seconds, asked.seed + number, Path(folder))
            found = outcome(one, run, Path(folder))
            if asked.keep and not (found.get("right") and found["cause_right"] is not False):
                shutil.copytree(folder, asked.keep / f"{asked.seed}-{number}", dirs_exist_ok=True)
        lines.append({"seed": asked.seed, "run": number, **asdict(one), **found})
        print(json.dumps(lines[-1]), flush=True)
        if asked.save:
            with asked.save.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    return lines


def finish(lines: list[dict[str, Any]]) -> bool:
    """The sums by label and kind, and of all; whether the targets are met."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(f"{line['label']}: {line['kind']}", []).append(line)
    for name in sorted(groups):
        print(f"{name:18}", json.dumps(summed(groups[name])))
    total = summed(lines)
    met = all(
        total[name] is not None and (total[name] <= limit if name == "false_alarms" else total[name] >= limit)
        for name, limit in TARGETS.items()
    )
    print(json.dumps({"bench": "verdicts", **total, "targets": TARGETS, "met": met}))
    return met


def summed(lines: list[dict[str, Any]]) -> dict[str, Any]:
    judged_ones = [line for line in lines if "right" in line]
    caused = [line for line in judged_ones if line["cause_right"] is not None]
    return {
        "runs": len(lines),
        **Counter(line["verdict"] for line in lines),
        "right": share([line["right"] for line in judged_ones]),
        "false_alarms": share([line["false_alarm"] for line in judged_ones]),
        "cause_right": share([line["cause_right"] for line in caused]),
    }


def share(found: list[bool]) -> float | None:
    return round(sum(found) / len(found), 4) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("runs", 400), ("first", 0), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--seconds", type=float, default=5.0)
    for name in ("save", "keep"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--sum", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.sum:
        lines = [json.loads(line) for path in asked.sum for line in path.read_text().splitlines()]
    else:
        lines = campaign(asked)
    sys.exit(0 if finish(lines) else 1)


if __name__ == "__main__":
    main()
