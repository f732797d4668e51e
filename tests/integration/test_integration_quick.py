"""`fastllmload quick` against the simulated engine by both of its APIs: the block, the folders, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastllmload.cli import main as entry
from fastllmload.records.layout import MEASURE, OK
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

SHORT = ("--osl", "12", "--ui", "plain", "--no-telemetry")


@pytest.mark.parametrize("protocol", ["openai-chat", "ollama-chat", "ollama-generate"])
def test_the_block_of_one_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str) -> None:
    """12 requests, one at a time, 3 of each type; the server's own figures stand apart and only where it has some."""
    folder = tmp_path / "run"
    simulated = ("--simulate", "ttft_ms=20", "itl_ms=5")
    assert entry.main(["quick", "-o", str(folder), "--endpoint-type", protocol, *SHORT, *simulated]) == 0
    out = capsys.readouterr().out
    assert "tok/s" in out and "(pooled), CV" in out and "TTFT median (ms)" in out
    assert "one request 'Hello' with max_tokens 1" in out and "Power               not measured" in out
    assert ("by the server:" in out) == protocol.startswith("ollama")
    assert ("model_format        simulated" in out) == protocol.startswith("ollama")
    rows = load(folder).rows
    measured = rows[rows["phase"] == MEASURE]
    assert len(measured) == 12 and (measured["status"] == OK).all()
    assert np.bincount(measured["request_class"]).tolist() == [3, 3, 3, 3]
    begin = np.sort(measured["t_dispatch"])[1:]
    assert (begin >= np.sort(measured["t_end"])[:-1]).all()  # never two at once
    document = json.loads((folder / "run.json").read_text())
    assert document["metadata"]["profile"] == "quick" and document["config"]["workload"]["temperature"] == 0.0


def test_several_engines_are_measured_one_after_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not there is left out, and said; the table has the others in their order."""
    with (
        SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=4)) as fast,
        SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=8)) as slow,
    ):
        urls = [option for url in (fast.url, "http://127.0.0.1:9", slow.url) for option in ("--url", url)]
        assert entry.main(["quick", "-o", str(tmp_path / "all"), "--runs", "1", *SHORT, *urls]) == 3
        shown = [fast.url, slow.url]
    out = capsys.readouterr().out
    assert "left out: http://127.0.0.1:9 cannot be reached" in out
    table = out[out.index("Engines") :]
    assert table.index(shown[0]) < table.index(shown[1])
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["engine-1", "engine-3"]


def test_an_engine_that_is_not_there_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["quick", "-o", str(tmp_path / "run"), "--url", "http://127.0.0.1:9", *SHORT]) == 3
    assert "cannot be reached" in capsys.readouterr().err and not (tmp_path / "run").exists()
