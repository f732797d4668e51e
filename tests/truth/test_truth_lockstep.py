"""512 streams that step together every 20 ms: a client that stamps in user space is a millisecond late here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from truth_bench import measure, until_quiet

pytestmark = pytest.mark.clock

STREAMS = 512
COALESCED = 2
KERNEL = 1


def test_kernel_stamps_hold_in_lock_step(tmp_path: Path) -> None:
    """p99 within 20 us of the server's send; at least 99.9 % of events kernel-stamped or bounded, bounds always
    true.
    """

    def check(directory: Path) -> tuple[bool, str]:
        measured = measure(
            directory,
            ["--concurrency", str(STREAMS), "--num-requests", str(STREAMS), "--isl", "16", "--osl", "100", "--warmup", "0"],
            ttft_ms=200.0, itl_ms=20.0, phase="lockstep",
        )  # fmt: skip
        assert measured.exit_code == 0, measured.said
        errors, classes, _ = measured.content_errors_ns()
        kernel = classes == KERNEL
        p50, p99 = np.percentile(np.abs(errors[kernel]), [50, 99]) / 1e3
        share = float((classes != 0).mean())
        bounded = errors[classes == COALESCED]
        assert (bounded > -20_000).all(), "an upper bound lies above the truth"
        passed = p99 <= 20 and share >= 0.999 and kernel.mean() > 0.9
        return passed, f"p50 {p50:.1f} us, p99 {p99:.1f} us, stamped or bounded {share:.4f}, exact {kernel.mean():.4f}"

    until_quiet(tmp_path, check)
