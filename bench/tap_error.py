"""A starved client: the worker is stopped for most of every period, and event times are held against the server's log.

    python bench/tap_error.py [--streams 500] [--share 0.2] [--period-ms 250] [--timestamps tap|kernel|user]

Target with --timestamps tap: P99 of (our time less the instant before the server's send) <= 50 us, every event with an exact
time. Without the tap: at least 99.9 % of the true times within the brackets, by 50 us, which is what a send takes.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from pair import arguments, finish, percentile_us, server
from receive_error import TEXT_KINDS
from verdicts import children, wait_until_it_measures

from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.simulator import truth

TARGET_US, TARGET_SHARE, SEND_NS = 50.0, 0.999, 50_000


def starve(client: int, share: float, period_s: float, ended: threading.Event) -> None:
    """Stop the workers of *client* for all but *share* of each period."""
    workers = children(client, "fastllmload.engine.worker")
    try:
        while not ended.is_set():
            for sign, seconds in ((signal.SIGSTOP, period_s * (1 - share)), (signal.SIGCONT, period_s * share)):
                for pid in workers:
                    os.kill(pid, sign)
                time.sleep(seconds)
    except ProcessLookupError:
        return  # the run is over


def starved(command: list[str], folder: Path, share: float, period_s: float) -> Run:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        wait_until_it_measures(client, folder / "run.json")
        time.sleep(1.0)
        ended = threading.Event()
        starver = threading.Thread(target=starve, args=(client.pid, share, period_s, ended))
        starver.start()
        client.wait()
        ended.set()
        starver.join()
    return load(folder)


def main() -> None:
    asked = arguments(__doc__, streams=500, tokens=300, itl_ms=20.0, share=0.2, period_ms=250.0, timestamps="tap")
    with tempfile.TemporaryDirectory() as parent:
        log, folder = str(Path(parent) / "truth"), Path(parent) / "run"
        with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread", truth=log) as engine:
            command = [
                sys.executable, "-m", "fastllmload.cli.main", "--url", engine.url, "-c", str(asked.streams),
                "-n", str(asked.streams), "--osl", str(asked.tokens), "--isl", "16", "--warmup", "0", "--workers", "1",
                "--ui", "none", "--timestamps", asked.timestamps, "-o", str(folder),
            ]  # fmt: skip
            run = starved(command, folder, asked.share, asked.period_ms / 1e3)
        written = truth.load(log).content()
        request = np.repeat(run.rows["request"], np.diff(run.first_event))
        text = np.isin(run.event_kind, TEXT_KINDS)
        events, request = run.events[text], request[text]
        written = written[written["key"] != truth.NO_KEY]
        written = written[np.argsort(written["key"], kind="stable")]["t_ns"]
        events = events[np.argsort(request, kind="stable")]
    late = events["t_ns"] - written
    early = late - events["bracket_ns"]
    exact = (events["stamp"] & layout.STAMP_CLASS_MASK) == layout.STAMP_TAP
    inside = float(np.mean((late >= 0) & (early <= SEND_NS)))
    figures = {f"error_p{q:g}_us": percentile_us(late, q) for q in (50, 99, 100)}
    met = (
        figures["error_p99_us"] <= TARGET_US and bool(exact.all())
        if asked.timestamps == "tap"
        else inside >= TARGET_SHARE
    )
    more = {"events": len(events), "exact_share": float(exact.mean()), "inside_share": inside}
    finish("tap_error", {**vars(asked), **more, **figures, "verdict": run.verdict}, met)


if __name__ == "__main__":
    main()
