"""The engine model through the wire: what the virtual-time tests of the engine show must reach a client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sim_client import Client, ask, get, request

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.truth import FLAGS, load

pytestmark = pytest.mark.slow


def figures(port: int) -> dict[str, float]:
    lines = ask(port, get("/metrics")).body.decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.split("{")[0]: float(value) for name, value in pairs}


def test_cached_tokens_are_reported(simulator: Callable[..., SimulatorProcess]) -> None:
    """Token ids are counted exactly: 100 ids have 6 full blocks of 16."""
    port = simulator(overrides=(("step_ms", "1"),)).port
    ids = list(range(100))
    with Client(port) as client:

        def cached(prompt: list[int]) -> int:
            usage = client.ask(request(path="/v1/completions", prompt=prompt)).usage
            assert usage["prompt_tokens"] == len(prompt)
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert [cached(ids), cached(ids), cached([*ids[:40], 7, *ids]), cached([9, *ids])] == [0, 96, 32, 0]
    found = figures(port)
    assert found["vllm:prefix_cache_hits_total"] == 128 and found["vllm:prefix_cache_queries_total"] == 442


def test_the_prefix_cache_can_be_off(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(overrides=(("step_ms", "1"), ("prefix_cache", "false"))).port
    for _ in range(2):
        usage = ask(port, request(path="/v1/completions", prompt=list(range(100)))).usage
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_continued_chat_finds_its_earlier_turns(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(overrides=(("step_ms", "1"),)).port
    first = [{"role": "user", "content": "one two three four " * 40}]
    longer = [*first, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and then"}]
    with Client(port) as client:
        before = client.ask(request(messages=first)).usage["prompt_tokens"]
        cached = client.ask(request(messages=longer)).usage["prompt_tokens_details"]["cached_tokens"]
    assert before - 32 <= cached <= before


def test_queueing_and_running_show_in_the_metrics(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(overrides=(("max_running", "3"), ("step_ms", "5"))).port
    clients = [Client(port) for _ in range(8)]
    for client in clients:
        client.send(request(max_tokens=10_000))
    for client in clients[:3]:
        client.until(b'"content":"')
    clients[0].until(b"obfuscation")
    found = figures(port)
    assert found["vllm:num_requests_running"] == 3 and found["vllm:num_requests_waiting"] <= 5
    assert 0 < found["vllm:kv_cache_usage_perc"] < 1
    for client in clients[:3]:
        client.socket.close()
    clients[3].until(b'"content":"')
    for client in clients[3:]:
        client.socket.close()


def test_priority_by_body_and_by_header(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    """One place: of those that wait the lowest number is served first; the header wins over the body."""
    path = str(tmp_path / "t.truth")
    overrides = (("max_running", "1"), ("step_ms", "2"), ("scheduler", "priority"))
    process = simulator(overrides=overrides, truth=path)
    clients = [Client(process.port) for _ in range(4)]
    clients[0].send(request(max_tokens=10_000, headers=("X-Request-Id: r-1-0",)))  # until the others are there
    clients[0].until(b'"content":"')
    clients[1].send(request(priority=7, headers=("X-Request-Id: r-1-1",)))
    clients[2].send(request(priority=9, headers=("X-Request-Id: r-1-2", "X-Priority: -4")))
    clients[3].send(request(priority=5, headers=("X-Request-Id: r-1-3",)))
    while figures(process.port)["vllm:num_requests_waiting"] < 3:
        clients[0].read()
    clients[0].socket.close()
    for client in clients[1:]:
        client.until(b"[DONE]")
        client.socket.close()
    process.stop()
    rows = load(path).requests
    order = rows["key"][rows["t_admitted"].argsort()]
    assert order.tolist() == [0, 2, 3, 1]


def test_preempted_streams_are_whole_and_marked(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    overrides = (("kv_blocks", "12"), ("max_model_len", "190"), ("step_ms", "1"), ("prefix_cache", "false"))
    process = simulator(overrides=overrides, truth=path)
    clients = [Client(process.port) for _ in range(4)]
    for index, client in enumerate(clients):
        client.send(request(path="/v1/completions", prompt=[index] * 30, max_tokens=100))
    for client in clients:
        reply = client.response()
        assert reply.usage["completion_tokens"] == 100 and len(reply.text.split()) == 100
        client.socket.close()
    assert figures(process.port)["vllm:num_preemptions_total"] > 0
    process.stop()
    assert (load(path).requests["flags"] & FLAGS["preempted"]).any()
