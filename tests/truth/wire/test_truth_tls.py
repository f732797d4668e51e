"""TLS against the truth of the simulated engine, and of a front with TLS: times of events, statuses, sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import certificate, needs_openssl
from truth.truth_bench import Measured, measure, until_quiet

from fastllmload._ext.sim.fault import NAMES
from fastllmload.records.layout import ERROR_NAMES, STATUS_NAMES
from fastllmload.simulator.truth import FLAGS

pytestmark = needs_openssl

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "bench"
KERNEL = 1


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cert, key = certificate(tmp_path_factory.mktemp("tls"), "server")
    return {"tls_cert": str(cert), "tls_key": str(key)}


def over_tls(directory: Path, secured: dict[str, str], options: list[str], **simulator: Any) -> Measured:
    """A run against the engine over TLS, without warm-up."""
    given = ["--cacert", secured["tls_cert"], "--isl", "16", "--warmup", "0", "--no-telemetry", *options]
    engine: dict[str, Any] = {"ttft_ms": 20.0, "itl_ms": 20.0, "phase": "spread"} | secured | simulator
    return measure(directory, given, **engine)


@pytest.mark.clock
def test_kernel_stamps_of_records(tmp_path: Path, secured: dict[str, str]) -> None:
    """A record carries one event: every request has kernel stamps, and their P99 is within 50 us of the true instants."""

    def check(directory: Path) -> tuple[bool, str]:
        options = ["-c", "100", "-n", "100", "--osl", "100", "--timestamps", "kernel"]
        measured = over_tls(directory, secured, options)
        assert measured.exit_code == 0, measured.said
        ours, theirs = measured.joined()
        assert (ours["content_events"] == theirs["output_tokens"]).all()
        errors, classes, _ = measured.content_errors_ns()
        kernel = classes == KERNEL
        assert (errors[kernel] > -20_000).all(), "no event is earlier than it was sent"
        p50, p99 = np.percentile(errors[kernel], [50, 99]) / 1e3
        stamped = Counter(np.repeat(ours["request"], ours["content_events"])[kernel].tolist())
        passed = p99 <= 50 and kernel.mean() >= 0.9 and set(stamped) == set(ours["request"].tolist())
        return passed, f"p50 {p50:.1f} us, p99 {p99:.1f} us, exact {kernel.mean():.4f}, of {len(stamped)} requests"

    until_quiet(tmp_path, check)


@pytest.mark.parametrize("fault", ["coalesce:0.5:4", "split:0.5:9"])
def test_records_that_are_not_events(tmp_path: Path, secured: dict[str, str], fault: str) -> None:
    """Several events in a record and several records for an event: kinds, tokens and usage are those of the server."""
    measured = over_tls(tmp_path / "run", secured, ["--rate", "50", "-n", "60", "--osl", "24"], faults=(fault,))
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert {STATUS_NAMES[status] for status in ours["status"]} == {"ok"}
    assert (theirs["fault"] > 0).any() and (theirs["fault"] == 0).any()
    assert (ours["content_events"] == theirs["output_tokens"]).all()
    assert (ours["completion_tokens"] == theirs["output_tokens"]).all()
    assert (ours["prompt_tokens"] == theirs["prompt_tokens"]).all()


def test_replies_that_end_below_their_framing(tmp_path: Path, secured: dict[str, str]) -> None:
    """An alert, an end that was not announced and bytes that are not a record each have their status; what came is kept."""
    expected = {
        "tls_alert": ("connection_error", "tls"),
        "tls_truncate": ("truncated", "closed_in_body"),
        "tls_garbage": ("connection_error", "tls"),
        "close": ("truncated", "closed_in_body"),
        "reset": ("connection_error", "reset"),
    }
    faults = tuple(f"{name}:0.15" for name in expected)
    measured = over_tls(tmp_path / "run", secured, ["--rate", "50", "-n", "80", "--osl", "8"], faults=faults)
    ours, theirs = measured.joined()
    named = [NAMES.get(fault) for fault in theirs["fault"]]
    assert set(named) == {None, *expected}
    found = [(STATUS_NAMES[row["status"]], ERROR_NAMES[row["error"]]) for row in ours]
    assert found == [("ok", "none") if name is None else expected[name] for name in named]
    assert (ours["content_events"] == theirs["output_tokens"]).all()


def test_sessions_are_resumed_as_the_server_says(tmp_path: Path, secured: dict[str, str]) -> None:
    """Each reply ends its connection: with --tls-resume most of the later ones continue a session, without, none does."""
    for more, resumed in ((["--tls-resume"], True), ([], False)):
        options = ["-c", "4", "-n", "60", "--osl", "4", *more]
        measured = over_tls(tmp_path / str(resumed), secured, options, faults=("until_close:1",), itl_ms=2.0)
        assert measured.exit_code == 0, measured.said
        ours, theirs = measured.joined()
        assert len(set(theirs["connection"])) == len(ours) == 60
        continued = theirs["flags"] & FLAGS["resumed"] > 0
        assert continued.mean() > 0.5 if resumed else not continued.any()


@pytest.mark.clock
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
