"""The benchmark report 0.2: every key has a place in the schema, units are right, figures are those of run.json."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_run import real_run
from typed_documents import with_keys

from fastllmload.cli.main import main
from fastllmload.export.benchmark_report import benchmark_report, length
from fastllmload.records import layout
from fastllmload.records.run import Run, load

PLACES = json.loads((Path(__file__).parent / "report_places.json").read_text())


def problems(found: Any, place: Any, at: str = "") -> list[str]:
    """What of *found* the schema does not allow at *place*; "name!" is required."""
    if isinstance(place, list):
        return [text for k, each in enumerate(found) for text in problems(each, place[0], f"{at}[{k}]")]
    if isinstance(place, dict):
        allowed = {name.rstrip("!"): each for name, each in place.items()}
        missing = [f"{at}.{name} is missing" for name in place if name.endswith("!") and name[:-1] not in found]
        unknown = [f"{at}.{name} has no place" for name in found if name not in allowed]
        inner = [
            text
            for name, each in found.items()
            if name in allowed
            for text in problems(each, allowed[name], f"{at}.{name}")
        ]
        return missing + unknown + inner
    kind, *units = place.split()
    if kind in ("statistics", "length"):
        rules = PLACES[kind]
        words = {"statistics": ("units", units), "length": ("distribution", rules.get("distribution"))}[kind]
        bad = [f"{at}.{name}" for name in found if name not in (words[0], *rules["numbers"])]
        bad += [f"{at}.{name} missing" for name in rules["required"] if name not in found]
        bad += [
            f"{at}.{name} no number"
            for name in rules["numbers"]
            if name in found and type(found[name]) not in (int, float)
        ]
        return bad + ([] if found.get(words[0]) in words[1] else [f"{at}: {found.get(words[0])}"])
    fits = {
        "any": lambda: True,
        "text": lambda: isinstance(found, str),
        "int": lambda: type(found) is int and found >= 0,
        "number": lambda: found > 0,
        "time": lambda: datetime.fromisoformat(found).tzinfo is not None,
        "duration": lambda: re.fullmatch(r"PT[0-9.]+S", found),
    }.get(kind, lambda: found in kind.split("|"))
    return [] if fits() else [f"{at} is {found!r}, not {kind}"]


@pytest.fixture(scope="module")
def run() -> Run:
    return load(real_run())


def test_every_key_has_a_place(run: Run, tmp_path: Path) -> None:
    assert main(["export", str(run.directory), "--format", "br0.2", "-o", str(tmp_path / "br.json")]) == 0
    found = json.loads((tmp_path / "br.json").read_text())
    assert problems(found, PLACES["report"]) == []
    assert problems({**found, "more": 1}, PLACES["report"]) == [".more has no place"]  # the test finds it


def test_figures_are_those_of_the_run(run: Run) -> None:
    found, metrics = benchmark_report(run), run.document.metrics or {}
    of = found["results"]["request_performance"]["aggregate"]
    for theirs, ours in {
        "time_to_first_token": "ttft_any",
        "request_latency": "e2e",
        "time_per_output_token": "tpot_any",
    }.items():
        metric = metrics[ours]
        assert (
            metric is not None
            and of["latency"][theirs]["p99p9"] == metric.p999
            and of["latency"][theirs]["mean"] == metric.mean
        )
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["status"] == layout.OK)]
    assert of["requests"]["total"] == run.document.counts.dispatched
    assert of["throughput"]["request_rate"]["mean"] == run.document.request_throughput
    assert of["requests"]["output_length"]["p10"] == np.percentile(rows["completion_tokens"], 10)
    native = found["scenario"]["load"]["native"]["config"]
    assert native["certificate"]["verdict"] and native["metrics"]["ttft_sched"]["p99"] and native["definitions"]


def test_what_the_server_reported(run: Run) -> None:
    """Shares become percent; the hit rate is of the counters; GPUs are averaged."""

    def series(name: str, **figures: Any) -> dict[str, Any]:
        return {"name": name, "origin": "http://h/metrics", "unit": "x", "kind": "gauge", "n": 3, **figures}

    given = [
        series("kv_usage", mean=0.25, min=0.0, max=0.5), series("prefix_cache_hits", kind="counter", delta=30.0),
        series("prefix_cache_queries", kind="counter", delta=120.0), series("gpu0.utilisation", mean=0.5),
        series("gpu1.utilisation", mean=0.9), series("power_w", mean=700.0, min=650.0, max=710.0),
    ]  # fmt: skip
    found = benchmark_report(with_keys(run, telemetry={"interval_s": 1.0, "series": given}))
    assert problems(found, PLACES["report"]) == []
    (component,) = found["results"]["observability"]["components"]
    means = {name: each["mean"] for name, each in component["aggregate"].items()}
    assert means == pytest.approx(
        {"kv_cache_usage": 25.0, "gpu_utilization": 70.0, "power_consumption": 700.0, "cache_hit_rate": 25.0}
    )


def test_power_of_gpus_that_exporters_report(run: Run) -> None:
    """One component for each GPU, also where the server itself says nothing."""
    gpus = [
        {"node": "n1", "gpu": "0", "utilisation": 0.8, "power_w": 300.0},
        {"node": "n2", "uuid": "U", "power_w": 400.0},
    ]
    found = benchmark_report(with_keys(run, telemetry=None, cluster={"gpus": gpus}))
    assert problems(found, PLACES["report"]) == []
    first, second = found["results"]["observability"]["components"]
    assert (first["replica_id"], second["replica_id"]) == ("n1 GPU 0", "n2 GPU U")
    assert first["aggregate"]["gpu_utilization"] == {"units": "percent", "mean": 80.0}
    assert [each["aggregate"]["power_consumption"]["mean"] for each in (first, second)] == [300.0, 400.0]


def test_sessions(run: Run) -> None:
    makespan = {"unit": "ms", "n": 4, "mean": 900.0, "p50": 800.0}
    sessions = {"begun": 5, "completed": 4, "failed": 1, "calls_planned": 20, "calls_sent": 18, "calls_failed": 1,
                "calls_cancelled": 2, "completed_per_s": 0.5, "makespan": makespan}  # fmt: skip
    found = benchmark_report(with_keys(run, sessions=sessions))
    assert problems(found, PLACES["report"]) == []
    of = found["results"]["session_performance"]["sessions"]
    assert (of["total_events_completed"], of["total_events_cancelled"], of["session_duration"]["mean"]) == (
        17,
        2,
        900.0,
    )
    assert found["scenario"]["load"]["standardized"]["multi_turn"] == {"enabled": True}


def test_lengths() -> None:
    none = np.array([3, 5, -1])
    assert length("256", none) == {"distribution": "fixed", "value": 256}
    assert length("uniform:10,30", none) == {"distribution": "uniform", "value": 20, "min": 10, "max": 30}
    assert length("normal:100,20", none) == {"distribution": "gaussian", "value": 100, "std_dev": 20}
    assert length("choice:3,5", none) == {"distribution": "other", "value": 4, "std_dev": 1, "min": 3, "max": 5}
    assert length(None, none[:0]) == {"distribution": "other", "value": 0}


def test_names_of_hosts_are_left_out(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.directory), "--format", "br0.2", "--redact"]) == 0
    assert "127.0.0.1" not in capsys.readouterr().out
