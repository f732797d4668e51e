"""SGLang's router in front of two simulated engines, of HTTP or gRPC: what it passes on is what the engines' logs have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from integration.servers.real_gateways import conserved, nginx, run, sglang_router

from fastllmload.records.layout import FINISH_NAMES, STATUS_NAMES
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load as load_truth

LOAD = ("-m", "simulated", "--rate", "40", "-n", "60", "--isl", "24", "--osl", "uniform:3,9", "--warmup", "0")
GRPC_ONLY = "grpc_pass grpc://engine;"


@contextmanager
def engines(folder: Path, grpc: bool) -> Iterator[list[str]]:
    """URLs of two. The router takes an engine that answers HTTP/1.1 for one of HTTP, so nginx leaves gRPC of it only."""
    with ExitStack() as stack:
        urls = []
        for name in ("a", "b"):
            options = SimulatorOptions(ttft_ms=20.0, itl_ms=4.0, phase="spread", truth=str(folder / f"{name}.bin"))
            port = stack.enter_context(SimulatorProcess(options)).port
            if grpc:
                port = stack.enter_context(nginx(folder / name, port, http2=True, onward=GRPC_ONLY))
            urls.append(f"{'grpc' if grpc else 'http'}://127.0.0.1:{port}")
        yield urls


def logged(folder: Path) -> list[np.ndarray]:
    return [load_truth(folder / f"{name}.bin").requests for name in ("a", "b")]


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "sglang-generate"])
def test_each_request_is_one_engines(tmp_path: Path, real_servers: Path, endpoint: str) -> None:
    """All answered whole; every request is in one of the logs, with its tokens, and each engine has half of them."""
    with engines(tmp_path, grpc=False) as urls, sglang_router(tmp_path / "router", urls, real_servers) as port:
        target = (f"http://127.0.0.1:{port}", tmp_path / "run")
        # The engine does not describe its model as SGLang does, so the router lists it as `unknown`.
        known = ("--session-header", "X-Request-Id: {request}")  # the router passes on no header that it does not know
        code, said, document = run(*target, "--endpoint-type", endpoint, "--no-model-check", *known, *LOAD)
    assert code == 0 and conserved(document), said
    ours = load(tmp_path / "run").rows
    assert {STATUS_NAMES[one] for one in ours["status"]} == {"ok"} and len(ours) == 60
    shares = [log[log["phase"] == 0] for log in logged(tmp_path)]
    assert min(map(len, shares)) >= 25
    theirs = np.concatenate(shares)
    theirs = theirs[np.argsort(theirs["key"], kind="stable")]
    assert list(ours["request"]) == list(theirs["key"])
    for mine, their in (("prompt", "prompt"), ("completion", "output")):
        assert list(ours[f"{mine}_tokens"]) == list(theirs[f"{their}_tokens"]), mine
    assert list(ours["content_events"]) == list(theirs["output_tokens"])


def test_chat_is_carried_to_engines_of_grpc(tmp_path: Path, real_servers: Path) -> None:
    """The router splits the text and makes the answers' text of ids. It names requests itself, so counts are compared."""
    with engines(tmp_path, grpc=True) as urls, sglang_router(tmp_path / "router", urls, real_servers) as port:
        code, said, document = run(f"http://127.0.0.1:{port}", tmp_path / "run", *LOAD)
    assert code == 0 and conserved(document), said
    ours = load(tmp_path / "run").rows
    assert {STATUS_NAMES[one] for one in ours["status"]} == {"ok"} and len(ours) == 60
    assert {FINISH_NAMES[one] for one in ours["finish"]} == {"length"}
    shares = logged(tmp_path)
    assert min(map(len, shares)) >= 25
    theirs = np.concatenate(shares)
    theirs = theirs[np.argsort(theirs["t_recv_first_kernel"])][-60:]  # before them are those of the probe
    assert set(theirs["call_status"]) == {0}
    for mine, their in (("prompt", "prompt"), ("completion", "output")):
        assert sorted(ours[f"{mine}_tokens"]) == sorted(theirs[f"{their}_tokens"]), mine
    assert list(ours["content_events"]) == list(ours["completion_tokens"])
