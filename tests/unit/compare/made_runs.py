"""Run folders and run.json documents made up for comparisons: everything drawn from a seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic_run import ORIGIN_NS, Request, Shape, draw_requests, duration_phase, write_workers
from typed_documents import typed

from fastllmload.compare.side import RunRecord, Side
from fastllmload.documents.run import RunDocument
from fastllmload.metrics.public import measure
from fastllmload.records.run import load

RATE = 50.0
TIMES = ("t_headers", "t_any", "t_first", "t_last", "t_end", "t_end_user")


def plan(digest: str = "d" * 64, model: str = "m", seed: int = 42, schedule: str = "s" * 64) -> dict[str, Any]:
    workload = {"name": "synthetic-uniform", "osl": "64"}
    load_part = {"loop": "open", "concurrency": None, "arrivals": {"name": "poisson", "rate": RATE}}
    described = {"model": model, "endpoint": "openai-chat", "seed": seed, "workload": workload, "load": load_part}
    return {"digest": digest, "schedule_hash": schedule, "description": described}


def config(**changes: Any) -> dict[str, Any]:
    """`section__key=value` sets a setting."""
    found: dict[str, Any] = {
        "load": {"timeout": 600.0, "warmup_requests": 100, "ramp_share": 0.1},
        "client": {"fresh_connections": False, "timestamps": "kernel"},
        "output": {"directory": "x", "goodput": [], "gpus": None, "price_per_hour": None},
        "workload": {"counting": "A"},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        found.setdefault(section, {})[key] = value
    return found


def manifest(**parts: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "status": "done",
        "tool": {"name": "fastllmload", "version": "0.1.0"},
        "config": config(),
        "plan": plan(),
        "target": {"urls": ["http://10.0.0.1:8000"], "model": "m", "simulated": False},
        "environment": {"host": "one", "time_utc": "2026-01-01T00:00:00Z"},
        "declarations": {},
        "certificate": {"verdict": "valid", "reasons": []},
        **parts,
    }


def slower(requests: list[Request], factor: float) -> list[Request]:
    """Every answer *factor* times as long after its submission."""
    for request in requests:
        begin = request.fields["t_submit"]
        for name in TIMES:
            if request.fields.get(name):
                request.fields[name] = begin + round((request.fields[name] - begin) * factor)
        request.events = [(begin + round((t - begin) * factor), *rest) for t, *rest in request.events]
    return requests


def write_run(folder: Path, seed: int, n: int = 600, factor: float = 1.0, failures: float = 0.0, **parts: Any) -> Path:
    """A folder with rows, events and a whole run.json: *n* requests at 50/s."""
    folder.mkdir(parents=True)
    requests = draw_requests(seed, Shape(requests=n, rate=RATE, failures=failures))
    write_workers(folder, slower(requests, factor))
    document = manifest(phases=[duration_phase(ORIGIN_NS, n / RATE)], **parts)
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "run.json").write_text(json.dumps(measure(load(folder))))
    return folder


def document(
    ttft_p99: float, tok_s: float = 1000.0, metrics: dict[str, Any] | None = None, **parts: Any
) -> RunDocument:
    """A run.json that holds a few figures, also those of *metrics*, and no rows."""
    ttft = {"unit": "ms", "n": 5000, "mean": ttft_p99 / 3, "p50": ttft_p99 / 4, "p99": ttft_p99, "ci95": {}}
    figures = {
        "ttft": ttft,
        "output_tok_s": {"unit": "tokens/s", "value": tok_s, "ci95": None},
        "success_rate": {"unit": "share", "value": 1.0, "ci95": None},
    }
    return typed({**manifest(**parts), "metrics": {**figures, **(metrics or {})}})


def side(name: str, values: list[float], **parts: Any) -> Side:
    """Runs with these P99 of TTFT, in memory only."""
    return Side(name, tuple(RunRecord(Path(f"{name}/{k}"), document(v, **parts)) for k, v in enumerate(values)))
