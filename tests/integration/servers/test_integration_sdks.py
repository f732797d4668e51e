"""The vendors' own SDKs read the simulated engine's answers whole: deltas, the final object, usage, errors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

SCRIPT = Path(__file__).with_name("official_sdks.py")
EACH = pytest.mark.parametrize("endpoint", ["openai-responses", "anthropic-messages"])


Read = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def read(real_servers: Path) -> Iterator[Read]:
    """`read(endpoint, case)`: what the SDK of the endpoint read; one process imports each SDK once."""
    engine = SimulatorProcess(SimulatorOptions(ttft_ms=2, itl_ms=1))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with engine as server, subprocess.Popen([real_servers / "bin" / "python", SCRIPT, server.url], **pipes) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        asking, answers = reader.stdin, reader.stdout

        def asked(endpoint: str, case: str) -> dict[str, Any]:
            print(endpoint, case, file=asking, flush=True)
            found: dict[str, Any] = json.loads(answers.readline() or '{"error": "the process has ended"}')
            if "missing" in found:
                pytest.skip(f"{found['missing']} is not installed (tools/integration-setup asks pip for it)")
            return found

        yield asked
        asking.close()


@EACH
@pytest.mark.parametrize("case", ["text", "thought", "calls"])
def test_an_sdk_reads_all_of_an_answer(read: Read, endpoint: str, case: str) -> None:
    """What the deltas say is what the SDK's final object says; twelve tokens, a few of them thought where that is asked."""
    found = read(endpoint, case)
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
def test_an_sdk_raises_what_the_engine_says(read: Read, endpoint: str, case: str) -> None:
    assert "simulated failure" in read(endpoint, case)["error"]


@pytest.mark.parametrize("case", ["text", "thought", "calls"])
@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "tgi", "ollama-chat", "ollama-generate"])
def test_an_sdk_reads_a_stream_to_its_end(read: Read, endpoint: str, case: str) -> None:
    """Twelve tokens, streamed and whole; thoughts and calls where the protocol has them."""
    if (case != "text" and endpoint in ("openai-completions", "tgi")) or (case, endpoint) == (
        "calls",
        "ollama-generate",
    ):
        pytest.skip("the protocol has none")
    found = read(endpoint, case)
    assert "error" not in found, found
    words = {"text": 12, "thought": 9, "calls": 0 if endpoint == "openai-chat" else 10}[case]  # Ollama says text, too
    assert len(found["text"].split()) == words and found.get("final", found["text"]) == found["text"]
    assert len(found.get("thought", "").split()) == 3 * (case == "thought")
    assert [one[1] for one in found["usage"]] == [12, 12] and {one[0] for one in found["usage"]} <= {None, 1, 5}
    if case == "calls":
        assert found["calls"] == [0, 1] and found["whole"] == [0, 2]
    else:
        assert found["finish"] == "length"


def test_an_sdk_reads_an_embedding(read: Read) -> None:
    found = read("openai-embeddings", "text")
    assert found["vector"] == [0.25, -0.5] and found["usage"][0] == found["usage"][1] > 0


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "tgi", "ollama-chat", "ollama-generate"])
def test_an_sdk_raises_an_error_inside_a_stream(read: Read, endpoint: str) -> None:
    assert "simulated failure" in read(endpoint, "error")["error"]
