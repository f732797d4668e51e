"""Two real runs against the simulated engine, compared by the command: the same workload, then a slower engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import command

LOAD = ["--rate", "60", "--duration", "4", "--warmup", "5", "--osl", "8", "--workers", "1", "--ui", "none"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`usual` and `slow`: an engine that answers after 20 ms, and one after 60 ms; `other` has another seed."""
    base = tmp_path_factory.mktemp("runs")
    made = {"usual": ("ttft_ms=20", "42"), "slow": ("ttft_ms=60", "42"), "other": ("ttft_ms=20", "7")}
    for name, (ttft, seed) in made.items():
        engine = ["--simulate", ttft, "--simulate", "itl_ms=4"]
        done = command(*LOAD, *engine, "--seed", seed, "-o", str(base / name))
        assert done.returncode == 0, done.stderr
    return base


def test_a_slower_engine_fails_its_gate(runs: Path, tmp_path: Path) -> None:
    """Three times the time to first token; the plan is the same, the difference in set-up is the engine's."""
    report = tmp_path / "c.json"
    done = command(
        "compare", str(runs / "usual"), str(runs / "slow"), "--fail-if", "p50_ttft_ms > +50%", "--json", str(report)
    )
    assert done.returncode == 1, done.stderr
    assert "p50_ttft_ms > +50%" in done.stdout and "the same on both sides" in done.stdout
    found = json.loads(report.read_text())
    assert list(found["setup_differences"]) == ["config.target.simulate"]
    figure = found["figures"]["p50_ttft_ms"]
    assert figure["relative"] > 0.5 and figure["result"] in ("worse", "not estimable")
    if figure["relative_interval"] is not None:
        assert 0.5 < figure["relative_interval"][0] <= figure["relative"] <= figure["relative_interval"][1]


def test_another_seed_is_another_workload(runs: Path) -> None:
    done = command("compare", str(runs / "usual"), str(runs / "other"))
    assert done.returncode == 2
    assert "seed: 42 in usual, 7 in other" in done.stderr
    allowed = command("compare", str(runs / "usual"), str(runs / "other"), "--different-workload")
    assert allowed.returncode == 0 and "DIFFERENT WORKLOADS" in allowed.stdout


def test_a_real_run_has_intervals_and_obeys_littles_law(runs: Path) -> None:
    """In flight as the worker counted it while it ran, and as its rows tell afterwards."""
    document = json.loads((runs / "usual" / "run.json").read_text())
    ttft = document["metrics"]["ttft"]
    ends = ttft["ci95"]["p50"]  # on a busy host the run may be too uneven for one
    assert ttft["not_estimable"]["p50"]["reason"] if ends is None else ends[0] <= ttft["p50"] <= ends[1]
    law = document["steadiness"]["littles_law"]
    assert law["residual"] is None or law["residual"] <= 0.05
    assert law["in_flight"] == pytest.approx(law["rate_per_s"] * law["time_s"], rel=0.5)
