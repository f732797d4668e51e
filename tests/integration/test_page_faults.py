"""While the clock runs a worker touches no page for the first time: each would stop it for as long as the host takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FEW = 2  # the host may take back a page that it can read again; what a load asks for again are dozens
LOADS = {
    "many bodies": "-r 300 -d 2 --isl 300 --osl 4",
    "many connections": "-c 400 -n 1200 --isl 16 --osl 40 --warmup 0",
    "conversations": "-r 60 -d 2 --isl 100 --osl 8 --turns 4",
    "failures, the event loop's connections": "-r 200 -d 2 --isl 100 --osl 8 --transport asyncio --simulate fault=html:0.3",
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_load_costs_no_page_fault(tmp_path: Path, load: str) -> None:
    folder = tmp_path / "run"
    simulated = "--simulate ttft_ms=5 --simulate itl_ms=2 --workers 1 --ui none"
    command = [sys.executable, "-m", "fastllmload", *load.split(), *simulated.split(), "-o", str(folder)]
    subprocess.run(command, check=False, timeout=120, capture_output=True)
    document = json.loads((folder / "run.json").read_text())
    (worker,) = document["certificate"]["workers"]
    assert document["completed"] >= 100
    assert worker["page_faults"] <= FEW
