"""Procedures as whole processes: killed and started again, interrupted, refused."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fastllmload.cli.main import main

ENGINE = ["--simulate", "set.step_ms=1", "--simulate", "set.per_prefill_token_us=20"]
LENGTHS = ["--lengths", "1024,2048,4096", "--osl", "4"]
PATIENCE_S = 90.0


def command(folder: Path, *more: str) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "fastllmload",
        "procedure",
        "long-context",
        "--quick",
        "--warmup",
        "0",
        "--settle",
        "0",
    ]
    return [*words, *LENGTHS, *ENGINE, "--output", str(folder), *more]


def finished(folder: Path) -> list[Path]:
    """Levels whose run came to its end, in order."""
    return [path.parent for path in sorted(folder.glob("levels/*/run.json")) if state_of(path) == "done"]


def state_of(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["status"])
    except (OSError, ValueError, KeyError):
        return None


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "procedure.json").read_text())
    return found


def started(folder: Path, until: int) -> subprocess.Popen[bytes]:
    """A procedure that has *until* finished levels."""
    process = subprocess.Popen(command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + PATIENCE_S
    while len(finished(folder)) < until and process.poll() is None:
        assert time.monotonic() < limit, "the procedure does not come to its levels"
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("levels", [1, 2] if os.environ.get("FASTLLMLOAD_SLOW") == "1" else [2])
def test_a_killed_procedure_continues_with_the_interrupted_level(tmp_path: Path, levels: int) -> None:
    """No finished level is measured again, and the answer is of all three lengths."""
    folder = tmp_path / "p"
    process = started(folder, levels)
    process.kill()
    process.wait()
    before = {path.name: (path / "run.json").stat().st_mtime_ns for path in finished(folder)}
    again = subprocess.run(command(folder), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert len(before) >= levels
    for name, written in before.items():
        assert (folder / "levels" / name / "run.json").stat().st_mtime_ns == written
    found = document(folder)
    assert found["status"] == "done" and found["starts"] == 2
    assert found["findings"]["lengths"] == [1024, 2048, 4096]
    assert "started again" in again.stdout


def test_an_interrupted_procedure_keeps_what_it_has_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    process = started(folder, 1)
    while len(list(folder.glob("levels/*/run.json"))) < 2 and process.poll() is None:
        time.sleep(0.02)  # until the next has begun: what the first says is found after its end
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    code = process.wait(timeout=PATIENCE_S)
    found = document(folder)
    assert (code, found["status"]) in ((4, "interrupted"), (0, "done"))  # it may have been at its end already
    assert found["findings"]["lengths"][0] == 1024
    assert found["command"] == ["fastllmload", *command(folder)[3:]]  # as it can be typed again, however it was started
    assert (folder / "procedure.html").exists() and (folder / "procedure.md").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ttft"], "needs a load"),
        (["capacity"], "--slo-ttft-p99"),
        (["throughput", "--rate", "5"], "--rate and --concurrency"),
        (["tradeoff", "--concurrency", "5"], "open loop by"),
        (["long-context", "--slots", "9"], "from 1 to 4"),
        (["fairness", "--load", "2"], "from 0.7 to 0.9"),
        (["memory-pressure", "--capacity", "4"], "--capacity-source"),
        (["guardrail", "--configuration", "input"], "at least two"),
        (["ttft", "--rate", "5", "--hook", "nonsense=true"], "--hook nonsense="),
        (["ttft", "--rate", "5", "--url", "http://127.0.0.1:9"], "more declaration"),
        (["prefix-cache", "--rate", "5", "--url", "http://127.0.0.1:9"], "--hook cache-off=COMMAND"),
        (["nonsense"], "'nonsense'"),
        (["tradeoff", "--quick", "--levels", ""], "--levels names no"),
        (["tradeoff", "--levels", "0.5,0.50"], "--levels names 0.5 twice"),
        (["tradeoff", "--capacity", "10"], "--capacity-source"),
        (["itl", "--levels", "2"], "--levels 2 lies above"),
        (["memory-pressure", "--slo-ttft-p99", "200", "--levels", "0.5"], "--levels 0.5: "),
        (["capacity", "--slo-ttft-p99", "200", "--initial", "8", "--max", "4"], "--initial 8"),
        (
            ["ttft", "--rate", "5", "--hook", "restart"],
            "--hook 'restart' ",
        ),
        (
            ["ttft", "--rate", "5", "--declare", "sut.hardware.count=x", "--declare", "tokenizer.vocabulary=-5"],
            "; --declare tokenizer.vocabulary='-5' ",
        ),
        ([], "ttft, throughput, tradeoff"),
    ],
)
def test_what_is_missing_is_one_sentence_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    output = ["--output", str(tmp_path / "p")] if words else []
    assert main(["procedure", *words, *output]) == 2
    printed = capsys.readouterr().err
    assert said in printed and "Traceback" not in printed
    assert not (tmp_path / "p").exists()
