"""`--between` with servers that refuse, only say that they do it, are in use, or keep their secrets in what they say."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from commands import command
from refusals import says

from fastllmload.engine.control import control, replica

LOAD = ["--rate", "40", "-n", "6", "--isl", "8", "--osl", "2", "--warmup", "3", "--ui", "plain", "-m", "m"]
KEY = "sk-admin-0123456789"


@dataclass
class Engine:
    """What the server does. *resets*: a reset empties the cache; *answers*: statuses of routes, one after the other."""

    answers: dict[str, list[int]] = field(default_factory=dict)
    resets: bool = True
    reports: bool = True
    counts: bool = True
    running: int = 0
    metrics: str = "vllm:num_requests_running"
    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # method, path
    keys: list[tuple[str, str]] = field(default_factory=list)  # path, Authorization
    cached: set[str] = field(default_factory=set)
    hits: int = 0


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def note(self) -> str:
            path = self.path.partition("?")[0]
            engine.asked.append((self.command, path))
            engine.keys.append((path, self.headers.get("Authorization", "")))
            return path

        def do_OPTIONS(self) -> None:
            path = self.note()
            self.answer(405 if path in engine.answers else 404, {})

        def do_GET(self) -> None:
            path = self.note()
            if path == "/v1/models":
                self.answer(200, {"object": "list", "data": [{"id": "m"}]})
            elif path == "/metrics":
                counted = engine.counts and engine.metrics.startswith("vllm:")
                hits = f"vllm:prefix_cache_hits_total {engine.hits}\n" if counted else ""
                self.answer(200, f"{engine.metrics} {engine.running}\n{hits}")
            elif path in engine.pages:
                page = engine.pages[path]
                self.answer(200, page.pop(0) if isinstance(page, list) else page)
            else:
                self.answer(404, {})

        def do_POST(self) -> None:
            path = self.note()
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if path in engine.answers:
                statuses = engine.answers[path]
                status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
                if status == 200 and engine.resets:
                    engine.cached.clear()
                self.answer(status, {"detail": f"said {KEY}"})
            elif path == "/v1/chat/completions":
                self.complete(json.loads(body))
            else:
                self.answer(404, {"detail": "Not Found"})

        def complete(self, asked: dict[str, Any]) -> None:
            prompt = json.dumps(asked["messages"])
            found = len(prompt) // 4 if prompt in engine.cached else 0
            engine.cached.add(prompt)
            engine.hits += found
            usage: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
            if engine.reports:
                usage["prompt_tokens_details"] = {"cached_tokens": found}
            chunks = [
                {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}]},
                {"choices": [], "usage": usage},
            ]
            text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            self.answer(200, text, "text/event-stream")

        def answer(self, status: int, content: Any, kind: str = "application/json") -> None:
            body = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def run(folder: Path, engine: Engine, *options: str) -> tuple[int, dict[str, Any], str]:
    with serving(engine) as url:
        done = command("--url", url, "-o", str(folder / "run"), *LOAD, *options)
    path = folder / "run" / "run.json"
    return done.returncode, json.loads(path.read_text()) if path.exists() else {}, done.stdout + done.stderr


def measured(document: dict[str, Any]) -> list[str]:
    return [phase["name"] for phase in document.get("phases", [])]


def test_a_404_refuses_before_the_load_and_says_what_the_server_needs(tmp_path: Path) -> None:
    engine = Engine()
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 2 and document == {}
    assert says(said, "control-unsupported", "VLLM_SERVER_DEV_MODE=1", "/reset_prefix_cache")
    assert {path for method, path in engine.asked if method == "POST"} == {"/v1/chat/completions"}, "probes only"


def test_a_200_that_reset_nothing_ends_the_run_before_the_measurement(tmp_path: Path) -> None:
    engine = Engine({"/reset_prefix_cache": [200]}, resets=False)
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 3
    assert measured(document) == ["warmup"] and document["status"] == "partial"
    assert says(said, "control-failed", "nothing was reset")
    (proof,) = document["control"]["proofs"]
    assert proof["proved"] is False and proof["first"] > 0
    assert len([call for call in document["control"]["calls"] if call["done"]]) == 1


@pytest.mark.parametrize("warmup", ["3", "0"])
def test_an_engine_that_refuses_ends_the_run(tmp_path: Path, warmup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SGLang while requests run; also without a warm-up, where no phase has begun."""
    monkeypatch.setattr(control, "AGAIN_S", 2.0)
    engine = Engine({"/flush_cache": [400]}, metrics="sglang:num_running_reqs")
    code, document, said = run(tmp_path, engine, "--between", "reset-cache", "--warmup", warmup)
    assert code == 3
    assert says(said, "control-failed", "/flush_cache", "400")
    assert "measure" not in measured(document) and document["status"] in ("partial", "failed")
    assert document["control"]["calls"][0]["http_status"] == 400
    assert engine.asked.count(("POST", "/flush_cache")) >= 2, "it is asked again for a while"


def test_a_server_that_forbids_it_is_said_with_where_the_key_goes(tmp_path: Path) -> None:
    engine = Engine({"/reset_prefix_cache": [401]})
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 3
    assert says(said, "control-failed", "401", "--admin-key-file")
    assert measured(document) == ["warmup"]


def test_a_400_of_the_first_moment_is_asked_again(tmp_path: Path) -> None:
    engine = Engine({"/flush_cache": [400, 400, 200]}, metrics="sglang:num_running_reqs")
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 0, said
    assert document["control"]["proofs"][0]["proved"] is True


def test_an_engine_in_use_is_not_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "DRAIN_S", 0.3)
    engine = Engine({"/reset_prefix_cache": [200]}, running=2)
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 3 and says(said, "control-failed", "2 requests")
    assert document["control"]["drained"][0]["running"] == 2
    assert ("POST", "/reset_prefix_cache") not in engine.asked


def test_without_cached_tokens_in_the_usage_a_counter_proves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "SETTLED_S", 0.0)
    engine = Engine({"/reset_prefix_cache": [200]}, reports=False)
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 0, said
    (proof,) = document["control"]["proofs"]
    assert (proof["first"], proof["proved"], proof["source"]) == (0, True, "prefix_cache_hits")


def test_what_cannot_be_proved_is_said(tmp_path: Path) -> None:
    engine = Engine({"/reset_prefix_cache": [200]}, reports=False, counts=False)
    code, document, said = run(tmp_path, engine, "--between", "reset-cache")
    assert code == 0, said
    assert says(said, "reset-not-proved") and document["control"]["proofs"][0]["proved"] is None


def test_a_route_that_not_every_server_has_may_fail(tmp_path: Path) -> None:
    """vLLM's cache of encoders; a missing cache of images."""
    engine = Engine({"/reset_prefix_cache": [200], "/reset_encoder_cache": [500]})
    code, document, said = run(tmp_path, engine, "--between", "flush")
    assert code == 0, said
    calls = [(call["request"], call["done"], call["needed"]) for call in document["control"]["calls"]]
    flush = "POST /reset_prefix_cache?reset_external=true"
    assert calls == [(flush, True, True), ("POST /reset_encoder_cache", False, False)] * 2


@pytest.mark.parametrize("kind", ["tensorrt-llm", "dynamo"])
def test_a_kind_without_the_verb_is_refused_before_anything_is_sent(tmp_path: Path, kind: str) -> None:
    engine = Engine()
    code, document, said = run(tmp_path, engine, "--between", "profile", "--server", kind)
    assert (code, document, engine.asked) == (2, {}, [])
    assert says(said, "control-unsupported", "--between profile")


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    code, _, said = run(tmp_path, Engine(metrics="unknown_total"), "--between", "reset-cache")
    assert code == 2 and says(said, "control-unsupported", "--server vllm")


def test_the_admin_key_goes_to_control_routes_only_and_is_stored_nowhere(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    engine = Engine({"/reset_prefix_cache": [200]})
    options = ["--admin-key-file", str(tmp_path / "key"), "--api-key", "sk-user-987654321"]
    code, document, said = run(tmp_path, engine, "--between", "reset-cache", *options)
    assert code == 0, said
    keys = {path: {key for other, key in engine.keys if other == path} for path, _ in engine.keys}
    assert keys["/reset_prefix_cache"] == {f"Bearer {KEY}"}
    assert keys["/v1/chat/completions"] == {"Bearer sk-user-987654321"}
    assert document["control"]["calls"][0]["said"] == '{"detail": "said ***"}'
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file
    assert KEY not in said


def test_a_hook_elsewhere_gets_no_key(tmp_path: Path) -> None:
    other = Engine({"/warm": [200]})
    with serving(other) as url:
        hook = f"PUT {url}/warm?api_key=geheim-4711&n=3".replace("PUT", "POST")
        code, document, said = run(tmp_path, Engine(), "--between", hook, "--api-key", "sk-user-987654321")
    assert code == 0, said
    assert other.keys == [("/warm", "")]
    assert document["control"]["calls"][0]["request"] == "POST /warm?api_key=***&n=3"
    assert "geheim-4711" not in json.dumps(document) + said
    assert document["config"]["control"]["between"] == [f"POST {url}/warm?api_key=***&n=3"]


def test_what_a_server_says_is_kept_without_secrets_and_a_change_is_an_incident(tmp_path: Path) -> None:
    info = {
        "vllm_config": {"block_size": 16, "hf_token": "hf_0123456789"},
        "vllm_env": {"VLLM_API_KEY": "sk-env-0123456789", "HOME": "/root"},
        "system_env": "HF_TOKEN=hf_9876543210\nPATH=/bin\n--api-key sk-line-0123456789 --port 8000",
        "argv": ["serve", "--api-key", "sk-argv-0123456789", "--port", "8000"],
    }
    later = {**info, "vllm_config": {"block_size": 32, "hf_token": "hf_0123456789"}}
    engine = Engine(pages={"/version": {"version": "0.11"}, "/server_info": [info, later]})
    code, document, said = run(tmp_path, engine)
    assert code == 0, said
    kept = (tmp_path / "run" / "server-info.json").read_text()
    for secret in ("hf_0123456789", "sk-env", "hf_9876543210", "sk-line", "sk-argv"):
        assert secret not in kept
    before = json.loads(kept)["before"][document["server_pages"][0]["url"]]["/server_info?config_format=json"]
    assert before["system_env"] == "HF_TOKEN=***\nPATH=/bin\n--api-key *** --port 8000"
    assert before["argv"] == ["serve", "--api-key", "***", "--port", "8000"]
    assert before["vllm_config"] == {"block_size": 16, "hf_token": "***"} and before["vllm_env"]["HOME"] == "/root"
    changed = {page["page"]: page["changed"] for page in document["server_pages"]}
    assert changed == {"/version": [], "/server_info?config_format=json": ["vllm_config.block_size: 16 -> 32"]}
    assert says(said, "server-changed", "block_size: 16 -> 32")


def test_a_profile_is_ended_where_the_run_fails(tmp_path: Path) -> None:
    engine = Engine({"/start_profile": [200], "/stop_profile": [500]}, resets=False)
    code, document, said = run(tmp_path, engine, "--between", "profile")
    assert code == 0 and says(said, "profile-not-ended")
    last = document["control"]["calls"][-1]
    assert (last["verb"], last["when"], last["http_status"], last["done"]) == ("profile", "after", 500, False)
