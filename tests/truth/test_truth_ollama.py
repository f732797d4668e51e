"""Over Ollama's protocol every figure is the server's own too, and its durations are what its log says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from truth_bench import measure, until_quiet, within

pytestmark = pytest.mark.clock

NAMES = ("total", "load", "prompt_eval", "eval")


@pytest.mark.parametrize("resource", ["ollama-chat", "ollama-generate"])
def test_figures_are_the_servers_own(tmp_path: Path, resource: str) -> None:
    """Server durations equal to the nanosecond; ttft, every token and e2e within what the host's noise allows."""

    def check(directory: Path) -> tuple[bool | None, str]:
        measured = measure(
            directory,
            ["--endpoint-type", resource, "--rate", "40", "--duration", "2", "--isl", "32", "--osl", "15",
             "--warmup", "5", "--seed", "7"],
            ttft_ms=25.0, itl_ms=8.0, phase="spread",
        )  # fmt: skip
        assert measured.exit_code == 0, measured.said
        ours, theirs = measured.joined()
        assert (ours["status"] == 2).all()
        assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])
        for name in NAMES:
            assert list(ours[f"server_{name}_ns"]) == list(theirs[f"{name}_ns"]), name
        assert (theirs["prompt_eval_ns"] >= 25_000_000).all()
        assert (theirs["total_ns"] >= theirs["prompt_eval_ns"] + theirs["eval_ns"]).all()
        server = measured.document["metrics"]["server_eval_duration"]
        assert server["n"] == measured.document["counts"]["latency_population"]
        errors, _, _ = measured.content_errors_ns()
        ttft = (ours["t_first"] - ours["t_submit"]) - (theirs["t_first"] - theirs["t_recv_last_kernel"])
        found = {
            "token": np.percentile(np.abs(errors), [50, 99]) / 1e3,
            "ttft": np.percentile(np.abs(ttft), [50, 99]) / 1e3,
        }
        assert np.percentile(errors, 0.1) > -2_000, "nothing is received before it is sent"
        return within(measured, found, 40, 600), str(
            {name: figures.round(1).tolist() for name, figures in found.items()}
        )

    until_quiet(tmp_path, check)


def test_a_whole_answer_brings_its_durations(tmp_path: Path) -> None:
    """stream: false gives one JSON object; it has the same figures."""
    measured = measure(
        tmp_path / "run",
        ["--endpoint-type", "ollama-generate", "--no-stream", "--rate", "40", "--num-requests", "20", "--isl", "16",
         "--osl", "10", "--warmup", "2"],
        ttft_ms=10.0, itl_ms=2.0, phase="spread",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert (ours["status"] == 2).all() and set(ours["completion_tokens"]) == {10}
    for name in NAMES:
        assert list(ours[f"server_{name}_ns"]) == list(theirs[f"{name}_ns"]), name
    assert (theirs["eval_ns"] >= 9 * 2_000_000).all()
