"""The worked example of CONTRIBUTING, "Add a wire protocol": its file alone makes a protocol that the program speaks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.canned_server import canned

from fastllmload.records.layout import FINISH_NAMES

ROOT = Path(__file__).parents[3]
PROTOCOLS = Path("endpoint") / "protocols"
EXAMPLE = re.compile(r"## Add a wire protocol\n.*?```python\n(.*?)```", re.DOTALL)
ONE_CLASS = ["--rate", "40", "-n", "8", "--isl", "5", "--osl", "3", "--seed", "1"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, in which the example's file is in place; all other files are links to ours."""
    path: Path = tmp_path_factory.mktemp("src")
    source, copy = ROOT / "src" / "fastllmload", path / "fastllmload"
    for folder in (Path(), PROTOCOLS.parent, PROTOCOLS):
        (copy / folder).mkdir()
        for each in (source / folder).iterdir():
            if each.relative_to(source) not in (PROTOCOLS, PROTOCOLS.parent) and each.name != "__pycache__":
                (copy / folder / each.name).symlink_to(each)
    found = EXAMPLE.search((ROOT / "CONTRIBUTING.md").read_text())
    assert found is not None
    (copy / PROTOCOLS / "plaintext.py").write_text(found[1])
    return path


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "fastllmload", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_the_command_line_offers_it(package: Path) -> None:
    shown = run(package, "run", "--help").stdout
    assert "ollama-generate,plaintext" in "".join(shown.split())


def test_a_plan_has_its_bodies(package: Path, tmp_path: Path) -> None:
    """Of conversations, too: every turn is one text."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fastllmload.endpoint import resolve_endpoint\n"
        "from fastllmload.plan.build import build_plan\n"
        "from fastllmload.settings import Load, RunSettings, Workload\n"
        "workload = Workload(isl='5', osl='3', turns='2', history='planned', extra_body='{\"top_k\":4}')\n"
        "settings = RunSettings(load=Load(rate=9.0, num_requests=1), workload=workload)\n"
        "plan = build_plan(settings, phase='measure', endpoint=resolve_endpoint('plain'), model='m', "
        "out_dir=Path(sys.argv[1]))\n"
        "print(plan.body(0).decode())\n"
        "print(plan.body(1).decode())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", script, str(tmp_path / "plan")]
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True).stdout
    first, second = map(json.loads, printed.splitlines())
    assert first == {"inputs": first["inputs"], "parameters": {"max_new_tokens": 3, "temperature": 0.0}, "top_k": 4}
    assert second["inputs"].startswith(first["inputs"] + "\n") and second["inputs"].count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--prompt-form", "ids"], "protocol-unsupported", "take text"),
        (["--image", "8x8"], "protocol-unsupported", "--image needs --endpoint-type openai-chat"),
        (["--turns", "2", "--tool-turns", "0.5"], "protocol-unsupported", "plaintext"),
        (["--extra-body", '{"inputs":"x"}'], "extra-body-reserved", "'inputs'"),
    ],
)
def test_what_it_lacks_is_refused(package: Path, arguments: list[str], code: str, words: str) -> None:
    ended = run(package, "plan", "--endpoint-type", "plaintext", *ONE_CLASS, "-m", "m", *arguments)
    assert ended.returncode == 2 and code in ended.stderr and words in ended.stderr


@pytest.mark.slow
def test_a_run_with_it(package: Path, tmp_path: Path) -> None:
    """Preflight needs a model name, and says what the protocol lacks; the run sends its bodies and reads its events."""
    events = [{"token": {"text": text}, "finish_reason": None} for text in ("one", " two")]
    events.append({"token": {"text": " three"}, "finish_reason": "length"})
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    with canned({"/generate": (200, "text/event-stream", stream)}) as server:
        common = ["--url", server.url, "--endpoint-type", "plain", "--api-key", "sk-1", *ONE_CLASS, "--no-telemetry"]
        unnamed = run(package, "run", *common)
        assert unnamed.returncode == 2 and "[model-missing]" in unnamed.stderr
        ended = run(package, "run", *common, "-m", "m", "--warmup-requests", "0", "--output", str(tmp_path / "run"))
    assert "(max_new_tokens)" in ended.stdout + ended.stderr, ended.stderr
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["target"]["endpoint_type"] == "plaintext"
    assert document["counts"]["ok"] == 8
    assert {method for method, *_ in server.asked} == {"POST"}
    _, path, headers, body = server.asked[-1]
    assert path == "/generate" and headers["X-Api-Key"] == "sk-1"
    assert json.loads(body)["parameters"]["max_new_tokens"] == 3


@pytest.mark.slow
def test_the_simulated_engine_answers_with_it(package: Path, tmp_path: Path) -> None:
    """Without a server: the engine reads the length that is asked for, and says each of its tokens in an event."""
    options = [
        "--rate",
        "40",
        "-n",
        "8",
        "--isl",
        "5",
        "--osl",
        "7",
        "--warmup-requests",
        "0",
        "--endpoint-type",
        "plaintext",
    ]
    ended = run(package, "run", *options, "-m", "simulated", "--output", str(tmp_path / "run"))
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["counts"]["ok"] == 8, ended.stderr
    rows = np.load(tmp_path / "run" / "requests.npy")
    assert set(rows["content_events"]) == {7} and set(rows["finish"]) == {FINISH_NAMES.index("length")}
