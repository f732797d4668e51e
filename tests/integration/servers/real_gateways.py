"""nginx, HAProxy, Envoy, Caddy, routers of vLLM and SGLang: each in a folder of its own, on a free port, stopped by pid."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import quicktok
from commands import command

from fastllmload.records import layout

ONWARD = """proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 60s; proxy_next_upstream off;"""
NGINX = """
daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port}{protocols} backlog=2048; {tls} keepalive_requests 1000000; keepalive_timeout {idle};
    client_header_timeout {idle}; client_max_body_size 16m;
    location /empty/ {{ default_type application/json; return 200 ""; }}
    location /page/ {{ default_type text/html; return 200 "<html>hello</html>"; }}
    location / {{ {onward} }}
  }}
}}
"""

HAPROXY = """
global
  maxconn 8000
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout http-keep-alive 60s
  {option}
frontend front
  bind 127.0.0.1:{port}{http2}
  default_backend engine
backend engine
  server one 127.0.0.1:{upstream}
"""

CADDY = """
{{
  admin off
  auto_https off
  servers {{
    protocols h1 h2c
  }}
}}
http://127.0.0.1:{port} {{
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:{upstream} {{
    flush_interval -1
  }}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    command: list[str],
    port: int,
    folder: Path,
    wait_s: float = 60,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[int]:
    """Start *command*, wait until *port* accepts, yield it, end the process."""
    with open(folder / "output.txt", "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=cwd)
    try:
        give_up = time.monotonic() + wait_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} ended: {(folder / 'output.txt').read_text()[-2000:]}"
                assert time.monotonic() < give_up, (
                    f"{command[0]} does not listen: {(folder / 'output.txt').read_text()[-2000:]}"
                )
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def nginx(
    folder: Path,
    upstream: int,
    idle: str = "60s",
    http2: bool = False,
    tls: tuple[Path, Path] | None = None,
    onward: str = ONWARD,
) -> Iterator[int]:
    """*tls*: its certificate and key. With *http2* and without TLS it has no HTTP/1.1."""
    folder.mkdir(parents=True)
    port = free_port()
    protocols = " ssl" * (tls is not None) + " http2" * http2
    files = "" if tls is None else f"ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]};"
    (folder / "nginx.conf").write_text(
        NGINX.format(
            folder=folder, upstream=upstream, port=port, idle=idle, protocols=protocols, tls=files, onward=onward
        )
    )
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with running(
        [program, "-p", str(folder), "-e", str(folder / "start.log"), "-c", str(folder / "nginx.conf")], port, folder
    ):
        yield port


@contextmanager
def haproxy(folder: Path, upstream: int, no_delay: bool = True, http2: bool = False) -> Iterator[int]:
    folder.mkdir(parents=True)
    port = free_port()
    option = "option http-no-delay" if no_delay else ""
    (folder / "haproxy.cfg").write_text(
        HAPROXY.format(option=option, upstream=upstream, port=port, http2=" proto h2" * http2)
    )
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    with running([program, "-db", "-f", str(folder / "haproxy.cfg")], port, folder):
        yield port


@contextmanager
def caddy(folder: Path, upstream: int) -> Iterator[int]:
    """A site that is named by its address, as a config often has it; skips where Caddy is not installed."""
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("Caddy is not installed (tools/integration-setup asks the system's packages for it)")
    folder.mkdir(parents=True)
    port = free_port()
    (folder / "Caddyfile").write_text(CADDY.format(folder=folder, upstream=upstream, port=port))
    homes = [f"XDG_{kind}_HOME={folder}" for kind in ("CONFIG", "DATA")]  # where it keeps its last configuration
    command = ["env", *homes, program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with running(command, port, folder):
        yield port


@contextmanager
def vllm_router(folder: Path, upstream: int, environment: Path, *options: str) -> Iterator[int]:
    """vLLM's own router over one worker; skips where it is not installed."""
    program = environment / "bin" / "vllm-router"
    if not program.exists():
        pytest.skip("vllm-router is not installed (tools/integration-setup asks pip for it)")
    folder.mkdir(parents=True)
    port = free_port()
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
               "--log-level", "warning", "--worker-urls", f"http://127.0.0.1:{upstream}", *options]  # fmt: skip
    with running(command, port, folder):
        yield port


@contextmanager
def sglang_router(folder: Path, workers: Sequence[str], environment: Path) -> Iterator[int]:
    """SGLang's router over *workers* (`http://` or `grpc://`) in turn; skips where it is not installed.

    With workers of gRPC it splits text itself, by a tokenizer of the model's name in its folder, and needs OpenAI's
    vocabulary, which it would download.
    """
    program = environment / "bin" / "smg"
    if not program.exists():
        pytest.skip("sglang-router is not installed (tools/integration-setup asks pip for it)")
    folder.mkdir(parents=True)
    (folder / "simulated").mkdir()
    (folder / "simulated" / "tokenizer.json").write_text(json.dumps(WORDS))
    (folder / "simulated" / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    encoding = quicktok.get_encoding("o200k_base")
    lines = (base64.b64encode(encoding.decode_single_token_bytes(k)) + b" %d\n" % k for k in range(O200K))
    (folder / "o200k_base.tiktoken").write_bytes(b"".join(lines))
    port = free_port()
    command = [str(program), "launch", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
               "--log-level", "warn", "--policy", "round_robin", "--tokenizer-path", "simulated",
               "--worker-startup-check-interval", "1", "--worker-urls", *workers]  # fmt: skip
    variables = {**os.environ, "TIKTOKEN_ENCODINGS_BASE": str(folder)}
    with running(command, port, folder, environment=variables, cwd=folder):
        give_up = time.monotonic() + 60
        while ready(port) < len(workers):
            assert time.monotonic() < give_up, (folder / "output.txt").read_text()[-2000:]
            time.sleep(0.1)
        yield port


def ready(port: int) -> int:
    """Workers that the router asks."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/workers", timeout=10) as page:
        return sum(worker["is_healthy"] for worker in json.load(page)["workers"])


# Ids of the simulated engine's words begin with 1000.
WORDS = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {f"w{k}": k for k in range(4000)}, "unk_token": "w0"},
}  # fmt: skip
TEMPLATE = "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"
O200K = 199_998  # ordinary tokens of o200k_base


@contextmanager
def envoy(folder: Path, upstream: int, environment: Path) -> Iterator[int]:
    folder.mkdir(parents=True)
    port = free_port()
    (folder / "envoy.json").write_text(json.dumps(envoy_config(port, upstream)))
    command = [str(environment / "bin" / "envoy"), "-c", str(folder / "envoy.json"), "--concurrency", "1",
               "--use-dynamic-base-id", "--log-level", "warning"]  # fmt: skip
    with running(command, port, folder):
        yield port


def envoy_config(port: int, upstream: int) -> dict[str, Any]:
    def socket_address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    kinds = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{kinds}.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}
    manager = {
        "@type": f"{kinds}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    limits = {"thresholds": [{"max_connections": 8000, "max_pending_requests": 8000, "max_requests": 8000}]}
    endpoint = {"endpoint": {"address": socket_address(upstream)}}
    cluster = {
        "name": "engine",
        "type": "STATIC",
        "connect_timeout": "2s",
        "circuit_breakers": limits,
        "load_assignment": {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"name": "front", "address": socket_address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


@contextmanager
def llama(folder: Path, environment: Path) -> Iterator[int]:
    """llama.cpp's own server with the tiny model."""
    folder.mkdir(parents=True)
    port = free_port()
    script = str(Path(__file__).with_name("llama_server.py"))
    command = [str(environment / "bin" / "python"), script, str(environment / "tiny.gguf"), str(port)]
    with running(command, port, folder):
        yield port


def words_of(url: str, folder: Path, *options: str) -> list[str]:
    return ["--url", url, "-o", str(folder), "--ui", "plain", *options]


def run(url: str, folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, all output, and run.json ({} when the run was refused)."""
    done = command(*words_of(url, folder, *options))
    path = folder / "run.json"
    return done.returncode, done.stdout + done.stderr, json.loads(path.read_text()) if path.exists() else {}


def conserved(document: dict[str, Any]) -> bool:
    """Every planned request is in exactly one status."""
    counts = document["counts"]
    return bool(counts["planned"] == sum(counts.get(status, 0) for status in layout.STATUS_NAMES))
