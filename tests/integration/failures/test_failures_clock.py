"""The wall clock is set while the clock of a run continues: it is reported and judged, and no interval is an hour long."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from integration.bad_days import begin
from refusals import code_of

from fastllmload.records.run import load

SECOND = 1_000_000_000
SHIM = Path(__file__).with_name("clock_step.c")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that sets CLOCK_REALTIME, and the kernel's receive stamps, for the processes that preload it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("shim") / "clock_step.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(SHIM), "-o", str(library), "-ldl"], check=True)
    return library


@pytest.mark.parametrize("step_s", [3_600, -3_600])
def test_the_wall_clock_is_set(tmp_path: Path, shim: Path, step_s: int) -> None:
    """Kernel stamps are wall time: those around the step cannot be mapped, all others are right again."""
    instant = tmp_path / "instant"
    instant.write_bytes(bytes(8))
    preload = {"LD_PRELOAD": str(shim), "FLL_STEP_AT": str(instant), "FLL_STEP_NS": str(step_s * SECOND)}
    asked = ("--rate", "50", "--duration", "6", "--warmup", "0", "--isl", "8", "--osl", "20", "--no-telemetry")
    engine = ("--simulate", "ttft_ms=20", "itl_ms=10", "phase=spread")
    going = begin(tmp_path / "run", *asked, *engine, **preload)
    going.until_answered()
    with instant.open("r+b") as shared:  # what is mapped must stay the same file
        shared.write((time.monotonic_ns() + SECOND).to_bytes(8, "little"))
    document = going.end().kept(0, "done")

    direction = "forward" if step_s > 0 else "back"
    (said,) = (text for text in document["incidents"] if code_of(text) == "wall-clock-set")
    assert f"3,600.000 s {direction}" in said
    reasons = {reason["code"] for reason in document["certificate"]["reasons"]}
    assert "clock_step" in reasons and document["certificate"]["verdict"] != "valid"
    assert document["failed"] == 0, document["errors"]

    rows = load(tmp_path / "run").rows
    # From before the send call: a client that loses its CPU after that call stamps t_submit after the server has begun.
    first, end = rows["t_first"] - rows["t_submit_start"], rows["t_end"] - rows["t_submit_start"]
    # Each takes 20 ms and 20 + 19 x 10 ms at least. Stamps that may be from before the step are not believed.
    assert first.min() >= 0.0199 * SECOND and end.min() >= 0.2099 * SECOND and end.max() < 60 * SECOND
