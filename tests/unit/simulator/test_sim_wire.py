"""What a client sees of a healthy simulator: streams, documents, pages, errors of the protocol."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from sim_client import Client, ask, get, request

from fastllmload._ext.simbody.form import words
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow


def test_a_chat_stream_has_role_tokens_finish_usage_and_done(quick: int) -> None:
    reply = ask(quick, request(max_tokens=5))
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/event-stream")
    assert reply.events[-1] == "[DONE]"
    role, *tokens, finish, usage = reply.chunks
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 5 and all(list(one["choices"][0]["delta"]) == ["content"] for one in tokens)
    assert all(one["choices"][0]["finish_reason"] is None for one in [role, *tokens])
    assert finish["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 5
    assert usage["usage"]["total_tokens"] == 5 + usage["usage"]["prompt_tokens"]
    assert {one["id"] for one in reply.chunks} == {role["id"]} and re.fullmatch("chatcmpl-[0-9a-f]{16}", role["id"])
    assert {one["object"] for one in reply.chunks} == {"chat.completion.chunk"}


def test_a_completion_stream_has_text_and_no_role(quick: int) -> None:
    reply = ask(quick, request(path="/v1/completions", max_tokens=3, prompt=[5, 6, 7, 8]))
    *tokens, finish, usage = reply.chunks
    assert [set(one["choices"][0]) for one in tokens] == [{"index", "text", "logprobs", "finish_reason"}] * 3
    assert finish["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["prompt_tokens"] == 4
    assert reply.chunks[0]["object"] == "text_completion" and reply.chunks[0]["id"].startswith("cmpl-")


def test_usage_is_sent_only_when_asked_for(quick: int) -> None:
    reply = ask(quick, request(stream_options=None))
    assert not any("usage" in one for one in reply.chunks)
    assert reply.chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_document_carries_text_and_usage(quick: int, path: str) -> None:
    reply = ask(quick, request(path=path, stream=False, max_tokens=6))
    document = json.loads(reply.body)
    (choice,) = document["choices"]
    text = choice["text"] if path.endswith("v1/completions") else choice["message"]["content"]
    assert len(text.split()) == 6 and choice["finish_reason"] == "length"
    assert document["usage"]["completion_tokens"] == 6
    assert reply.headers["content-type"] == "application/json"


def test_text_is_words_of_the_vocabulary_and_the_same_streamed_or_whole(
    simulator: Callable[..., SimulatorProcess],
) -> None:
    """The n-th request of two simulators of one seed has the same text."""
    vocabulary = {word.strip() for word in words()}
    one, two = (simulator(ttft_ms=0.0, itl_ms=1.0, seed=0) for _ in range(2))
    text = ask(one.port, request(max_tokens=30)).text
    assert set(text.split()) <= vocabulary and len(text.split()) == 30 and text[0] != " "
    assert (
        json.loads(ask(two.port, request(max_tokens=30, stream=False)).body)["choices"][0]["message"]["content"] == text
    )
    assert ask(one.port, request(max_tokens=30)).text != text


def test_each_word_is_one_token_of_cl100k() -> None:
    import quicktok

    encoding = quicktok.get_encoding("cl100k_base")
    assert all(len(encoding.encode(word)) == 1 for word in words())
    assert all(len(encoding.encode(word.strip())) == 1 for word in words())


@pytest.mark.parametrize(("size", "path"), [(250, "/v1/chat/completions"), (400, "/v1/completions")])
def test_events_are_padded_to_the_size_asked_for(
    simulator: Callable[..., SimulatorProcess], size: int, path: str
) -> None:
    reply = ask(simulator(ttft_ms=0.0, itl_ms=1.0, chunk_bytes=size).port, request(path=path, max_tokens=20))
    content = [len(text) + 8 for text in reply.events if '"obfuscation"' in text]
    assert len(content) == 20 and all(abs(one - size) <= 8 for one in content)


def test_lengths_are_drawn_by_the_seed_unless_eos_is_ignored(
    simulator: Callable[..., SimulatorProcess],
) -> None:
    """Geometric with the profile's mean, at most max_tokens; finish_reason says which it was."""

    def lengths(seed: int) -> list[tuple[int, str]]:
        port = simulator(ttft_ms=0.0, itl_ms=1.0, overrides=(("eos_mean_tokens", "8"),), seed=seed).port
        with Client(port) as client:
            replies = [client.ask(request(stream=False, max_tokens=20)) for _ in range(30)]
            full = client.ask(request(stream=False, max_tokens=20, ignore_eos=True))
        assert json.loads(full.body)["usage"]["completion_tokens"] == 20
        documents = [json.loads(reply.body) for reply in replies]
        return [(one["usage"]["completion_tokens"], one["choices"][0]["finish_reason"]) for one in documents]

    first = lengths(7)
    assert first == lengths(7) and first != lengths(8)
    assert all(why == ("length" if n == 20 else "stop") for n, why in first)
    assert len({n for n, _ in first}) > 5 and min(n for n, _ in first) >= 1


def test_min_tokens_is_kept(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(ttft_ms=0.0, itl_ms=1.0, overrides=(("eos_mean_tokens", "1"),)).port
    with Client(port) as client:
        got = [client.ask(request(max_tokens=9, min_tokens=5)).usage["completion_tokens"] for _ in range(20)]
    assert min(got) == 5 and max(got) <= 9


def test_a_connection_serves_many_requests_and_pages_between_them(quick: int) -> None:
    with Client(quick) as client:
        for n in (1, 3, 2):
            assert client.ask(request(max_tokens=n)).usage["completion_tokens"] == n
            assert client.ask(get("/health")).status == 200


def test_pipelined_requests_are_answered_in_order(quick: int) -> None:
    with Client(quick) as client:
        client.send(b"".join(request(max_tokens=n) for n in (3, 1, 2)) + get("/health") + request(stream=False))
        assert [client.response().usage["completion_tokens"] for _ in range(3)] == [3, 1, 2]
        assert client.response().body == b'{"status":"ok"}'
        assert json.loads(client.response().body)["usage"]["completion_tokens"] == 4


def test_a_request_may_come_in_any_pieces(quick: int) -> None:
    data = request(max_tokens=2)
    with Client(quick) as client:
        for at in range(len(data)):
            client.send(data[at : at + 1])
        assert client.response().usage["completion_tokens"] == 2


def test_a_chunked_request_body_is_read(quick: int) -> None:
    head, body = request(max_tokens=2).split(b"\r\n\r\n", 1)
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head) + b"\r\n\r\n"
    chunks = b"".join(
        b"%x;name=value\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7)
    )
    data = head + chunks + b"0\r\nTrailer: value\r\n\r\n"
    with Client(quick) as client:
        assert client.ask(data + data).usage["completion_tokens"] == 2
        assert client.response().usage["completion_tokens"] == 2
        for at in range(0, len(data), 3):
            client.send(data[at : at + 3])
        assert client.response().usage["completion_tokens"] == 2


def test_expect_100_continue_is_answered(quick: int) -> None:
    head, body = request(max_tokens=1, headers=("Expect: 100-continue",)).split(b"\r\n\r\n", 1)
    with Client(quick) as client:
        client.send(head + b"\r\n\r\n")
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert client.ask(body).usage["completion_tokens"] == 1


def test_http_1_0_gets_no_chunks_and_a_close(quick: int) -> None:
    with Client(quick) as client:
        client.send(request(max_tokens=2).replace(b"HTTP/1.1", b"HTTP/1.0"))
        raw = client.rest()
    assert b"transfer-encoding" not in raw and raw.endswith(b"data: [DONE]\n\n")


def test_connection_close_is_kept(quick: int) -> None:
    with Client(quick) as client:
        reply = client.ask(request(headers=("Connection: close",)))
        assert reply.headers["connection"] == "close" and client.rest() == b""


def test_a_large_document_arrives_whole(quick: int) -> None:
    assert len(ask(quick, request(path="/v1/completions", max_tokens=3)).body) < 2000
    body = {"model": "simulated", "prompt": "w " * 500_000, "max_tokens": 2, "stream": True}
    assert ask(quick, request(body)).status == 400  # above the context length, but read whole
    with Client(quick) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 16777217\r\n\r\n")
        assert client.response().status == 413


@pytest.mark.parametrize(
    ("data", "status", "word"),
    [
        (get("/nowhere"), 404, "/nowhere"),
        (get("/v1/completions"), 405, "POST"),
        (request().replace(b"/v1/chat/completions", b"/metrics"), 405, "GET"),
        (request(max_tokens=0), 400, "max_tokens"),
        (request(max_tokens=10**6), 400, "131072"),
        (request(max_tokens=10**30), 400, "cannot be read"),
        (b'POST /v1/completions HTTP/1.1\r\nContent-Length: 13\r\n\r\n{"model":"\xff"}', 400, "utf-8"),
        (
            b"POST /v1/completions HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
            400,
            "cannot be read",
        ),
        (
            b'POST /v1/completions HTTP/1.1\r\nContent-Length: 200005\r\n\r\n{"a":' + b"[" * 200_000,
            400,
            "too deep",
        ),
        (request(n=2), 400, "n=1"),
        (request(messages=[]), 400, "no text"),
        (request({"model": "simulated", "stream": True}), 400, "no messages"),
        (request(path="/v1/completions", prompt=["a", "b"]), 400, "one prompt"),
        (request(max_tokens="many"), 400, "max_tokens"),
        (request(headers=("X-Fault: nonsense",)), 400, "nonsense"),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\n{bad}", 400, "cannot be read"),
    ],
)
def test_requests_that_ask_for_something_impossible(quick: int, data: bytes, status: int, word: str) -> None:
    """A JSON error as vLLM sends it, and the connection is kept."""
    with Client(quick) as client:
        reply = client.ask(data)
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"]) == (status, status) and word in error["message"]
        assert client.ask(request(max_tokens=1)).status == 200


def test_an_unknown_model_is_refused_unless_any_is_allowed(
    simulator: Callable[..., SimulatorProcess], quick: int
) -> None:
    reply = ask(simulator(model="mine").port, request(model="other"))
    assert reply.status == 404 and json.loads(reply.body)["error"]["message"] == "The model `other` does not exist."
    for name in ('a "name"', "long" * 100_000):
        assert {one["model"] for one in ask(quick, request(model=name)).chunks} == {name}


def test_the_api_key_is_asked_for(simulator: Callable[..., SimulatorProcess]) -> None:
    process = simulator(api_key="sk-very-secret", ttft_ms=0.0, itl_ms=1.0)
    with Client(process.port) as client:
        assert client.ask(request()).status == 401
        assert client.ask(request(headers=("Authorization: Bearer wrong",))).status == 401
        assert client.ask(request(headers=("Authorization: Bearer sk-very-secret",))).status == 200
        assert client.ask(request(headers=("X-Api-Key: sk-very-secret",))).status == 200
        assert client.ask(request(headers=("x-api-key: sk-very",))).status == 401
        assert client.ask(get("/health")).status == 200
    assert "sk-very-secret" not in Path(f"/proc/{process.pid}/cmdline").read_text()


def test_models_and_metrics(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(model="mine", overrides=(("step_ms", "1"),)).port
    with Client(port) as client:
        (card,) = json.loads(client.ask(get("/v1/models")).body)["data"]
        assert card["id"] == "mine" and card["object"] == "model"
        used = client.ask(request(model="mine", max_tokens=7)).usage
        page = client.ask(get("/metrics"))
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in page.body.decode().splitlines() if not line.startswith("#"))
    assert lines['vllm:generation_tokens_total{model_name="mine"}'] == "7"
    assert lines['vllm:prompt_tokens_total{model_name="mine"}'] == str(used["prompt_tokens"])
    assert lines['vllm:request_success_total{finished_reason="length",model_name="mine"}'] == "1"
    assert lines['vllm:num_requests_running{model_name="mine"}'] == "0"
    names = {name.split("{")[0] for name in lines}
    assert {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:num_preemptions_total"} <= names
    assert {
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
        "vllm:num_requests_waiting",
    } <= names


def test_a_unix_socket_serves_too(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    process = simulator(unix_socket=str(path), null=True)
    assert process.url == f"unix:{path}" and process.port == 0
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))
        one.sendall(get("/health", "Connection: close"))
        assert one.recv(4096).startswith(b"HTTP/1.1 200")
    process.stop()
    assert not path.exists()


def test_ipv6_serves_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6 loopback")
    with SimulatorProcess(SimulatorOptions(host="::1", null=True)) as process:
        assert process.url.startswith("http://[::1]:")
        with socket.create_connection(("::1", process.port)) as one:
            one.sendall(get("/health", "Connection: close"))
            assert one.recv(4096).startswith(b"HTTP/1.1 200")


def test_null_mode_answers_both_forms(simulator: Callable[..., SimulatorProcess]) -> None:
    with Client(simulator(null=True).port) as client:
        for _ in range(3):
            assert client.ask(request(max_tokens=50)).usage["completion_tokens"] == 50
            assert json.loads(client.ask(request(stream=False, max_tokens=9)).body)["usage"]["completion_tokens"] == 9


def test_null_mode_waits_for_a_client_that_does_not_read(simulator: Callable[..., SimulatorProcess]) -> None:
    """A stream whose socket is full is held: memory stays bounded, and every event arrives."""
    process = simulator(null=True)
    with Client(process.port) as slow, Client(process.port) as other:
        slow.send(request(max_tokens=60_000))
        assert other.ask(request(max_tokens=20_000)).usage["completion_tokens"] == 20_000
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(re.search(r"VmRSS:\s+(\d+)", status)[1]) < 100_000  # type: ignore[index]
        reply = slow.response()
    assert reply.usage["completion_tokens"] == 60_000 and len(reply.text.split()) == 60_000


def test_processes_share_a_port(simulator: Callable[..., SimulatorProcess]) -> None:
    process = simulator(processes=2, null=True)
    for _ in range(20):
        assert ask(process.port, request(max_tokens=1)).status == 200
    assert process.stop() == 0
