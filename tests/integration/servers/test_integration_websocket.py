"""WebSocket with other programs: OpenAI's SDK reads the simulated engine, and the library websockets serves a run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import command

from fastllmload.records.layout import STATUS_NAMES
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def python(real_servers: Path) -> Path:
    python = real_servers / "bin" / "python"
    if subprocess.run([python, "-c", "import openai, websockets"], capture_output=True).returncode:
        pytest.skip("openai[realtime] is not installed (tools/integration-setup asks pip for it)")
    return python


@pytest.mark.parametrize(
    ("fault", "expected"), [("text", ""), ("error", "simulated failure"), ("busy", "simulated failure")]
)
def test_the_sdk_reads_two_answers_on_a_connection(python: Path, fault: str, expected: str) -> None:
    """Deltas, final object and usage agree; an error is raised with its words."""
    with SimulatorProcess(SimulatorOptions(ttft_ms=2, itl_ms=1)) as server:
        script, asked = [python, HERE / "official_sdks.py", server.url], f"openai-responses-ws {fault}\n"
        done = subprocess.run(script, input=asked, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if expected:
        assert expected in found["error"]
        return
    assert found["final"] == found["text"] and len(found["text"].split()) == 12
    assert found["usage"] == [5, 12] and found["second"] == 12 and found["status"] == "incomplete"


def test_a_server_on_another_library_reads_our_requests(python: Path, tmp_path: Path) -> None:
    """It unmasks frames whose key is 0, sends messages in parts, and waits for the answer to each ping."""
    log = tmp_path / "log"
    with subprocess.Popen(
        [python, HERE / "websocket_server.py", log], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            url = f"ws://127.0.0.1:{server.stdout.readline().strip()}"
            load_of = ["--rate", "40", "--num-requests", "30", "--isl", "16", "--osl", "3", "--warmup", "0"]
            target = ("--url", url, "-m", "m", "--endpoint-type", "openai-responses-ws", "--output", tmp_path / "run")
            done = command(*target, *load_of)
        finally:
            server.terminate()
    run = load(tmp_path / "run")
    assert {STATUS_NAMES[one] for one in run.rows["status"]} == {"ok"} and len(run.rows) == 30, done.stderr
    assert set(run.rows["content_events"]) == {3} and set(run.rows["completion_tokens"]) == {3}
    asked = [json.loads(line)["asked"] for line in log.read_text().splitlines()][1:]  # the first is the probe
    names = [one["metadata"]["request_id"].rpartition("-")[2] for one in asked]
    assert sorted(map(int, names)) == list(range(30)) and {one["type"] for one in asked} == {"response.create"}
