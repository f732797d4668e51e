"""Routes that control the simulated engine, as those of vLLM, SGLang, Dynamo and TensorRT-LLM: caches, profiler, sleep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

VLLM = {
    "/reset_prefix_cache": "reset", "/reset_mm_cache": "none", "/reset_encoder_cache": "none", "/sleep": "sleep",
    "/wake_up": "wake", "/start_profile": "start", "/stop_profile": "stop",
}  # fmt: skip
SGLANG = {
    "/flush_cache": "flush", "/release_memory_occupation": "sleep", "/resume_memory_occupation": "wake",
    "/start_profile": "start", "/stop_profile": "stop",
}  # fmt: skip
DYNAMO = {"/clear_kv_blocks": "reset"}
TENSORRT_LLM = {"/release_memory": "sleep", "/resume_memory": "wake"}
DIALECTS = {
    "all": VLLM | SGLANG | DYNAMO | TENSORRT_LLM, "vllm": VLLM, "sglang": SGLANG, "dynamo": DYNAMO,
    "tensorrt-llm": TENSORRT_LLM, "none": {},
}  # fmt: skip
PAGES = ("/version", "/server_info", "/model_info", "/is_sleeping")


class ControlledEngine(Protocol):
    asleep: bool

    def counters(self) -> dict[str, float]: ...
    def drop_cached(self) -> int: ...


class Controls:
    """Called by the server as `(method, target, server)`. *facts*: what `/server_info` says."""

    def __init__(self, dialect: str, facts: Mapping[str, Any]) -> None:
        self.routes = DIALECTS[dialect]
        self.pages = () if dialect == "none" else PAGES
        self.facts = facts
        self.profiling = False

    def __call__(self, method: str, target: str, engine: ControlledEngine) -> tuple[int, bytes] | None:
        """(status, JSON); None for another path."""
        path = target.partition("?")[0]
        if path in self.pages and method == "GET":
            return 200, json.dumps(self._page(path, engine)).encode()
        if path not in self.routes:
            return None
        if method not in ("POST", "GET" if self.routes[path] == "flush" else "POST"):
            return 405, b'{"detail":"Method Not Allowed"}'
        status, said = getattr(self, "_" + self.routes[path])(engine)
        return status, json.dumps({"message": said}).encode()

    def _page(self, path: str, engine: ControlledEngine) -> dict[str, Any]:
        if path == "/is_sleeping":
            return {"is_sleeping": engine.asleep}
        if path == "/version":
            return {"version": self.facts["version"]}
        if path == "/model_info":
            return {"model_path": self.facts["model"]}
        return {**self.facts, "internal_states": [{"requests": engine.counters()["requests"]}]}

    def _reset(self, engine: ControlledEngine) -> tuple[int, str]:
        """As vLLM: 200 also where requests hold the cache and nothing is reset."""
        return 200, "nothing was reset" if busy(engine) else f"{engine.drop_cached()} blocks were dropped"

    def _flush(self, engine: ControlledEngine) -> tuple[int, str]:
        """As SGLang: 400 while requests run or wait."""
        if busy(engine):
            return 400, "Flush cache failed: there are running or waiting requests."
        return 200, f"{engine.drop_cached()} blocks were dropped"

    def _none(self, engine: ControlledEngine) -> tuple[int, str]:
        return 200, "there is no such cache"

    def _sleep(self, engine: ControlledEngine) -> tuple[int, str]:
        engine.asleep = True
        return 200, f"asleep; {engine.drop_cached()} blocks were dropped"

    def _wake(self, engine: ControlledEngine) -> tuple[int, str]:
        engine.asleep = False
        return 200, "awake"

    def _start(self, engine: ControlledEngine) -> tuple[int, str]:
        if self.profiling:
            return 500, "the profiler runs already"
        self.profiling = True
        return 200, "profiling"

    def _stop(self, engine: ControlledEngine) -> tuple[int, str]:
        if not self.profiling:
            return 500, "the profiler does not run"
        self.profiling = False
        return 200, "the profile is written"


def busy(engine: ControlledEngine) -> bool:
    figures = engine.counters()
    return figures["running"] > 0 or figures["waiting"] > 0
