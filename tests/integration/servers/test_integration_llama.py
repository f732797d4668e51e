"""llama.cpp's own server with a model of random weights: a real engine, driven and counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.servers.real_gateways import conserved, llama, run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, real_servers: Path) -> Iterator[str]:
    with llama(tmp_path_factory.mktemp("llama") / "server", real_servers) as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize(
    "options",
    [
        ["--rate", "10", "--duration", "3"],
        ["--concurrency", "8", "--num-requests", "40"],
        ["--rate", "10", "--duration", "2", "--no-stream"],
        ["--concurrency", "4", "--num-requests", "16", "--endpoint-type", "openai-completions"],
        ["--concurrency", "4", "--num-requests", "16", "--fresh-connections"],
        ["--concurrency", "4", "--num-requests", "16", "--endpoint-type", "openai-responses"],
        [
            "--concurrency",
            "4",
            "--num-requests",
            "16",
            "--endpoint-type",
            "anthropic-messages",
            "--extra-body",
            '{"ignore_eos":true}',
        ],
    ],
    ids=["open", "closed", "whole", "completions", "fresh", "responses", "messages"],
)
def test_every_request_is_answered_and_counted(tmp_path: Path, server: str, options: list[str]) -> None:
    """64 tokens asked, 64 in usage, at most 64 chunks (a chunk is not a token), nothing lost.

    This server closes kept connections now and then: a request that meets that has its own class and is not retried.
    """
    code, said, document = run(server, tmp_path / "run", "--isl", "32", "--osl", "64", "--warmup", "3", *options)
    assert code == 0, said
    assert conserved(document)
    assert {group["error"] for group in document["errors"]} <= {"reused_connection_lost"}, document["errors"]
    counts = document["counts"]
    assert counts["ok"] >= 0.8 * counts["planned"]
    assert counts["output_tokens"] == 64 * counts["ok"]
    assert counts["output_tokens_source"]["usage"] == counts["ok"]
    assert document["target"]["model"] == "tiny"
    metrics = document["metrics"]
    assert 0 < metrics["ttft"]["p50"] <= metrics["e2e"]["p50"]
    if "--no-stream" not in options:
        assert metrics["itl"]["n"] + metrics["tbc"]["n"] > 40 * metrics["e2e"]["n"]


def test_an_unknown_model_is_refused(tmp_path: Path, server: str) -> None:
    code, said, document = run(server, tmp_path / "run", "-m", "no-such", "--rate", "5", "--duration", "1")
    assert code == 2 and not document and "'tiny'" in said, said
