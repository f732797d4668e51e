"""Everything but completions: the pages of each API, health and the Prometheus page with vLLM's metric names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from fastllmload import __version__
from fastllmload._ext.bytes.schema import with_prefix
from fastllmload._ext.simbody.template import filled
from fastllmload.endpoint.call import scalars
from fastllmload.endpoint.simulated import SimulatedApi, SimulatedPage
from fastllmload.simulator.body import message_of, utc

Served = tuple[str, str, bytes]  # method, content type, body

# (name, type, key of the server's counters, help)
METRICS = (
    ("vllm:num_requests_running", "gauge", "running", "Sequences in the running batch."),
    ("vllm:num_requests_waiting", "gauge", "waiting", "Sequences in the waiting queue."),
    ("vllm:gpu_cache_usage_perc", "gauge", "kv_usage", "Share of KV blocks in use, 0 to 1."),
    ("vllm:kv_cache_usage_perc", "gauge", "kv_usage", "Share of KV blocks in use, 0 to 1."),
    ("vllm:num_preemptions_total", "counter", "preemptions", "Sequences preempted for want of KV blocks."),
    ("vllm:prompt_tokens_total", "counter", "prompt_tokens", "Prompt tokens of accepted requests."),
    ("vllm:generation_tokens_total", "counter", "generation_tokens", "Tokens written."),
    ("vllm:prefix_cache_queries_total", "counter", "prefix_queries", "Prompt tokens looked up in the prefix cache."),
    ("vllm:prefix_cache_hits_total", "counter", "prefix_hits", "Prompt tokens found in the prefix cache."),
    ("fastllmload_simulator:connections", "gauge", "connections", "Open client connections."),
    ("fastllmload_simulator:requests_total", "counter", "requests", "Requests read, pages included."),
    ("fastllmload_simulator:refused_total", "counter", "refused", "Requests answered with an error status."),
    ("fastllmload_simulator:steps_total", "counter", "steps", "Engine steps."),
    ("fastllmload_simulator:tls_full_total", "counter", "tls_full", "TLS handshakes of new sessions."),
    ("fastllmload_simulator:tls_resumed_total", "counter", "tls_resumed", "TLS handshakes that continued a session."),
    ("fastllmload_simulator:tls_failed_total", "counter", "tls_failed", "TLS handshakes that failed."),
    (
        "fastllmload_simulator:late_max_seconds",
        "gauge",
        "late_max_s",
        "Worst delay between a due instant and its writing.",
    ),
)

# Of an engine that drafts: name, key
SPECULATIVE = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
}
AT_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def render_metrics(model: str, figures: dict[str, float]) -> bytes:
    """Prometheus text format 0.0.4. What the running cadence does not have (blocks, cache) is 0."""
    label = f'model_name="{label_value(model)}"'
    lines = []
    for name, kind, key, text in METRICS:
        value = f"{figures.get(key, 0):.9g}" if isinstance(figures.get(key, 0), float) else str(figures.get(key, 0))
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{{{label}}} {value}"]
    name = "vllm:request_success_total"
    lines += [f"# HELP {name} Requests that ended, by reason.", f"# TYPE {name} counter"]
    lines += [
        f'{name}{{finished_reason="{why}",{label}}} {figures[why]}' for why in ("stop", "length", "abort", "error")
    ]
    if "drafts" in figures:
        lines += [f"{name}{{{label}}} {figures[key]}" for name, key in SPECULATIVE.items()]
        at = [value for key, value in figures.items() if key.startswith("accepted_at_")]
        lines += [f'{AT_POSITION}{{{label},position="{place}"}} {value}' for place, value in enumerate(at)]
    return ("\n".join(lines) + "\n").encode()


def label_value(text: str) -> str:
    """*text* between the quotes of a label; what UTF-8 cannot hold is U+FFFD."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return escaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def names(body: bytes, models: Sequence[str]) -> bool:
    """Whether field 1 of the message in *body* is one of *models*."""
    try:
        return scalars(message_of(body)).get(1) in [model.encode() for model in models]
    except ValueError:
        return False


class Pages:
    """Called by the server as `(path, counters, body)`; None means that there is no such page. *any_model*: is served."""

    def __init__(
        self,
        apis: Iterable[SimulatedApi],
        models: Sequence[str],
        max_model_len: int,
        created: int,
        any_model: bool = False,
    ) -> None:
        self.models = models  # the first is that of requests that name none
        self.any_model = any_model
        self.values = {
            "model": models[0],
            "created": created,
            "max_model_len": max_model_len,
            "version": __version__,
        }
        self.pages: dict[str, SimulatedPage] = {}
        for page in (page for api in apis for page in api.pages):
            self.pages.setdefault(page.path, page)

    def __call__(self, path: str, counters: Callable[[], dict[str, float]], body: bytes) -> Served | None:
        page = self.pages.get(path)
        if page is not None:
            now = time.time()
            served = "true" if self.any_model or names(body, self.models) else "false"
            values = self.values | {"now": utc(now), "later": utc(now + 300), "served": served}
            of_each = [filled(page.entry, values | {"model": model}) for model in self.models if page.entry]
            text = filled(page.text, values).replace(b"$models", b",".join(of_each))
            if page.message is not None:
                return "POST", "application/grpc", with_prefix(page.message.encode(text))
            return page.method, page.content_type, text
        if path in ("/health", "/ping"):
            return "GET", "application/json", b'{"status":"ok"}'
        if path == "/metrics":
            return "GET", "text/plain; version=0.0.4; charset=utf-8", render_metrics(self.models[0], counters())
        return None
