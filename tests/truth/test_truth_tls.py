"""Times behind TLS without a packet ring: held against the instants at which a front with TLS sent each event."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from truth_bench import until_quiet

pytestmark = pytest.mark.clock

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
@pytest.mark.parametrize(("disturb", "quiet_us"), [("none", 200.0), ("stops", None)])
def test_the_true_times_are_within_the_brackets_behind_tls(
    tmp_path: Path, disturb: str, quiet_us: float | None
) -> None:
    """50 streams of 50 tokens/s: 99.9 % of the events came within their brackets, also where the worker is stopped for 200
    of every 250 ms; undisturbed, the brackets' P99 is at most 200 us.
    """
    command = [
        sys.executable, str(BENCH / "tap_error.py"), "--front", "tls", "--streams", "50", "--tokens", "100",
        "--timestamps", "kernel", "--disturb", disturb,
    ]  # fmt: skip

    def check(directory: Path) -> tuple[bool, str]:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
        )
        assert done.stdout, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["events"] == 5_000 and found["too_late"] == 0 and found["tap"] == 0
        assert found["kernel"] > found["user"], "the kernel's stamps are used"
        fine = found["inside_share"] >= 0.999 and (quiet_us is None or found["bracket_p99_us"] <= quiet_us)
        return fine, f"{found['inside_share']:.2%} inside, bracket P99 {found['bracket_p99_us']:.0f} us"

    until_quiet(tmp_path, check)
