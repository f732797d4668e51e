"""Several models: what the simulated engine was asked is what the plan drew, and what the report counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command
from truth.truth_bench import Measured, measure

from fastllmload.compare.figure import figure_of, standard_figures
from fastllmload.compare.series import RunSeries
from fastllmload.export.rows import record_blocks
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

ENGINE: dict[str, Any] = {
    "ttft_ms": 1.0, "itl_ms": 1.0, "phase": "spread", "logged": ("body:model",),
    "model": "base", "more_models": ("a/one", "two"),
}  # fmt: skip
LOAD = ["--isl", "16", "--osl", "4", "--seed", "5", "--no-telemetry", "--warmup", "6", "--models", "base=5,a/one=3,two"]
NAMES = ["base", "a/one", "two"]


def asked(measured: Measured) -> dict[int, str]:
    """The model that the engine was asked for, by request of the measured phase."""
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == "measure")
    mine = measured.truth.requests[measured.truth.requests["phase"] == number]
    return {int(one["key"]): measured.truth.notes[int(one["serial"])].removeprefix("body:model: ") for one in mine}


@pytest.mark.parametrize(
    "load", [["--rate", "300", "-n", "400"], ["--concurrency", "4", "-n", "200"]], ids=["open", "closed"]
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_counts_are_the_engines(tmp_path: Path, load: list[str], workers: str) -> None:
    """Counts, tokens and shares of each model, the export's column, and the model of every row of the plan."""
    measured = measure(tmp_path / "run", [*LOAD, *load, "--workers", workers], pin=False, **ENGINE)
    assert measured.exit_code == 0, measured.said
    theirs = asked(measured)
    found = measured.document["models"]
    assert [one["name"] for one in found] == NAMES
    assert {one["name"]: one["sent"] for one in found} == dict(Counter(theirs.values()))
    drawn = np.load(measured.run.directory / "plan" / "request_model.npy")
    assert {request: NAMES[number] for request, number in enumerate(drawn)} == theirs
    rows = measured.run.rows[measured.run.rows["phase"] == 1]
    for one in found:
        mine = rows[[theirs[int(row["request"])] == one["name"] for row in rows]]
        assert (one["planned"], one["ok"], one["failed"]) == (len(mine), len(mine), 0)
        assert (one["input_tokens"], one["output_tokens"]) == (
            mine["prompt_tokens"].sum(),
            mine["completion_tokens"].sum(),
        )
        assert one["share_sent"] == pytest.approx(len(mine) / len(rows)) == pytest.approx(one["share_planned"])
    assert [one["share_asked"] for one in found] == pytest.approx([5 / 9, 3 / 9, 1 / 9])
    exported = [record for block in record_blocks(measured.run) for record in block if record["phase"] == "measure"]
    assert [record["model"] for record in exported] == [theirs[request] for request in sorted(theirs)]
    assert "a/one" in measured.said


def test_models_within_each_class_are_the_engines(tmp_path: Path) -> None:
    """Counts, latencies, gaps and objectives of each model of a class; one that asks a single model has no such table. The
    figures by which runs are compared are of the same requests.
    """
    classes = ["--class", "chat rate=150 models=base=2,a/one goodput=ttft:100", "--class", "batch rate=50 model=base"]
    options = [*LOAD[:-2], *classes, "--duration", "3"]
    measured = measure(tmp_path / "run", options, pin=False, **ENGINE)
    assert measured.exit_code == 0, measured.said
    theirs, run, found = asked(measured), measured.run, measured.document["classes"]
    assert "models" not in found["batch"] or not found["batch"]["models"]
    chat = np.array([measured.run.document.plan.classes[one["request_class"]] == "chat" for one in run.rows])
    names = np.array([theirs.get(int(one["request"])) if one["phase"] == 1 else None for one in run.rows])
    assert [one["name"] for one in found["chat"]["models"]] == ["base", "a/one"]
    for one in found["chat"]["models"]:
        mine = chat & (names == one["name"])
        rows = run.rows[mine]
        assert (one["sent"], one["ok"], one["output_tokens"]) == (len(rows), len(rows), rows["completion_tokens"].sum())
        assert one["share_sent"] == pytest.approx(len(rows) / (chat & (run.rows["phase"] == 1)).sum())
        window = populations(run, window_of(run)).latency
        latest = rows[window[mine]]
        assert one["ttft"]["p50"] == pytest.approx(np.median(latest["t_first"] - latest["t_submit"]) / 1e6)
        assert one["itl"]["n"] == (latest["completion_tokens"] - 1).sum()
        assert one["slo_attainment"] == (latest["t_first"] - latest["t_submit"] < 100e6).mean()
        figure = figure_of(f"chat/model:{one['name']}/p50_itl_ms", run.document)
        values = RunSeries(run, "run").sample(figure)
        assert values is not None and len(values.values) == one["itl"]["n"]
        assert (
            np.median(values.values) / 1e6 == pytest.approx(one["itl"]["p50"])
            and figure.value(run.document) == one["itl"]["p50"]
        )
    base = next(one for one in measured.document["models"] if one["name"] == "base")
    assert base["sent"] == found["chat"]["models"][0]["sent"] + found["batch"]["planned"]
    usual = [one.name for one in standard_figures([run.document])]
    assert [name for name in usual if "model:" in name] == [
        f"chat/model:{name}/{q}_ttft_ms" for name in ("base", "a/one") for q in ("p50", "p99")
    ]


def test_conversations_stay_with_their_model(tmp_path: Path) -> None:
    """Every turn, whose body a worker joins, names the model of the first."""
    measured = measure(tmp_path / "run", [*LOAD, "--rate", "80", "-n", "60", "--turns", "uniform:2,4"], **ENGINE)
    assert measured.exit_code == 0, measured.said
    theirs, rows = asked(measured), measured.run.rows[measured.run.rows["phase"] == 1]
    of_session: dict[int, set[str]] = {}
    for row in rows:
        of_session.setdefault(int(row["session"]), set()).add(theirs[int(row["request"])])
    assert len(of_session) == 60 and {len(each) for each in of_session.values()} == {1}
    assert set().union(*of_session.values()) == set(NAMES)


def test_round_robin_asks_in_turn(tmp_path: Path) -> None:
    """Session k of the plan asks for model k, in a loop."""
    measured = measure(
        tmp_path / "run",
        [*LOAD[:-2], "--models", "base,a/one,two", "--model-order", "round-robin", "--rate", "200", "-n", "100"],
        pin=False, **ENGINE,
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    assert asked(measured) == {request: NAMES[request % 3] for request in range(100)}
    assert [one["sent"] for one in measured.document["models"]] == [34, 33, 33]


def test_a_model_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    """Before anything of the run is sent."""
    with SimulatorProcess(SimulatorOptions(model="base", more_models=("a/one",))) as server:
        done = command(
            "--url", server.url, "--rate", "9", "-n", "3", "--models", "base,a/one,absent", "-o", str(tmp_path)
        )
    assert done.returncode == 2 and "'absent'" in done.stderr and "model-not-offered" in done.stderr
    assert not (tmp_path / "requests.npy").exists()
