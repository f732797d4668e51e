"""The adapters of examples/ run against the simulated engine, as their harnesses call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"
MOST_S = 120


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=2.0, itl_ms=0.2, phase="spread", model="m")) as simulator:
        yield simulator.url.removesuffix("/").removesuffix("/v1")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`fastllmload` on the PATH is this one."""
    program = tmp_path / "bin" / "fastllmload"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fastllmload "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def ran(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, check=False, timeout=MOST_S, capture_output=True, text=True)


def test_llm_d_benchmark(url: str, environment: dict[str, str], tmp_path: Path) -> None:
    """A report 0.2 and a summary for the run of a profile; the exit code of a refusal is the harness's."""
    profiles = tmp_path / "work" / "profiles" / "fastllmload"
    profiles.mkdir(parents=True)
    (profiles / "short.toml").write_text(
        'rate = 40\nnum-requests = 30\nisl = 16\nosl = 8\nwarmup = 2\nurl = "http://not-this:1"\n'
    )
    results = tmp_path / "results"
    environment |= {
        "LLMDBENCH_RUN_EXPERIMENT_RESULTS_DIR": str(results), "LLMDBENCH_RUN_WORKSPACE_DIR": str(tmp_path / "work"),
        "LLMDBENCH_RUN_EXPERIMENT_HARNESS_WORKLOAD_NAME": "short.toml", "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL": url,
    }  # fmt: skip
    script = str(EXAMPLES / "llm-d-benchmark" / "fastllmload-llm-d-benchmark.sh")
    found = ran([script], environment)
    assert found.returncode == 0, found.stderr
    report = json.loads((results / "benchmark_report_v0.2,_run.yaml").read_text())
    assert (
        report["version"] == "0.2" and report["results"]["request_performance"]["aggregate"]["requests"]["total"] == 30
    )
    assert load(results / "run").document.counts.ok == 30 and (results / "short.toml").is_file()
    assert "verdict" in (results / "analysis" / "summary.txt").read_text()
    (profiles / "short.toml").write_text("ratte = 40\n")
    assert ran([script], environment).returncode == 2


def test_the_profile_is_read(environment: dict[str, str]) -> None:
    found = ran(
        ["fastllmload", "plan", "--config", str(EXAMPLES / "llm-d-benchmark" / "profile.toml"), "--model", "m"],
        environment,
    )
    assert found.returncode == 0, found.stderr


def test_inference_harness(url: str, environment: dict[str, str], tmp_path: Path) -> None:
    """The result file is written where it was asked for, and has what the harness's script reads."""
    folder = EXAMPLES / "inference-harness"
    options = f"""--model m --backend vllm --base-url {url} --dataset-name random --random-input-len 16 --random-output-len 8
        --random-range-ratio 0.5 --num-prompts 40 --max-concurrency 4 --request-rate inf --ignore-eos --save-result
        --percentile-metrics ttft,tpot,itl,e2el --result-dir {tmp_path / "out"} --result-filename result.json"""
    words = [str(folder / "benchmark_serving"), *options.split()]
    (tmp_path / "out").mkdir()
    found = subprocess.run(
        words, env=environment, check=False, timeout=MOST_S, capture_output=True, text=True, cwd=tmp_path
    )
    assert found.returncode == 0, found.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    rows = json.loads(
        ran([sys.executable, str(folder / "per_gpu"), str(tmp_path / "out" / "result.json"), "4"], environment).stdout
    )
    assert rows["tput_per_gpu"] == pytest.approx(result["total_token_throughput"] / 4) and rows["conc"] == 4
    assert rows["mean_ttft"] == pytest.approx(result["mean_ttft_ms"] / 1e3)
    assert rows["median_intvty"] == pytest.approx(1e3 / result["median_tpot_ms"]) and rows["p99_e2el"] > 0
