"""What the plans of a run are made of is made once: instants, files, and the requests of each phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fastllmload.arrivals.process import Recorded, Renewal
from fastllmload.engine.run_plans import build_plans, resolve_settings
from fastllmload.plan.prompts import load
from fastllmload.plan.prompts.composed import ComposedPrompts
from fastllmload.plan.prompts.dataset import DatasetPrompts
from fastllmload.plan.prompts.synthetic import SyntheticPrompts
from fastllmload.settings import Load, RunSettings, TrafficClass, Workload


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often instants are drawn from a fresh stream, files are read and sources of prompts are built."""
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str, label: str) -> None:
        wrapped: Callable[..., Any] = getattr(owner, name)

        def counting(*words: Any, **named: Any) -> Any:
            calls[label] += 1
            return wrapped(*words, **named)

        monkeypatch.setattr(owner, name, counting)

    for process in (Renewal, Recorded):
        count(process, "instants", "schedules")
    for source in (SyntheticPrompts, ComposedPrompts, DatasetPrompts):
        count(source, "__init__", "sources")
    for reader in ("read_dataset", "read_trace"):
        count(load, reader, "files")
    return calls


def plan(settings: RunSettings, work: Path) -> None:
    """As a run does: the check before the server is contacted, then both phases."""
    build_plans(resolve_settings(settings, work), "m", work)


@pytest.mark.parametrize(
    "bounds",
    [
        {"duration": 3.0},
        {"num_requests": 40},
        {"num_requests": 40, "duration": 1.0},
        {"duration": 1.0, "warmup_seconds": 2.0},
    ],
)
@pytest.mark.parametrize("name", ["synthetic-uniform", "conversation"])
def test_the_schedule_and_the_requests_of_each_phase_are_drawn_once(
    counted: Counter[str], tmp_path: Path, bounds: dict[str, Any], name: str
) -> None:
    plan(RunSettings(load=Load(rate=20.0, **bounds), workload=Workload(name=name)), tmp_path)
    assert counted == {"schedules": 2, "sources": 2}


def test_each_class_is_drawn_once_also_where_a_count_bounds_all(counted: Counter[str], tmp_path: Path) -> None:
    classes = tuple(
        TrafficClass(name=name, load=Load(rate=rate, duration=30.0), workload=Workload())
        for name, rate in (("a", 9.0), ("b", 3.0))
    )
    plan(RunSettings(load=Load(rate=12.0, duration=30.0, num_requests=30), classes=classes), tmp_path)
    assert counted == {"schedules": 4, "sources": 4}


def test_a_file_is_read_once_for_the_check_and_both_phases(counted: Counter[str], tmp_path: Path) -> None:
    rows = tmp_path / "prompts.csv"
    rows.write_text("prompt,output_tokens\nhello,5\nyou,6\n")
    workload = Workload(name="csv", dataset_path=str(rows))
    settings = RunSettings(load=Load(rate=5.0, duration=2.0, warmup_requests=3), workload=workload)
    plan(settings, tmp_path / "csv")
    assert counted == {"files": 1, "schedules": 2, "sources": 2}
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,input,output\n0,5,5\n1,6,6\n")
    counted.clear()
    recorded = msgspec.structs.replace(workload, name="trace", dataset_path=str(trace))
    plan(RunSettings(load=Load(warmup_requests=3), workload=recorded), tmp_path / "trace")
    assert counted == {"files": 1, "schedules": 1, "sources": 2}  # its warm-up is a closed loop
