"""Searches and sweeps as a user runs them, against the simulated engine: files, exit codes, kills, goings on.

Nothing here depends on how fast this machine is: where it is the limit, the search has to say so instead of an answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

slow = pytest.mark.skipif(
    os.environ.get("FASTLLMLOAD_SLOW") != "1", reason="minutes of real levels; FASTLLMLOAD_SLOW=1"
)
PATIENCE_S = 2400  # twelve levels of 20, 40 and 80 s, where each has to be looked at three times
COMMON = ["--isl", "16", "--warmup", "0", "--settle", "0", "--no-telemetry"]
SLOTS = ["--simulate", "profile=slots", "set.max_running=4", "set.step_ms=5"]  # 8 tokens: 100 requests/s
SEARCH = ["search", *SLOTS, "--osl", "8", *COMMON]


def start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fastllmload", *arguments, "-o", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done(arguments: list[str], folder: Path) -> tuple[int, str]:
    process = start(arguments, folder)
    said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def await_level(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until *count* levels are finished and one more has begun."""
    until = time.monotonic() + 120
    while finished(folder) < count or len(list(folder.glob("levels/*/run.json"))) <= count:
        assert process.poll() is None and time.monotonic() < until, "the levels did not come"
        time.sleep(0.05)


def finished(folder: Path) -> int:
    return sum(json.loads(path.read_text())["status"] == "done" for path in folder.glob("levels/*/run.json"))


def stamps(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("levels/*/run.json")}


def document(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def test_a_killed_search_continues_with_its_next_level(tmp_path: Path) -> None:
    """SIGKILL in the second level: started again, the first is not measured again, and the report is whole."""
    asked = [*SEARCH, "--min", "10", "--max", "40", "--level-duration", "1", "--runs", "1", "--max-levels", "3"]
    process = start(asked, tmp_path / "s")
    await_level(process, tmp_path / "s", 1)
    process.kill()
    process.communicate()
    before = stamps(tmp_path / "s")
    code, said = done(asked, tmp_path / "s")
    after = stamps(tmp_path / "s")
    assert code in (0, 1), said  # a second is too short to decide anything
    first = min(before)
    assert after[first] == before[first] and "(found finished)" in said
    found = document(tmp_path / "s", "search.json")
    assert found["status"] == "done" and found["starts"] == 2 and len(found["decisions"]) == 3
    code_again, said = done(asked, tmp_path / "s")
    assert code_again == code, said
    assert stamps(tmp_path / "s") == after
    assert document(tmp_path / "s", "search.json")["answer"] == found["answer"]


def test_an_interrupted_sweep_keeps_its_table(tmp_path: Path) -> None:
    """Ctrl-C in the second run: exit code 4, a table that says it is incomplete; started again it is completed."""
    asked = ["sweep", *SLOTS, "--vary", "rate=10,20", "--vary", "osl=4,8", "--duration", "1", *COMMON]
    process = start(asked, tmp_path / "s")
    await_level(process, tmp_path / "s", 1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert "INCOMPLETE (interrupted)" in (tmp_path / "s/sweep.md").read_text()
    code, said = done(asked, tmp_path / "s")
    assert code == 0 and "rate and osl" in said
    found = document(tmp_path / "s", "sweep.json")
    assert [cell["runs"] for cell in found["cells"]] == [1, 1, 1, 1]
    assert all(cell["figures"]["req_s"]["mean"] > 0 for cell in found["cells"])


@slow
def test_a_real_search_holds_the_engines_capacity(tmp_path: Path) -> None:
    """4 slots x 8 tokens of 5 ms: 100 requests/s. Where the client was the limit, the answer is open, not wrong."""
    asked = [*SEARCH, "--min", "25", "--max", "400", "--level-duration", "20", "--step", "10%", "--strict"]
    code, said = done(asked, tmp_path / "s")
    answer = document(tmp_path / "s", "search.json")["answer"]
    assert answer["low"] is None or answer["low"] <= 100, said
    assert answer["high"] is None or answer["high"] >= 100, said
    assert answer["level"] is not None and answer["level"] >= 25, said
    assert code == (0 if answer["high"] is not None else 1)
