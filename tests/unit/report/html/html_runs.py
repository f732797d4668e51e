"""Builds run folders and their run.json for tests of the page, with the real recorder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.certificate.judge import judge
from fastllmload.certificate.monitor import STALLS, WORKER_STALLS
from fastllmload.metrics.run.measure import measure
from fastllmload.records.run import Run, load
from fastllmload.report.documents.forms import write_page

SECONDS = 5.0
LOAD = {"loop": "open", "arrivals": {"name": "poisson", "rate": 50.0}, "concurrency": None, "duration_s": SECONDS}
# What every chart of a run's page is called, drawn or not.
CHARTS = (
    *("cdf-ttft", "cdf-itl", "cdf-e2e", "cdf-pause", "rate", "flight", "tokens", "time-ttft", "time-itl", "time-e2e"),
    *("timeline-0", "gaps", "hist-lag", "hist-socket_to_user", "hist-hiccup", "stalls", "cpu"),
)


@dataclass(frozen=True)
class Written:
    """A run folder with its report.html."""

    run: Run

    @property
    def document(self) -> Mapping[str, Any]:
        return self.run.manifest

    @property
    def file(self) -> Path:
        return self.run.directory / "report.html"

    @property
    def source(self) -> str:
        return self.file.read_text(encoding="utf-8")


def manifest(**more: Any) -> dict[str, Any]:
    """run.json of a run before it is measured."""
    description = {"load": LOAD, "streaming": True, "seed": 7, "workload": {"name": "synthetic-uniform", "isl": "256"}}
    found: dict[str, Any] = {
        "config": {"target": {"urls": ["http://127.0.0.1:8000"]}, "load": {"rate": 50.0, "duration": SECONDS}},
        "plan": {"digest": "0123456789abcdef" * 4, "requests": 200, "description": description},
        "target": {"urls": ["http://127.0.0.1:8000"], "endpoint_type": "openai-chat", "model": "m", "simulated": False},
        "run_id": "test",
    }
    return {**found, **more}


def write(folder: Path, shape: Shape | None = None, status: str = "done", **more: Any) -> Written:
    """A run of requests of *shape* (None: no requests) with *more* in its manifest, and its page."""
    folder.mkdir()
    requests = [] if shape is None else draw_requests(11, shape)
    write_workers(folder, requests, workers=2)
    write_manifest(folder, status, [duration_phase(ORIGIN_NS, SECONDS)])
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **manifest(**more)}))
    np.save(folder / STALLS, np.array([[ORIGIN_NS + 1_000_000_000, 9_000_000]], np.int64))
    stalls = [
        (-1.0, 60_000_000),
        (1.0, 7_000_000),
        (2.0, 1_000_000),
    ]  # in the warm-up, in the run, too short to be shown
    np.save(folder / WORKER_STALLS, np.array([[0, ORIGIN_NS + int(s * 1e9), ns] for s, ns in stalls], np.int64))
    run = load(folder)
    run = run.with_document(measure(run)).changed(certificate=judge(run))
    write_page(run)
    return Written(run)
