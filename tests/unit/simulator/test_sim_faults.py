"""What each fault does to the bytes."""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sim_client import Client, Response, ask, request

from fastllmload._ext.sim.fault import CATALOGUE, parse, parse_chance
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.truth import load

pytestmark = pytest.mark.slow

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def fault(name: str, **fields: object) -> bytes:
    return request(headers=(f"X-Fault: {name}",), **({"max_tokens": 8} | fields))


def cut_off(port: int, data: bytes) -> tuple[bytes, bool]:
    """(everything that came, whether the end was a reset)."""
    with Client(port) as client:
        client.send(data)
        try:
            return client.rest(), False
        except ConnectionResetError:
            return client.buffer, True


def tokens(reply: Response) -> list[str]:
    return [one["choices"][0]["delta"]["content"] for one in reply.chunks[1:-1]]


def test_every_fault_has_a_test() -> None:
    here = Path(__file__)
    files = [here.with_name(f"test_sim_{name}.py") for name in ("faults", "tls", "http2")]
    truth = here.parents[2] / "truth" / "wire"
    files += [truth / f"test_truth_{name}.py" for name in ("websocket", "simulated_grpc")]
    text = "".join(file.read_text() for file in files)
    assert [name for name in CATALOGUE if f'"{name}' not in text] == []


def test_split(quick: int) -> None:
    """Many small writes, the same bytes: some may share a segment, but there are far more than the 13 events."""
    with Client(quick) as client:
        reply = client.ask(fault("split:3"))
        assert reply.usage["completion_tokens"] == 8 and client.segments() > 40


def test_coalesce(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=1.0, truth=path)
    assert ask(process.port, fault("coalesce:4")).usage["completion_tokens"] == 8
    process.stop()
    assert len(set(load(path).content()["t_ns"])) == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["slow_head:400", "stall:400"])
def test_pauses(simulator: Callable[..., SimulatorProcess], tmp_path: Path, name: str, stream: bool) -> None:
    """The bytes are whole, and the reply took at least as long as the pause."""
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=0.0, itl_ms=1.0, truth=path)
    with Client(process.port) as client:
        reply = client.ask(fault(name, stream=stream))
        assert reply.status == 200 and client.ask(request(max_tokens=1)).status == 200
    usage = reply.usage if stream else json.loads(reply.body)["usage"]
    assert usage["completion_tokens"] == 8
    process.stop()
    row = load(path).requests[0]
    assert row["t_end"] - row["t_recv_last"] >= 400_000_000
    gap = max(b[0] - a[0] for a, b in zip(reply.reads, reply.reads[1:], strict=False))
    assert gap >= 100_000_000  # between two reads, not before the first; a reader may see its beginning late


def test_events_after_a_pause_are_marked_as_queued(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=0.0, itl_ms=1.0, truth=path)
    ask(process.port, fault("stall:400"))
    process.stop()
    assert load(path).content()["queued"].tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize(
    ("name", "reset", "sent"),
    [("reset", True, 4), ("close", False, 4), ("reset:2", True, 2), ("close:0", False, 0)],
)
def test_reset_and_close(quick: int, name: str, reset: bool, sent: int) -> None:
    raw, was_reset = cut_off(quick, fault(name))
    assert was_reset is reset
    assert raw.count(b'"obfuscation"') == sent and b"[DONE]" not in raw and not raw.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(("name", "reset"), [("reset", True), ("close", False)])
def test_reset_and_close_of_a_document(quick: int, name: str, reset: bool) -> None:
    raw, was_reset = cut_off(quick, fault(name, stream=False))
    head, _, body = raw.partition(b"\r\n\r\n")
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    assert was_reset is reset and 0 < len(body) < length


def test_error_event(quick: int) -> None:
    reply = ask(quick, fault("error_event"))
    assert reply.status == 200 and reply.events[-1] == "[DONE]"
    assert reply.chunks[-1]["error"]["code"] == 500 and len(reply.chunks) == 6
    assert "error" in json.loads(ask(quick, fault("error_event", stream=False)).body)


@pytest.mark.parametrize(("name", "made"), [("abort", 4), ("abort:1", 1), ("abort:0", 0)])
def test_abort(quick: int, name: str, made: int) -> None:
    """The engine gives up and says so; framing, usage and [DONE] are whole, and the connection is kept."""
    with Client(quick) as client:
        reply = client.ask(fault(name))
        assert (reply.status, reply.events[-1]) == (200, "[DONE]")
        assert [one["choices"][0]["finish_reason"] for one in reply.chunks[1:-1]] == [None] * made + ["abort"]
        assert reply.usage["completion_tokens"] == made
        document = json.loads(client.ask(fault(name, stream=False)).body)
        assert document["choices"][0]["finish_reason"] == "abort"
        assert document["usage"]["completion_tokens"] == made
        assert client.ask(request()).status == 200


def test_abort_is_counted_as_such(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(ttft_ms=0.0, itl_ms=1.0).port
    ask(port, fault("abort"))
    ask(port, request(max_tokens=2))
    metrics = ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").body.decode()
    counted = dict(re.findall(r'^vllm:request_success_total{.*finished_reason="(\w+)".*} (\d+)', metrics, re.M))
    assert (counted["abort"], counted["length"], counted["stop"]) == ("1", "1", "0")


def test_bad_json(quick: int) -> None:
    reply = ask(quick, fault("bad_json:3"))
    assert reply.events[-1] == "[DONE]" and len(reply.events) == 13
    with pytest.raises(json.JSONDecodeError):
        json.loads(reply.events[4])
    with pytest.raises(json.JSONDecodeError):
        json.loads(ask(quick, fault("bad_json", stream=False)).body)


def test_no_done(quick: int) -> None:
    """The HTTP framing is whole, the stream is not."""
    with Client(quick) as client:
        reply = client.ask(fault("no_done"))
        assert len(reply.events) == 9 and "[DONE]" not in reply.events
        assert all(one["choices"][0]["finish_reason"] is None for one in reply.chunks)
        assert client.ask(request()).status == 200


@pytest.mark.parametrize("status", [429, 500, 503])
def test_status(quick: int, status: int) -> None:
    reply = ask(quick, fault(f"status:{status}"))
    assert reply.status == status and json.loads(reply.body)["error"]["code"] == status
    assert reply.headers.get("retry-after") == ("1" if status == 429 else None)


def test_huge_event(quick: int) -> None:
    reply = ask(quick, fault("huge_event:300000"))
    assert max(map(len, reply.events)) > 300_000 and reply.usage["completion_tokens"] == 8


def test_empty(quick: int) -> None:
    reply = ask(quick, fault("empty"))
    assert reply.status == 200 and reply.text == "" and reply.events[-1] == "[DONE]"
    assert reply.usage["completion_tokens"] == 0
    document = json.loads(ask(quick, fault("empty", stream=False)).body)
    assert document["choices"][0]["message"]["content"] == "" and document["usage"]["completion_tokens"] == 0


def test_no_body(quick: int) -> None:
    reply = ask(quick, fault("no_body"))
    assert (reply.status, reply.headers["content-length"], reply.body) == (200, "0", b"")


def test_html(quick: int) -> None:
    reply = ask(quick, fault("html"))
    assert reply.status == 200 and reply.headers["content-type"] == "text/html" and b"<html>" in reply.body


def test_gzip(quick: int) -> None:
    reply = ask(quick, fault("gzip"))
    assert reply.headers["content-encoding"] == "gzip" and gzip.decompress(reply.body).endswith(b"data: [DONE]\n\n")


def test_endless_head(quick: int) -> None:
    """Fields and fields, each line well formed, up to the argument; then the end."""
    raw, _ = cut_off(quick, fault("endless_head:1000000"))
    assert raw.startswith(b"HTTP/1.1 200 OK\r\n") and 1_000_000 <= len(raw) < 1_001_000 and b"\r\n\r\n" not in raw
    assert set(raw.split(b"\r\n")[4:-1]) == {b"x-filler: " + b"a" * 52}


def test_drip(quick: int) -> None:
    with Client(quick) as client:
        reply = client.ask(fault("drip:1", stream=False, max_tokens=1))
        assert json.loads(reply.body)["usage"]["completion_tokens"] == 1
        assert client.segments() > 100


def test_deep_json(quick: int) -> None:
    reply = ask(quick, fault("deep_json:5000"))
    (deep,) = [text for text in reply.events if "[" * 5000 in text]
    assert deep.count("]") == 5000 and len(reply.events) == 13


def test_huge_line(quick: int) -> None:
    raw, _ = cut_off(quick, fault("huge_line:2000000"))
    assert raw.endswith(b"a" * 2_000_000) and raw.count(b'"obfuscation"') == 4
    assert b"\r\n%x\r\ndata: aaa" % (2_000_000 + 6) in raw


@pytest.mark.parametrize(("name", "end"), [("crlf", b"\r\n"), ("cr", b"\r")])
def test_line_ends(quick: int, name: str, end: bytes) -> None:
    reply = ask(quick, fault(name))
    assert reply.body.count(end * 2) == 12 and reply.body.endswith(b"[DONE]" + end * 2)
    assert (b"\n" in reply.body) is (name == "crlf") and reply.usage["completion_tokens"] == 8


def test_comments(quick: int) -> None:
    reply = ask(quick, fault("comments"))
    assert reply.body.count(b": ping\n\n") == 8 and reply.usage["completion_tokens"] == 8


def test_idle_close(quick: int) -> None:
    with Client(quick) as client:
        assert client.ask(fault("idle_close:20")).usage["completion_tokens"] == 8
        assert client.rest() == b""


def test_idle_close_spares_a_connection_that_is_used_again(quick: int) -> None:
    with Client(quick) as client:
        client.ask(fault("idle_close:500", max_tokens=1))
        assert client.ask(request(max_tokens=400)).usage["completion_tokens"] == 400  # 800 ms


def test_never(quick: int) -> None:
    with Client(quick) as client:
        client.send(fault("never"))
        assert ask(quick, request()).status == 200
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.read()


def test_close_before_response(quick: int) -> None:
    assert cut_off(quick, fault("close_before_response")) == (b"", False)


def test_no_usage(quick: int) -> None:
    reply = ask(quick, fault("no_usage"))
    assert not any("usage" in one for one in reply.chunks) and reply.events[-1] == "[DONE]"
    assert "usage" not in json.loads(ask(quick, fault("no_usage", stream=False)).body)


def test_whitespace_first(quick: int) -> None:
    got = tokens(ask(quick, fault("whitespace_first:2", stream_options=None)))
    assert got[:2] == ["\n\n", "\n\n"] and all(one.strip() for one in got[2:]) and len(got) == 8


def test_reasoning(quick: int) -> None:
    deltas = [one["choices"][0]["delta"] for one in ask(quick, fault("reasoning:3", stream_options=None)).chunks]
    assert [list(one) for one in deltas[1:-1]] == [["reasoning_content"]] * 3 + [["content"]] * 5


def test_tool_calls(quick: int) -> None:
    """Streamed in pieces or whole: the same calls, of valid JSON with what must be escaped in it."""
    reply = ask(quick, fault("tool_calls:2", max_tokens=20))
    assert reply.chunks[-2]["choices"][0]["finish_reason"] == "tool_calls" and reply.usage["completion_tokens"] == 20
    found: dict[int, dict[str, str]] = {}
    for chunk in reply.chunks[1:-2]:
        (entry,) = chunk["choices"][0]["delta"]["tool_calls"]
        call = found.setdefault(entry["index"], {"id": entry.get("id", ""), "arguments": ""})
        call["arguments"] += entry["function"]["arguments"]
    assert sorted(found) == [0, 1] and len({call["id"] for call in found.values()}) == 2
    text = json.loads(found[0]["arguments"])["text"]
    assert {'"', "\n", "\\", "é"} <= set(text)
    document = json.loads(ask(quick, fault("tool_calls:2", max_tokens=20, stream=False)).body)
    calls = document["choices"][0]["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]).keys() for call in calls] == [{"text"}] * 2
    assert document["choices"][0]["message"]["content"] is None


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "tool", "tool_call_id": "a", "content": "x"}], "answers no call"),
        ([{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "x"}], "none for a"),
        ([{"role": "assistant", "tool_calls": [CALL]}], "none for a"),
    ],
)
def test_calls_without_answers_are_refused(quick: int, messages: list[dict[str, object]], said: str) -> None:
    """As OpenAI refuses them; answered ones are fine."""
    start = [{"role": "user", "content": "x"}]
    refused = ask(quick, request(messages=start + messages))
    assert refused.status == 400 and said in json.loads(refused.body)["error"]["message"]
    answered = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "a", "content": "x"}]
    assert ask(quick, request(messages=start + answered)).status == 200


@pytest.mark.parametrize("stream", [True, False])
def test_until_close(quick: int, stream: bool) -> None:
    with Client(quick) as client:
        reply = client.ask(fault("until_close", stream=stream))
    assert "content-length" not in reply.headers and "transfer-encoding" not in reply.headers
    assert (reply.usage if stream else json.loads(reply.body)["usage"])["completion_tokens"] == 8


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_content_length(quick: int, path: str) -> None:
    with Client(quick) as client:
        reply = client.ask(fault("content_length", path=path))
        assert "transfer-encoding" not in reply.headers and reply.usage["completion_tokens"] == 8
        assert client.ask(request()).status == 200
        counted = {"include_usage": True, "continuous_usage_stats": True}
        reply = client.ask(fault("content_length", path=path, stream_options=counted))
        assert reply.events[-1] == "[DONE]" and all("usage" in one for one in reply.chunks)


def test_faults_by_chance_follow_the_seed(simulator: Callable[..., SimulatorProcess]) -> None:
    """Each reply has at most one fault, drawn by its place in the order of arrival."""

    def statuses(seed: int) -> list[int]:
        port = simulator(null=True, seed=seed, faults=("status:0.25:500", "status:0.25:429")).port
        with Client(port) as client:
            return [client.ask(request(max_tokens=1)).status for _ in range(120)]

    first = statuses(0)
    assert first == statuses(0) and first != statuses(1)
    assert all(Counter(first)[status] > 10 for status in (200, 429, 500))


def test_the_header_wins_over_chance(simulator: Callable[..., SimulatorProcess]) -> None:
    port = simulator(null=True, faults=("status:1",)).port
    assert ask(port, fault("html")).headers["content-type"] == "text/html"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nope:0.5", "called 'nope'"),
        ("status:0.5:99", "an HTTP status from 200 to 599"),
        ("status:0.5:600", "an HTTP status from 200 to 599"),
        ("reset:2", "from 0 to 1"),
        ("reset:x", "from 0 to 1"),
        ("stall:0.1:x", "'x'"),
        ("reset", "probability"),
    ],
)
def test_wrong_faults_are_named(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse_chance(text)


def test_arguments_have_defaults() -> None:
    assert parse("stall") == (CATALOGUE["stall"][0], 200) and parse("stall:7")[1] == 7
    assert parse_chance("status:0.5") == (0.5, CATALOGUE["status"][0], 503)


def test_many_connections_may_fail_at_once(quick: int) -> None:
    """Clients that reset in mid-stream leave nothing behind."""
    clients = [Client(quick) for _ in range(60)]
    for client in clients:
        client.send(request(max_tokens=10_000))
    for client in clients:
        client.until(b"data: ")
        client.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: close() resets
        client.socket.close()
    assert ask(quick, request()).usage["completion_tokens"] == 4


COUNTED = {"include_usage": True, "continuous_usage_stats": True}


def counts(reply: Response) -> list[int]:
    return [one["usage"]["completion_tokens"] for one in reply.chunks]


def test_multi_token(quick: int) -> None:
    """Three words in an event, the rest in the last one; the text is that of a reply of single tokens."""
    plain, reply = (ask(quick, fault(name, stream_options=COUNTED)) for name in ("coalesce:1", "multi_token:3"))
    assert counts(reply) == [0, 3, 6, 8, 8, 8] and counts(plain) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]
    texts = [one["choices"][0]["delta"].get("content", "") for one in reply.chunks[:-1]]
    assert [len(text.split()) for text in texts] == [0, 3, 3, 2, 0]


def test_empty_text(quick: int) -> None:
    """Each third token comes without its word, which the next event has; after the last one it never comes."""
    reply = ask(quick, fault("empty_text:3", stream_options=COUNTED, max_tokens=6))
    texts = [one["choices"][0]["delta"].get("content", "") for one in reply.chunks[1:-2]]
    assert [len(text.split()) for text in texts] == [1, 1, 0, 2, 1, 0]
    assert counts(reply) == [0, 1, 2, 3, 4, 5, 6, 6, 6]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_usage_in_every_event_is_served_where_it_is_asked_for(quick: int, path: str) -> None:
    """As vLLM does: only with include_usage, of streams alone, and the last event has no choice."""
    prompt = {} if "chat" in path else {"prompt": "Say it.", "messages": None}
    reply = ask(quick, request(path=path, max_tokens=4, stream_options=COUNTED, **prompt))
    said = [one["usage"] for one in reply.chunks]
    assert [one["completion_tokens"] for one in said] == ([0] if "chat" in path else []) + [1, 2, 3, 4, 4, 4]
    assert all(one["total_tokens"] == one["prompt_tokens"] + one["completion_tokens"] for one in said)
    assert [bool(one["choices"]) for one in reply.chunks] == [True] * (len(said) - 1) + [False]
    alone = ask(quick, request(path=path, max_tokens=4, stream_options={"continuous_usage_stats": True}, **prompt))
    assert not any("usage" in one for one in alone.chunks)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    ("name", "tokens"), [("coalesce:1", [1] * 8), ("multi_token:3", [3, 3, 2]), ("empty_text:3", [1] * 8)]
)
def test_token_ids_and_logprobs_are_served_where_they_are_asked_for(
    quick: int, path: str, name: str, tokens: list[int]
) -> None:
    """One item for each token of an event, the same ids however the tokens are put together."""
    prompt = {} if "chat" in path else {"prompt": "Say it.", "messages": None}
    logprobs = {"logprobs": True if "chat" in path else 1}
    reply, alone, plain = (
        ask(quick, fault(name, path=path, **prompt, **more))
        for more in ({"return_token_ids": True}, logprobs, {"return_token_ids": True} | logprobs)
    )
    listed = [one["choices"][0].get("token_ids") for one in reply.chunks if one["choices"]]
    listed = [ids for ids in listed if ids is not None]
    assert [len(ids) for ids in listed] == tokens and len({one for ids in listed for one in ids}) > 2
    assert all(one["choices"][0]["logprobs"] is None for one in reply.chunks if one["choices"])
    said = [one["choices"][0]["logprobs"] for one in alone.chunks if one["choices"] and one["choices"][0]["logprobs"]]
    assert [len(one["content" if "chat" in path else "tokens"]) for one in said] == tokens
    assert not any("token_ids" in one["choices"][0] for one in alone.chunks if one["choices"])
    both = [one["choices"][0] for one in plain.chunks if one["choices"] and "token_ids" in one["choices"][0]]
    assert [len(one["token_ids"]) for one in both] == tokens and all(one["logprobs"] for one in both)
