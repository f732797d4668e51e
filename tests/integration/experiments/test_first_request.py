"""What the target is asked first, and what stands on the disk by then: declarations, and nothing before a cold start."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from commands import command

KEY = "sk-first-request-abcdef"
WORDS = {
    "sut.boundary": "application_gateway", "sut.model.name": "tiny", "sut.model.version": "1",
    "sut.model.quantization": "none", "sut.hardware.accelerator": "cpu", "sut.hardware.count": "1",
    "sut.hardware.memory_gib": "1", "prefix_cache.enabled": "no", "guardrails.input_filter": "disabled",
    "guardrails.output_filter": "disabled", "guardrails.names": "none", "tokenizer.name": "t",
    "tokenizer.vocabulary": "100", "tokenizer.source": "custom", "token_counting.bos_eos": "excluded",
}  # fmt: skip


@dataclass
class Server:
    """Answers with as many words as asked for. *asked*: method of each request, *seen*: procedure.json at the first."""

    folder: Path
    asked: list[str] = field(default_factory=list)
    seen: dict[str, Any] | None = None
    url: str = ""

    def note(self, method: str) -> None:
        if not self.asked and (path := self.folder / "procedure.json").exists():
            self.seen = json.loads(path.read_bytes())
        self.asked.append(method)


def events(count: int) -> bytes:
    """A streamed answer of *count* tokens, with usage."""
    choices = [{"index": 0, "delta": {"content": " a"}, "finish_reason": None}]
    found: list[dict[str, Any]] = [{"choices": choices} for _ in range(count)]
    found.append(
        {"choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": count, "total_tokens": 16 + count}}
    )
    return b"".join(b"data: " + json.dumps({"model": "tiny", **one}).encode() + b"\n\n" for one in found) + (
        b"data: [DONE]\n\n"
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    noted = Server(tmp_path / "p")

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: object) -> None:
            """Not to the terminal."""

        def send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            noted.note("GET")
            self.send(json.dumps({"object": "list", "data": [{"id": "tiny"}]}).encode(), "application/json")

        def do_POST(self) -> None:
            noted.note("POST")
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send(events(asked.get("max_completion_tokens") or asked.get("max_tokens") or 1), "text/event-stream")

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as http:
        noted.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield noted
        finally:
            http.shutdown()
            thread.join()


def procedure(server: Server, *more: str) -> subprocess.CompletedProcess[str]:
    words = [word for key, value in WORDS.items() for word in ("--declare", f"{key}={value}")]
    return command(
        "procedure", "ttft", "--url", server.url, "--rate", "20", "-n", "20", "--isl", "16", "--osl", "2",
        "--api-key", KEY, "--no-telemetry", "-o", server.folder, *words, *more,
    )  # fmt: skip


def test_the_declarations_are_on_the_disk_before_the_first_request(server: Server) -> None:
    """All of them, in a document that says that the test is running; and the model was asked for an answer in advance, with
    usage and then with token ids in each event.
    """
    ended = procedure(server, "--warmup", "0")
    assert ended.returncode == 0, ended.stderr
    assert server.seen is not None and server.seen["status"] == "running"
    assert server.seen["manifest"]["declarations"] == WORDS
    assert server.asked.count("POST") == 22


def test_a_cold_start_is_asked_nothing_before_its_first_request(server: Server) -> None:
    """No warm-up, no probe, no answer in advance; the hook's time is the load time, and what it printed of the key is in
    no file. A hook that the test does not use is reported.
    """
    hooks = ("--hook", f"restart=echo {KEY}", "--hook", "cache-on=true")
    ended = procedure(server, "--declare", "cold_start=yes", *hooks)
    assert ended.returncode == 0, ended.stderr
    assert server.asked.count("POST") == 20
    assert "--hook cache-on" in ended.stderr and "[option-not-applicable]" in ended.stderr
    assert "IETF 5.1 Time" in ended.stdout and "COLD START" in ended.stdout
    found = json.loads((server.folder / "procedure.json").read_bytes())
    assert found["cold_start"]["model_load_time_s"] >= 0 and found["cold_start"]["cold_start_latency_ms"] >= 0
    assert found["steps"][0]["output"] == "***\n"
    held = found["compliance"]["must"]
    assert not {"IETF-4.5.3-a", "IETF-4.5.3-b"} & {*held["false"], *held["undeclared"]}
    assert not any(KEY.encode() in path.read_bytes() for path in server.folder.rglob("*") if path.is_file())


def test_a_hook_that_fails_shows_no_secret_either(server: Server) -> None:
    """Exit code 2; the report has the hook's last words without the key."""
    ended = procedure(server, "--declare", "cold_start=yes", "--hook", f"restart=echo {KEY}; exit 3")
    assert ended.returncode == 2 and "POST" not in server.asked
    assert "ended with status 3: ***" in ended.stderr
    assert "ended with status 3: ***" in (server.folder / "procedure.json").read_text()
    assert not any(KEY.encode() in path.read_bytes() for path in server.folder.rglob("*") if path.is_file())
