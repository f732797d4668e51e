"""SIGKILL at any level of a test, then the same command again: no finished level is repeated, and the answer is whole.

The tests that are killed nowhere else. Two here, each killed in a level that is drawn; all of them in every level with
FASTLLMLOAD_SLOW=1. Nothing depends on how fast this machine is: the answer is compared with what the same levels give
when nothing has to be measured any more.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SLOW = os.environ.get("FASTLLMLOAD_SLOW") == "1"
PATIENCE_S = 900.0  # a search may repeat what a busy host disturbs
KNOWN = "--capacity-source known --isl 16 --osl 4"


@dataclass(frozen=True)
class Case:
    """*levels*: how many there are at the least; *seconds*: about as long as one of them. *warm*: with a warm-up."""

    test: str
    options: str
    engine: str
    levels: int
    seconds: float
    warm: bool = False

    def command(self, folder: Path) -> list[str]:
        words = [sys.executable, "-m", "fastllmload", "procedure", self.test, "--quick", "--settle", "0"]
        words += [] if self.warm else ["--warmup", "0"]
        for field in self.engine.split():
            words += ["--simulate", field]
        return [*words, *self.options.split(), "--no-telemetry", "--output", str(folder)]


CASES = {
    "itl": Case("itl", "--capacity 100 --capacity-source known --levels 0.5,0.9 --isl 16 --osl 60", "set.step_ms=1", 2, 1),
    "guardrail": Case("guardrail", f"--capacity 40 {KNOWN} --levels 0.5 --no-throughput --duration 60 --workload "
                      "synthetic-skewed --configuration baseline --configuration input",
                      "set.step_ms=2 set.guard_in_ms=5", 2, 4),
    "guardrail and its throughput": Case("guardrail", f"--capacity 40 {KNOWN} --levels 0.5 --duration 60 --workload "
                                         "synthetic-skewed --configuration baseline --configuration output",
                                         "set.step_ms=5 set.max_running=4 set.guard_out_ms=5", 4, 4, warm=True),
    "throughput": Case("throughput", "--min 10 --max 40 --step 10 --duration 60 --isl 16 --osl 4", "set.step_ms=2", 3, 5,
                       warm=True),
    "tradeoff": Case("tradeoff", f"--capacity 20 {KNOWN} --levels 0.5,1.5 --duration 60",
                     "set.step_ms=10 set.max_running=1", 2, 5),
    "fairness": Case("fairness", "--capacity 12 --capacity-source known --baseline own_rate", "set.step_ms=1", 3, 8),
    "memory-pressure": Case("memory-pressure", f"--capacity 4 {KNOWN} --levels 1.25,1.5 --duration 60 --workload "
                            "synthetic-uniform", "set.step_ms=2", 3, 5),
    "long-context": Case("long-context", "--lengths 1024,2048,4096 --osl 4", "set.step_ms=1 set.per_prefill_token_us=20",
                         3, 0.5, warm=True),
}  # fmt: skip
ALWAYS = ("itl", "guardrail")
WHERE = [(name, level) for name, case in CASES.items() for level in range(case.levels)]
DRAWN = [(name, random.Random(name).randrange(CASES[name].levels)) for name in ALWAYS]


def state_of(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_bytes()).get("status"))
    except (OSError, ValueError):
        return None


def stamps(folder: Path) -> dict[str, int]:
    """Finished levels, and when each was finished."""
    found = [path for path in folder.glob("levels/*/run.json") if state_of(path) == "done"]
    return {path.parent.name: path.stat().st_mtime_ns for path in found if ".cut-" not in path.parent.name}


def killed(case: Case, folder: Path, level: int) -> None:
    """Somewhere in *level*, whose instant is drawn."""
    process = subprocess.Popen(case.command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE_S
    while len(list(folder.glob("levels/*/run.json"))) <= level and process.poll() is None:
        assert time.monotonic() < until, "the level did not begin"
        time.sleep(0.02)
    time.sleep(random.Random(f"{case.test}/{level}").uniform(0, 0.8 * case.seconds))
    process.kill()
    process.wait()


def conducted(case: Case, folder: Path) -> dict[str, Any]:
    """procedure.json of a start that comes to the end."""
    ended = subprocess.run(case.command(folder), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads((folder / "procedure.json").read_bytes())
    return found


def answer(document: dict[str, Any]) -> dict[str, Any]:
    """What was found, whenever and in however many starts."""
    kept = ("status", "findings", "tables", "plots", "sentences", "warnings", "deviations", "compliance")
    return {name: document[name] for name in kept}


@pytest.mark.parametrize(("name", "level"), WHERE if SLOW else DRAWN)
def test_a_killed_test_continues_and_ends_with_the_answer_of_its_levels(name: str, level: int, tmp_path: Path) -> None:
    """Levels that were finished keep their files; each level is in the document once, in order; a third start measures
    nothing and says the same.
    """
    case, folder = CASES[name], tmp_path / "p"
    killed(case, folder, level)
    before = stamps(folder)
    document = conducted(case, folder)
    after = stamps(folder)
    assert {found: after[found] for found in before} == before
    assert document["status"] == "done" and document["starts"] == 2
    assert [entry["number"] for entry in document["levels"]] == list(range(len(after)))
    assert sorted(entry["folder"] for entry in document["levels"]) == [f"levels/{found}" for found in sorted(after)]
    assert len(after) >= case.levels and document["findings"]
    again = conducted(case, folder)
    assert stamps(folder) == after
    assert answer(again) == answer(document)
    assert [entry["name"] for entry in again["levels"]] == [entry["name"] for entry in document["levels"]]
