"""Real engines read our requests, and we their answers: vLLM with random weights and Triton, over HTTP and gRPC.

Triton is installed with the other servers. vLLM is 3 GB: `tools/integration-setup vllm` installs it, and without it its
tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from integration.servers.real_gateways import conserved, free_port, run, running

BUILD = Path(__file__).parents[3] / "build"
LOAD = ("--concurrency", "2", "--num-requests", "12", "--isl", "40", "--warmup", "0")
TOKENS = 16
SERVE = ("--load-format", "dummy", "--served-model-name", "tiny", "--max-model-len", "2048", "--enforce-eager")
QUIET = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}


# vLLM listens for gRPC before it has warmed up, and says so in its health check.
SERVING = """
import sys, grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
channel = grpc.insecure_channel("127.0.0.1:" + sys.argv[1])
said = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
sys.exit(said.status != health_pb2.HealthCheckResponse.SERVING)
"""


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def vllm(folder: Path, *options: str, grpc: bool = False) -> Iterator[tuple[str, str]]:
    """vLLM's URL, and the folder of its model."""
    environment = BUILD / "vllm-venv"
    if not (environment / ".done").exists():
        pytest.skip("vLLM is not installed: tools/integration-setup vllm installs it (3 GB)")
    model = folder / "model"
    script = str(Path(__file__).with_name("vllm_model.py"))
    subprocess.run([environment / "bin" / "python", script, model], check=True, timeout=120)
    port = free_port()
    command = [str(environment / "bin" / "vllm"), "serve", str(model), *SERVE, "--port", str(port), *options]
    variables = os.environ | QUIET | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with running(command, port, folder, wait_s=400, environment=variables):
        asked = [str(environment / "bin" / "python"), "-c", SERVING, str(port)] if grpc else None
        give_up = time.monotonic() + 120
        while not (answers(port) if asked is None else subprocess.run(asked, capture_output=True).returncode == 0):
            assert time.monotonic() < give_up, (folder / "output.txt").read_text()[-2000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}", str(model)


@pytest.fixture(scope="module")
def generating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with vllm(tmp_path_factory.mktemp("vllm"), "--enable-scale-out") as served:
        yield served


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with vllm(tmp_path_factory.mktemp("vllm-grpc"), "--grpc", grpc=True) as served:
        yield served


@pytest.fixture(scope="module")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with vllm(tmp_path_factory.mktemp("vllm-pooling"), "--runner", "pooling", "--convert", "embed") as served:
        yield served


def answered(url: str, folder: Path, endpoint: str, *options: str) -> dict[str, Any]:
    code, said, document = run(url, folder, *LOAD, "--endpoint-type", endpoint, *options)
    assert code == 0, said
    assert conserved(document)
    assert document["counts"]["ok"] == document["counts"]["planned"], said
    return document


def counted(url: str, folder: Path, endpoint: str, *options: str) -> dict[str, Any]:
    """As many tokens as were asked for, from the server's own count, with times between them."""
    document = answered(url, folder, endpoint, "--osl", str(TOKENS), *options)
    counts, metrics = document["counts"], document["metrics"]
    assert counts["output_tokens"] == TOKENS * counts["ok"]
    assert counts["output_tokens_source"]["usage"] == counts["ok"]
    assert 0 < metrics["ttft"]["p50"] < metrics["e2e"]["p50"]
    assert metrics["itl"]["n"] + metrics["tbc"]["n"] > 0
    return document


@pytest.mark.parametrize(
    "options",
    [
        ["openai-chat"],
        ["openai-completions"],
        ["openai-completions", "--prompt-form", "ids"],
        ["openai-responses"],
        ["anthropic-messages", "--extra-body", '{"ignore_eos":true}'],
        ["vllm-generate", "--prompt-form", "ids"],
    ],
    ids=["chat", "completions", "ids", "responses", "messages", "generate"],
)
def test_vllm_answers_each_of_its_protocols(tmp_path: Path, generating: tuple[str, str], options: list[str]) -> None:
    url, model = generating
    counted(url, tmp_path / "run", *options, "--tokenizer", model)


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "openai-responses", "anthropic-messages"])
def test_vllm_continues_conversations(tmp_path: Path, generating: tuple[str, str], endpoint: str) -> None:
    options = ("--turns", "3", "--num-requests", "4", "--osl", str(TOKENS))
    assert answered(generating[0], tmp_path / "run", endpoint, *options)["counts"]["ok"] == 12


def test_vllm_says_what_it_has_not(tmp_path: Path, generating: tuple[str, str]) -> None:
    code, said, _ = run(generating[0], tmp_path / "run", *LOAD, "--endpoint-type", "tgi")
    assert code == 3
    assert "--endpoint-type openai-chat" in said


@pytest.mark.parametrize("options", [(), ("--prompt-form", "ids")], ids=["text", "ids"])
def test_vllm_answers_grpc(tmp_path: Path, calling: tuple[str, str], options: tuple[str, ...]) -> None:
    url, model = calling
    document = counted(url, tmp_path / "run", "vllm-grpc", "--tokenizer", model, *options)
    assert document["target"]["http_version"] == "2"


@pytest.mark.parametrize("endpoint", ["openai-embeddings", "pooling", "score", "rerank"])
def test_vllm_answers_without_tokens(tmp_path: Path, pooling: tuple[str, str], endpoint: str) -> None:
    assert "ttft" not in answered(pooling[0], tmp_path / "run", endpoint)["metrics"]


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory, real_servers: Path) -> Iterator[tuple[str, str]]:
    """URLs of Triton's HTTP and gRPC ports."""
    environment = real_servers.parent / "triton-venv"
    if not (environment / ".done").exists():
        pytest.skip("Triton is not installed: tools/integration-setup could not install nvidia-pytriton")
    folder = tmp_path_factory.mktemp("triton")
    http, grpc, metrics = free_port(), free_port(), free_port()
    script = str(Path(__file__).with_name("triton_server.py"))
    command = [str(environment / "bin" / "python"), script, str(http), str(grpc), str(metrics)]
    with running(command, http, folder):
        give_up = time.monotonic() + 60
        while "ready\n" not in (folder / "output.txt").read_text():
            assert time.monotonic() < give_up, (folder / "output.txt").read_text()[-2000:]
            time.sleep(0.1)
        yield f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}"


def test_triton_answers_http(tmp_path: Path, triton: tuple[str, str]) -> None:
    counted(triton[0], tmp_path / "run", "triton-generate", "-m", "tiny")


def test_triton_answers_grpc(tmp_path: Path, triton: tuple[str, str]) -> None:
    counted(triton[1], tmp_path / "run", "kserve-grpc", "-m", "tiny")


def test_triton_says_that_it_has_no_such_model(tmp_path: Path, triton: tuple[str, str]) -> None:
    code, said, _ = run(triton[1], tmp_path / "run", *LOAD, "--endpoint-type", "kserve-grpc", "-m", "other")
    assert code == 3
    assert "other" in said
