"""The vendors' own SDKs read the simulated engine's answers whole: deltas, the final object, usage, errors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

SCRIPT = Path(__file__).with_name("official_sdks.py")
EACH = pytest.mark.parametrize("endpoint", ["openai-responses", "anthropic-messages"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=2, itl_ms=1)) as server:
        yield server.url


def read(environment: Path, endpoint: str, url: str, case: str) -> dict[str, Any]:
    python = environment / "bin" / "python"
    package = "huggingface_hub" if endpoint == "tgi" else endpoint.partition("-")[0]
    if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode:
        pytest.skip(f"the package {package} is not installed (tools/integration-setup asks pip for it)")
    done = subprocess.run([python, SCRIPT, endpoint, url, case], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@EACH
@pytest.mark.parametrize("case", ["text", "thought", "calls"])
def test_an_sdk_reads_all_of_an_answer(real_servers: Path, url: str, endpoint: str, case: str) -> None:
    """What the deltas say is what the SDK's final object says; twelve tokens, a few of them thought where that is asked."""
    found = read(real_servers, endpoint, url, case)
    text, thought = found["text"]
    assert found["final"] == found["text"] and found["usage"] == [[5, 12]] * 2
    words, calls = {"text": (12, 0), "thought": (9, 0), "calls": (0, 2)}[case]
    assert (len(text.split()), len(found["calls"]), len(thought.split())) == (words, calls, 3 * (case == "thought"))
    assert found["whole"] == [0 if calls else 12, calls]
    assert all(list(one) == ["text"] for one in found["calls"])
    assert found["reasoning"] == 3 * (case == "thought")
    ended = {
        "openai-responses": (["incomplete", "max_output_tokens"], ["completed", None]),
        "anthropic-messages": (["max_tokens"], ["tool_use"]),
    }
    assert found["status"] == ended[endpoint][case == "calls"]


@EACH
@pytest.mark.parametrize("case", ["error", "busy"])
def test_an_sdk_raises_what_the_engine_says(real_servers: Path, url: str, endpoint: str, case: str) -> None:
    assert "simulated failure" in read(real_servers, endpoint, url, case)["error"]


@pytest.mark.parametrize("case", ["text", "thought", "calls"])
@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "tgi", "ollama-chat", "ollama-generate"])
def test_an_sdk_reads_a_stream_to_its_end(real_servers: Path, url: str, endpoint: str, case: str) -> None:
    """Twelve tokens, streamed and whole; thoughts and calls where the protocol has them."""
    if (case != "text" and endpoint in ("openai-completions", "tgi")) or (case, endpoint) == (
        "calls",
        "ollama-generate",
    ):
        pytest.skip("the protocol has none")
    found = read(real_servers, endpoint, url, case)
    assert "error" not in found, found
    words = {"text": 12, "thought": 9, "calls": 0 if endpoint == "openai-chat" else 10}[case]  # Ollama says text, too
    assert len(found["text"].split()) == words and found.get("final", found["text"]) == found["text"]
    assert len(found.get("thought", "").split()) == 3 * (case == "thought")
    assert [one[1] for one in found["usage"]] == [12, 12] and {one[0] for one in found["usage"]} <= {None, 1, 5}
    if case == "calls":
        assert found["calls"] == [0, 1] and found["whole"] == [0, 2]
    else:
        assert found["finish"] == "length"


def test_an_sdk_reads_an_embedding(real_servers: Path, url: str) -> None:
    found = read(real_servers, "openai-embeddings", url, "text")
    assert found["vector"] == [0.25, -0.5] and found["usage"][0] == found["usage"][1] > 0


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "tgi", "ollama-chat", "ollama-generate"])
def test_an_sdk_raises_an_error_inside_a_stream(real_servers: Path, url: str, endpoint: str) -> None:
    assert "simulated failure" in read(real_servers, endpoint, url, "error")["error"]
