"""A disturbed client: event times are held against the instants at which the server, or a front before it, sent them.

    python bench/tap_error.py [--streams 500] [--disturb stops] [--stopped-ms 200] [--period-ms 250] [--timestamps tap]
                              [--front tls | cork | plain | "tls cork"] [--every-ms 40] [--transport auto] [--options ""]

--disturb stops: the worker is stopped by signals for so much of every period; hogs: a process at nice -5 takes the worker's
CPU for --stopped-ms again and again, with --period-ms less that between on average; none: nothing.

Target with --timestamps tap: P99 of (our time less the instant before the send) <= 50 us, every event with an exact time.
Without the tap: at least 99.9 % of the true times within the brackets; with --disturb none their P99 <= 200 us as well.
"""

import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from disturbances import (
    TEXT_KINDS,
    front,
    hastened,
    hogs,
    stop_again_and_again,
    truth_of,
    wait_until_it_measures,
    workers_of,
)
from pair import CLIENT_CPU, SERVER_CPU, arguments, finish, percentile_us, server

from fastllmload.documents.write import plain
from fastllmload.records import layout
from fastllmload.records.run import Run, load

TARGET_US, TARGET_SHARE, QUIET_US = 50.0, 0.999, 200.0
ALWAYS_S = 600.0


def disturb(asked: Namespace, client: subprocess.Popen[bytes]) -> None:
    """Until the client ends."""
    stopped_s, period_s = asked.stopped_ms / 1e3, asked.period_ms / 1e3
    if asked.disturb == "stops":
        stop_again_and_again(workers_of(client.pid), stopped_s, period_s, ALWAYS_S)
    elif asked.disturb == "hogs":
        times = ("--busy-ms", str(asked.stopped_ms), "--idle-ms", str(asked.period_ms - asked.stopped_ms))
        with hogs(1, "--cpu", str(CLIENT_CPU), "--nice", "-5", *times):
            client.wait()


def driven(asked: Namespace, command: list[str], folder: Path) -> Run:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as client:
        wait_until_it_measures(client, folder / "run.json")
        time.sleep(1.0)
        disturber = threading.Thread(target=disturb, args=(asked, client))
        disturber.start()
        client.wait()
        disturber.join()
    return load(folder)


def main() -> None:
    asked = arguments(
        __doc__, streams=500, tokens=300, itl_ms=20.0, disturb="stops", stopped_ms=200.0, period_ms=250.0,
        timestamps="tap", front="", every_ms=40.0, transport="auto", options="",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        log = str(Path(parent) / "truth")
        with (
            server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread", truth=log) as engine,
            front(asked.front, engine.port, Path(parent), asked.every_ms, SERVER_CPU) as target,
        ):
            hastened(engine.pid)
            command = [
                sys.executable, "-m", "fastllmload.cli.main", *target, "-c", str(asked.streams),
                "-n", str(asked.streams), "--osl", str(asked.tokens), "--isl", "16", "--warmup", "0", "--workers", "1",
                "--pin", str(CLIENT_CPU), "--ui", "none", "--timestamps", asked.timestamps,
                "--transport", asked.transport, "-o", str(folder), *asked.options.split(),
            ]  # fmt: skip
            run = driven(asked, command, folder)
        known = truth_of(run, Path(parent))
    if not known:
        raise SystemExit("the server sent other events than we saw")
    report(asked, run, known)


def report(asked: Namespace, run: Run, known: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
    events = np.concatenate([run.events[run.first_event[row] : run.first_event[row + 1]] for row in known])
    events = events[np.isin(events["kind"], TEXT_KINDS)]
    begin, end = (np.concatenate([sent[side] for sent in known.values()]) for side in (0, 1))
    late, early = events["t_ns"] - begin, events["t_ns"] - events["bracket_ns"] - end
    exact = (events["stamp"] & layout.STAMP_CLASS_MASK) == layout.STAMP_TAP
    within = (late >= 0) & (early <= 0)
    figures = {f"error_p{q:g}_us": percentile_us(late, q) for q in (50, 99, 100)}
    figures |= {f"bracket_p{q:g}_us": percentile_us(events["bracket_ns"], q) for q in (50, 99, 100)}
    figures |= {f"outside_p{q:g}_us": percentile_us(early[early > 0], q) for q in (50, 100) if (early > 0).any()}
    if asked.timestamps == "tap":
        met = figures["error_p99_us"] <= TARGET_US and bool(exact.all())
    else:
        met = float(within.mean()) >= TARGET_SHARE
        met &= asked.disturb != "none" or figures["bracket_p99_us"] <= QUIET_US
    classes = np.bincount(events["stamp"] & layout.STAMP_CLASS_MASK, minlength=len(layout.STAMP_NAMES))
    more = {"events": len(events), "inside_share": float(within.mean()), "too_late": int((late < 0).sum())}
    more |= dict(zip(layout.STAMP_NAMES, classes.tolist(), strict=False))
    bars = plain(run.document)["certificate"]["latency_error_bar_us"]
    finish("tap_error", {**vars(asked), **more, **figures, "bars": bars, "verdict": run.verdict}, bool(met))


if __name__ == "__main__":
    main()
