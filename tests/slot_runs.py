"""Replaces `engine.run.execute`: writes the run folder of a slot server's level, in simulated time."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from slot_server import Served, SlotServer
from synthetic_run import ORIGIN_NS, duration_phase

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.write import plain
from fastllmload.metrics.run.measure import measure
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.settings import RunSettings

CONTENT = layout.EVENT_CONTENT
FLOOR_S, TOKENS = 0.005, 20


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


@dataclass
class SlotTarget:
    """*kill_at*: number of the run in which the process is killed, its folder half written. *measured*: run folders.

    *late_above*: from that level on the client itself is *late_s* late; on *late_runs*, by their number, it is so whatever
    the level. *broken_above*: from there every request fails. *slower*: takes the server's place after *slows_after* runs.
    """

    server: SlotServer
    kill_at: int | None = None
    late_above: float = float("inf")
    late_runs: frozenset[int] = frozenset()
    broken_above: float = float("inf")
    late_s: float = 0.02
    slower: SlotServer | None = None
    slows_after: int = 0
    measured: list[str] = field(default_factory=list)

    def execute(self, settings: RunSettings, secret: object, ui: Any, engine: object) -> int:
        folder = Path(settings.output.directory or "")
        folder.mkdir(parents=True)
        manifest = self._manifest(settings)
        self._save(folder, {**manifest, "status": "running"})
        if len(self.measured) == self.kill_at:
            raise Killed
        self.measured.append(folder.name)
        asked = settings.load
        seed = zlib.crc32(f"{settings.workload.stream}/{asked.rate}/{asked.concurrency}/{asked.duration}".encode())
        rng, seconds = np.random.default_rng(seed), float(asked.duration or 0)
        slow = self.slower is not None and len(self.measured) > self.slows_after
        server = self.slower if slow and self.slower is not None else self.server
        if asked.concurrency is None:
            served = server.serve(float(asked.rate or 0), seconds, rng)
        else:
            served = closed_loop(server, asked.concurrency, seconds, rng)
        late = self._load(settings) >= self.late_above or len(self.measured) - 1 in self.late_runs
        write_rows(folder, served, self.late_s if late else 10e-6, self._load(settings) >= self.broken_above)
        self._save(folder, {**manifest, "status": "done"})
        certificate = Certificate(verdict="valid", offered_rate=asked.rate, planned_rate=asked.rate)
        document = msgspec.structs.replace(measure(load(folder)), certificate=certificate)
        self._save(folder, plain(document))
        ui.finish(document, str(folder))
        return 0

    def _load(self, settings: RunSettings) -> float:
        return float(settings.load.concurrency or settings.load.rate or 0)

    def _manifest(self, settings: RunSettings) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "config": msgspec.to_builtins(settings),
            "metadata": dict(settings.output.metadata),
            "phases": [duration_phase(ORIGIN_NS, float(settings.load.duration or 0))],
        }

    def _save(self, folder: Path, document: dict[str, Any]) -> None:
        (folder / "run.json").write_text(json.dumps(document))


def closed_loop(server: SlotServer, slots: int, seconds: float, rng: np.random.Generator) -> Served:
    """*slots* requests at once, each followed by the next: as many as there are places are served, the others wait."""
    free, ready = [0.0] * server.slots, [0.0] * slots
    arrive, begin, end = [], [], []
    while (now := min(ready)) < seconds:
        start = max(now, min(free))
        service = server.service_s if server.fixed else rng.exponential(server.service_s)
        arrive.append(now), begin.append(start), end.append(start + service)
        free[free.index(min(free))] = ready[ready.index(now)] = start + service
    return Served(seconds, np.array(arrive), np.array(begin), np.array(end))


def write_rows(folder: Path, served: Served, late_s: float, broken: bool) -> None:
    """requests.npy and tokens.npy: two events each, at the first token and at the last."""
    n = len(served.arrive)
    at = {name: (ORIGIN_NS + value * 1e9).astype(np.int64) for name, value in vars(served).items() if name != "seconds"}
    first = at["begin"] + round(FLOOR_S * 1e9)
    last = np.maximum(at["end"], first) + 1000
    rows = np.zeros(n, layout.REQUEST)
    rows["t_sched"] = at["arrive"]
    rows["t_dispatch"] = rows["t_submit_start"] = at["arrive"] + round(late_s * 1e9)
    rows["t_submit"] = rows["t_dispatch"] + 1_000
    rows["t_headers"] = rows["t_any"] = rows["t_first"] = np.maximum(first, rows["t_submit"])
    rows["t_last"] = np.maximum(last, rows["t_first"])
    rows["t_end"] = rows["t_end_user"] = rows["t_last"] + 1_000
    rows["request"] = rows["session"] = np.arange(n)
    rows["phase"] = layout.MEASURE
    rows["input_target"] = rows["prompt_tokens"] = 10
    rows["output_target"] = rows["completion_tokens"] = TOKENS
    rows["reasoning_tokens"] = rows["cached_tokens"] = rows["retry_after_ms"] = -1
    rows["events"] = rows["content_events"] = 2
    rows["http_status"] = 500 if broken else 200
    rows["status"] = layout.HTTP_ERROR if broken else layout.OK
    rows["text_bytes"] = 80
    events = np.zeros(2 * n, layout.EVENT)
    events["row"] = np.repeat(np.arange(n), 2)
    events["kind"] = CONTENT
    events["tokens"] = np.tile([1, TOKENS - 1], n)
    events["t_ns"] = np.column_stack([rows["t_first"], rows["t_last"]]).ravel()
    np.save(folder / "requests.npy", rows)
    np.save(folder / "tokens.npy", events)


def without_target(settings: RunSettings) -> RunSettings:
    """With a URL, so that no simulated engine is started; nothing is ever sent there."""
    return replace_target(settings, ("http://127.0.0.1:9/v1",))


def replace_target(settings: RunSettings, urls: tuple[str, ...]) -> RunSettings:
    return msgspec.structs.replace(settings, target=msgspec.structs.replace(settings.target, urls=urls))
