"""How long the end of a large run takes, and how much memory: merge, numbers, certificate, run.json, every report file.

Run folders of three sizes are made up (the certificate's evidence, the plan and the samples are those of a real run of
two seconds), each is written up in a process of its own on one CPU. Targets: at most 1 s per million events; and memory of
its own (anonymous: pages of files can be given back at any time) that does not grow with the events, but for the bytes
that a request takes. Next to the time that passed is the CPU time, which other work on the machine does not lengthen as
much.

    python bench/report_scale.py [--requests 150000] [--tokens 160] [--step 2]
    python bench/report_scale.py --requests 2200 --tokens 10000     # a flood: few requests, long answers
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from pair import finish

from fastllmload._ext.record import recorder
from fastllmload.documents.write import encoded
from fastllmload.records import layout
from fastllmload.records.run import load, read_document

TARGET_S = 1.0  # per million events
TARGET_MIB = 2.0  # of anonymous memory per million events more
PER_REQUEST = 1024  # bytes of anonymous memory that a request may take
ORIGIN_NS = 1_000_000_000_000
MS = 1_000_000
RATE = 500.0  # requests/s
CHUNK = 1_000_000  # events that are drawn at a time
LOOK_S = 0.01


def real_run(folder: Path) -> None:
    """A run of two seconds against the simulated engine."""
    options = ["--rate", "50", "--duration", "2", "--warmup", "5", "--osl", "16", "--ui", "none", "--workers", "1"]
    goodput = ["--goodput", "ttft:300", "tpot:40", "itl:400", "fluidity:0.9"]
    subprocess.run(
        [sys.executable, "-m", "fastllmload", *options, *goodput, "-o", str(folder)],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )


def drawn_rows(rng: np.random.Generator, first: int, requests: int, tokens: int) -> Any:
    """Rows that are ok, one in 200 cut off, with the times of their tokens: (rows, t_ns[requests, tokens])."""
    rows = np.zeros(requests, layout.REQUEST)
    rows["request"] = rows["session"] = np.arange(first, first + requests)
    rows["t_sched"] = ORIGIN_NS + (rows["request"] * (1e9 / RATE)).astype(np.int64)
    rows["t_dispatch"] = rows["t_sched"] + rng.integers(1_000, 40_000, requests)
    rows["t_submit"] = rows["t_submit_start"] = rows["t_dispatch"] + rng.integers(20_000, 90_000, requests)
    gaps = rng.gamma(4.0, 5.0 * MS, (requests, tokens)).astype(np.int64)
    gaps[:, 0] = rng.lognormal(4.0, 0.6, requests) * MS
    t_ns = rows["t_submit"][:, None] + np.cumsum(gaps, axis=1)
    rows["t_headers"] = rows["t_submit"] + gaps[:, 0] // 2
    rows["t_any"] = rows["t_first"] = t_ns[:, 0]
    rows["t_last"], rows["t_end"], rows["t_end_user"] = t_ns[:, -1], t_ns[:, -1] + 50_000, t_ns[:, -1] + 60_000
    rows["input_target"] = rows["prompt_tokens"] = rng.integers(64, 512, requests)
    rows["output_target"] = rows["completion_tokens"] = rows["content_events"] = rows["events"] = tokens
    rows["cached_tokens"] = rows["reasoning_tokens"] = rows["retry_after_ms"] = -1
    rows["phase"], rows["http_status"], rows["stamps"], rows["reads"] = layout.MEASURE, 200, 1, tokens
    rows["finish"], rows["flags"] = 2, layout.FLAG_STREAM | layout.FLAG_USAGE | layout.FLAG_REUSED | layout.FLAG_DONE
    rows["bytes_sent"], rows["bytes_received"], rows["text_bytes"] = 900, 200 * tokens, 5 * tokens
    cut = rows["request"] % 200 == 7
    rows["status"] = np.where(cut, layout.TRUNCATED, layout.OK)
    rows["error"] = np.where(cut, layout.ERROR_NAMES.index("closed_in_body"), 0)
    return rows, t_ns


def make_folder(folder: Path, real: Path, requests: int, tokens: int) -> None:
    """The files of *real* with other rows, other events and the phase that belongs to them."""
    shutil.copytree(real, folder)
    for name in ("requests.npy", "tokens.npy"):
        (folder / name).unlink()
    worker = folder / "workers" / "0"
    worker.mkdir(parents=True)
    rng, at_once = np.random.default_rng(1), max(1, CHUNK // tokens)
    with open(worker / "requests.npy", "wb") as rows_file, open(worker / "tokens.npy", "wb") as events_file:
        rows_file.write(recorder.npy_header(layout.REQUEST, requests))
        events_file.write(recorder.npy_header(layout.EVENT, requests * tokens))
        for first in range(0, requests, at_once):
            rows, t_ns = drawn_rows(rng, first, min(at_once, requests - first), tokens)
            events = np.zeros(t_ns.size, layout.EVENT)
            events["t_ns"], events["kind"], events["stamp"] = t_ns.reshape(-1), layout.EVENT_CONTENT, 1
            events["row"] = np.repeat(rows["request"], tokens)
            rows.tofile(rows_file)
            events[np.argsort(events["t_ns"], kind="stable")].tofile(events_file)  # as they came, streams mixed
    document = read_document(folder)
    phase = document.phase("measure")
    assert phase is not None
    phase = replace(phase, start_ns=ORIGIN_NS, end_ns=ORIGIN_NS + round(requests / RATE * 1e9))
    document = replace(document, phases=(phase,), files=None)  # of the real run
    (folder / "run.json").write_bytes(encoded(document))


class Memory(threading.Thread):
    """The most memory that this process had while it was watched, by kind, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"RssAnon": 0.0, "RssFile": 0.0}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(LOOK_S):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.most:
                    self.most[name] = max(self.most[name], int(value.split()[0]) / 1024)


def report(folder: Path) -> dict[str, Any]:
    """What the end of a run does with this folder: seconds of each step, and the peaks of memory in MiB."""
    from fastllmload.certificate.judge import judged
    from fastllmload.metrics.run.measure import measure
    from fastllmload.records.integrity import inventory
    from fastllmload.records.merge import merge_workers
    from fastllmload.report.documents.forms import write_reports

    clock, steps, memory = time.perf_counter, {}, Memory()
    memory.start()
    spent_before = time.process_time()
    begun = clock()
    if (folder / "workers").exists():
        merge_workers(folder)
    steps["merge"] = clock()
    document = replace(read_document(folder), files=inventory(folder))
    (folder / "run.json").write_bytes(encoded(document))
    steps["inventory"] = clock()
    run = load(folder)
    steps["load"] = clock()
    run = run.with_document(measure(run))
    steps["measure"] = clock()
    run = run.with_document(judged(run))
    steps["certificate"] = clock()
    (folder / "run.json").write_bytes(encoded(run.document))
    steps["run.json"] = clock()
    problems = write_reports(run)
    steps["reports"] = clock()
    if problems:
        raise SystemExit("\n".join(problems))
    memory.ended.set()
    memory.join()
    ends = [begun, *steps.values()]
    seconds = {name: ends[k + 1] - ends[k] for k, name in enumerate(steps)}
    spent = {"cpu": time.process_time() - spent_before, **memory.most}
    return {"requests": len(run.rows), "events": len(run.events), **seconds, "total": ends[-1] - begun, **spent}


def measured(folder: Path) -> dict[str, Any]:
    """`report` in a process of its own, on one CPU."""
    cpu = max(os.sched_getaffinity(0))
    command = [sys.executable, __file__, "--report", str(folder), "--cpu", str(cpu)]
    done = subprocess.run(command, check=True, timeout=600, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(found: list[dict[str, Any]]) -> None:
    """One line per size, with the time per million events: equal numbers are linear scaling."""
    steps = [name for name in found[0] if name not in ("requests", "events", "total", "cpu", "RssAnon", "RssFile")]
    heads = (*steps, "total s", "s / M", "cpu s / M", "anon MiB", "file MiB")
    print(f"{'events':>12} " + " ".join(f"{name:>11}" for name in heads))
    for each in found:
        millions = each["events"] / 1e6
        figures = [*(each[name] for name in steps), each["total"], each["total"] / millions, each["cpu"] / millions]
        print(f"{each['events']:>12,} " + " ".join(f"{n:>11.3f}" for n in (*figures, each["RssAnon"], each["RssFile"])))


def growth_mib(found: list[dict[str, Any]]) -> float:
    """Anonymous memory per million events more, from the smallest size to the largest, beyond what requests may take."""
    least, most = found[0], found[-1]
    for_requests = (most["requests"] - least["requests"]) * PER_REQUEST / 2**20
    return float((most["RssAnon"] - least["RssAnon"] - for_requests) / ((most["events"] - least["events"]) / 1e6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=150_000)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--step", type=int, default=2, help="each size is that many times the one before")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.report is not None:
        os.sched_setaffinity(0, {asked.cpu})
        print(json.dumps(report(asked.report)))
        return
    found = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        real_run(Path(scratch) / "real")
        for size in (asked.requests // asked.step**2, asked.requests // asked.step, asked.requests):
            folder = Path(scratch) / "made"
            make_folder(folder, Path(scratch) / "real", size, asked.tokens)
            found.append(measured(folder))
            shutil.rmtree(folder)
    show(found)
    figures = {"s_per_million": found[-1]["total"] / found[-1]["events"] * 1e6, "mib_per_million": growth_mib(found)}
    met = figures["s_per_million"] <= TARGET_S and figures["mib_per_million"] <= TARGET_MIB
    finish("report_scale", {**figures, "target_s": TARGET_S, "target_mib": TARGET_MIB}, met)


if __name__ == "__main__":
    main()
