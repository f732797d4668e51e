"""Official codecs of gRPC read the simulated engine's answers whole: stubs of the engines' protos, and Triton's client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

SCRIPT = Path(__file__).with_name("official_codecs.py")
PACKAGES = {"vllm-grpc": "smg_grpc_proto", "sglang-grpc": "smg_grpc_proto", "kserve-grpc": "tritonclient.grpc"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=2, itl_ms=1)) as server:
        yield server.url


def read(environment: Path, endpoint: str, url: str, case: str) -> dict[str, Any]:
    python = environment / "bin" / "python"
    package = PACKAGES[endpoint]
    if subprocess.run([python, "-c", f"import grpc, {package}"], capture_output=True).returncode:
        pytest.skip(f"the package {package} is not installed (tools/integration-setup asks pip for it)")
    done = subprocess.run([python, SCRIPT, endpoint, url, case], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("endpoint", ["vllm-grpc", "sglang-grpc"])
@pytest.mark.parametrize("case", ["stream", "whole"])
def test_stubs_read_all_of_an_answer(real_servers: Path, url: str, endpoint: str, case: str) -> None:
    """Twelve ids, one in each chunk; the last message repeats the latest, and has all of an answer that is not a stream."""
    found = read(real_servers, endpoint, url, case)
    streamed = case == "stream"
    assert found["chunks"] == len(found["ids"]) == 12 * streamed
    assert found["last"] == found["ids"][-1:] if streamed else len(found["last"]) == 12
    assert found["usage"] == [5, 1 if streamed and endpoint == "vllm-grpc" else 12]  # vLLM: of the last chunk
    assert (found["finish"], found["model"], found["healthy"]) == ("length", "simulated", True) and found["context"] > 0


@pytest.mark.parametrize("case", ["stream", "whole"])
def test_tritons_client_reads_two_answers_of_a_stream(real_servers: Path, url: str, case: str) -> None:
    found = read(real_servers, "kserve-grpc", url, case)
    assert found["live"] == [True] * 3 and len(found["answers"]) == 2
    for one in found["answers"]:
        assert len(one["text"].split()) == 12 and (one["finish"], one["prompt"]) == ("length", 5)
        assert one["tokens"] == ([1] * 12 if case == "stream" else [12])


@pytest.mark.parametrize("endpoint", PACKAGES)
def test_codecs_raise_what_the_engine_says(real_servers: Path, url: str, endpoint: str) -> None:
    assert read(real_servers, endpoint, url, "error")["error"][1] == "simulated failure"
    status, said = read(real_servers, endpoint, url, "busy")["error"]
    assert "RESOURCE_EXHAUSTED" in status and said == "simulated failure"
