"""vLLM's own router in front of the simulated engine: what it refuses, hides and breaks is each in its own class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from integration.servers.real_gateways import conserved, run, vllm_router

from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load as load_truth

LOAD = ["--rate", "50", "--duration", "2", "--isl", "32", "--osl", "20", "--warmup", "0"]
TRIES = ["--retry-max-retries", "5", "--retry-initial-backoff-ms", "200", "--retry-jitter-factor", "0"]
RECOVERS = ["--disable-circuit-breaker"]


def engine(folder: Path, *faults: str, ttft_ms: float = 30.0) -> SimulatorProcess:
    return SimulatorProcess(
        SimulatorOptions(ttft_ms=ttft_ms, itl_ms=10.0, phase="spread", truth=str(folder / "truth.bin"), faults=faults)
    )


def attempts(folder: Path) -> dict[int, list[int]]:
    """Status of every time that the engine was asked, by the number of the measured request."""
    found: dict[int, list[int]] = {}
    seen = load_truth(folder / "truth.bin").requests
    for row in seen[seen["phase"] == 0]:
        found.setdefault(int(row["key"]), []).append(int(row["status"]))
    return found


def test_a_router_passes_tokens_on(tmp_path: Path, real_servers: Path) -> None:
    """All answered, each asked of the engine once, with every token."""
    with engine(tmp_path) as server, vllm_router(tmp_path / "router", server.port, real_servers) as port:
        code, said, document = run(f"http://127.0.0.1:{port}/v1", tmp_path / "run", *LOAD)
    assert code == 0 and conserved(document), said
    assert document["counts"]["ok"] == document["counts"]["planned"] > 50, document["errors"]
    assert set(map(len, attempts(tmp_path).values())) == {1}
    assert (load(tmp_path / "run").rows["content_events"] == 20).all()


def test_what_a_router_tries_again_costs_its_request_the_time(tmp_path: Path, real_servers: Path) -> None:
    """It hides the engine's 503 and asks again 200 ms later. We sent each request once: the answer is a success, and its
    latency has the attempts before it.
    """
    with (
        engine(tmp_path, "status:0.3:503") as server,
        vllm_router(tmp_path / "router", server.port, real_servers, *TRIES, *RECOVERS) as port,
    ):
        code, said, document = run(f"http://127.0.0.1:{port}/v1", tmp_path / "run", *LOAD)
    assert code == 0 and conserved(document), said
    asked = attempts(tmp_path)
    rows = load(tmp_path / "run").rows
    assert sorted(asked) == sorted(rows["request"]) and len(rows) == document["counts"]["planned"]
    again = np.array([len(asked[int(request)]) > 1 for request in rows["request"]])
    fine = rows["status"] == layout.OK
    assert again.sum() > 5 and fine.sum() > 50
    assert (fine == [asked[int(request)][-1] == 200 for request in rows["request"]]).all()
    waited = rows["t_first"] - rows["t_submit_start"]
    assert (waited[fine & again] >= 230_000_000).all(), "200 ms after the first 503, then 30 ms of the engine"


def test_without_retries_the_engines_refusals_are_seen(tmp_path: Path, real_servers: Path) -> None:
    """Each 503 of the engine is an http_error of the same request, and nothing else fails. The first probe before a run may
    meet one too: then the run is refused, and tried again.
    """
    with (
        engine(tmp_path, "status:0.3:503") as server,
        vllm_router(tmp_path / "router", server.port, real_servers, "--disable-retries", *RECOVERS) as port,
    ):
        code = 3
        for _ in range(10):
            if code == 3:
                code, said, document = run(f"http://127.0.0.1:{port}/v1", tmp_path / "run", *LOAD)
                assert code != 3 or "503" in said, said
    assert code == 0 and conserved(document), said
    rows = load(tmp_path / "run").rows
    asked = attempts(tmp_path)
    refused = [asked[int(request)] == [503] for request in rows["request"]]
    assert ((rows["status"] == layout.HTTP_ERROR) == refused).all() and sum(refused) > 5
    assert document["counts"]["ok"] + document["counts"]["http_error"] == document["counts"]["planned"]


def test_a_router_that_is_full_says_429(tmp_path: Path, real_servers: Path) -> None:
    """Four at once and no queue, for 50 requests/s of 300 ms each: `rate_limited`, which never reached the engine."""
    full = ["--max-concurrent-requests", "4", "--rate-limit-tokens-per-second", "4", "--queue-size", "0"]
    with (
        engine(tmp_path, ttft_ms=300.0) as server,
        vllm_router(tmp_path / "router", server.port, real_servers, *full) as port,
    ):
        code, said, document = run(f"http://127.0.0.1:{port}/v1", tmp_path / "run", *LOAD)
    assert code == 0 and conserved(document), said
    counts = document["counts"]
    assert counts["rate_limited"] > 10 and counts["ok"] + counts["rate_limited"] == counts["planned"], counts
    assert len(attempts(tmp_path)) == counts["ok"] > 0
