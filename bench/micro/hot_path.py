"""Instructions that a worker spends in user space per event and per request: reactor, exchange, parsers, recorder.

Run it as ``python bench/micro/hot_path.py``; it needs valgrind. One thread is the server and, by turns, the reactor of
the client, so that every event is a read of its own and the counts of two runs differ by parts in a thousand at most. Two
runs with different numbers of events are subtracted: the slope is the cost of an event, what is left that of a request.
Counted is what happens inside `Reactor.on_ready`; the kernel's part is not, and a clock read counts as one system call
(valgrind hides the vDSO). ``--profile`` also prints where the instructions go. ``--plain`` counts requests that are
answered whole, one after the other on kept connections, in place of events. ``--alone`` has each read come as a batch of its
own, as most do where a worker keeps up: then an event bears the costs of a batch too. ``--endpoint-type`` has the events
that the simulated engine writes for that protocol in place of those of OpenAI's chat as vLLM writes them.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.record import counters as k
from fastllmload._ext.record.recorder import Recorder
from fastllmload._ext.send.reactor import Reactor
from fastllmload.endpoint import ENDPOINTS, Endpoint
from fastllmload.records.layout import EVENT_CONTENT
from fastllmload.records.shared_memory import SharedWords
from fastllmload.settings import Workload
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

COUNTED = "__pyx_pw_*7Reactor_*on_ready"
WORDS = [b" the", b" answer", b",", b" with", b" some", b" longer", b" internationalisation", b" and"]
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
BODY = b'{"model":"m","messages":[{"role":"user","content":"Count."}],"stream":true}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
PLAIN_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sat, 01 Aug 2026 12:00:%02d GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
    b"content-type: application/json\r\nx-request-id: %032x\r\n\r\n"
)


def chunk(stream: int, delta: bytes, finish: bytes = b"null") -> bytes:
    """One event in one chunk, as vLLM writes it."""
    event = (
        b'data: {"id":"chatcmpl-%016x","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        b'"choices":[{"index":0,"delta":{%b},"logprobs":null,"finish_reason":%b}]}\n\n'
    ) % (stream * 0x9E3779B9, delta, finish)
    return b"%x\r\n%b\r\n" % (len(event), event)


def whole(number: int) -> bytes:
    """One answer with its head, as vLLM under uvicorn writes it."""
    body = (
        b'{"id":"chatcmpl-%016x","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":"length"}],'
        b'"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}'
    ) % (number * 0x9E3779B9, WORDS[number % len(WORDS)])
    return PLAIN_HEAD % (number // 1000 % 60, len(body), number * 0x9E3779B97F4A7C15) + body


class Written:
    """A streamed answer of the simulated engine: what is before, of and after its events with text, each a chunk."""

    def __init__(self, endpoint: Endpoint, events: int) -> None:
        workload = Workload(continuous_usage="off")
        with SimulatorProcess(SimulatorOptions(ttft_ms=0.1, itl_ms=0.1)) as server:
            asked = endpoint.encode_body("simulated", workload, "Count.", events)
            request = urllib.request.Request(
                server.url + endpoint.path(""), asked, {"Content-Type": "application/json"}
            )
            body = urllib.request.urlopen(request).read()
        classifier = Classifier(endpoint.dialect)
        parts = [part + b"\n\n" for part in body.split(b"\n\n") if part]
        kinds = [classifier.classify_bytes(part.rpartition(b"data: ")[2].strip())["kind"] for part in parts]
        first = kinds.index(EVENT_CONTENT)
        found = re.search(rb"[0-9a-f]{16}", parts[0])
        assert found is not None and kinds.count(EVENT_CONTENT) == events
        self.id = found[0]
        self.before, self.texts, self.after = parts[:first], parts[first : first + events], parts[first + events :]

    def chunks(self, parts: list[bytes], stream: int) -> bytes:
        own = [part.replace(self.id, b"%016x" % (stream * 0x9E3779B9)) for part in parts]
        return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in own)


def load(streams: int, events: int, coalesce: int, plain: bool, alone: bool, name: str | None, directory: Path) -> None:
    """*streams* requests at once, *events* with text on each, *coalesce* of them in a read, each a chunk of its own.

    *plain*: *events* requests on each connection, one after the other, each answered whole. *alone*: one read a batch.
    """
    shared = SharedWords.create()
    recorder = Recorder(directory)
    endpoint = ENDPOINTS[name or "openai-chat"]
    written = Written(endpoint, events) if name is not None else None
    protocol = Protocol(recorder, Classifier(endpoint.dialect), shared.words, 1 << 20, 1 << 22)
    reactor = Reactor(
        protocol,
        Pacer(),
        run_id=b"bench",
        worker=0,
        workers=1,
        timeout_ns=600_000_000_000,
        kernel_stamps=True,
        fresh_connections=False,
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=streams)
    reactor.add_target("inet", "127.0.0.1", listener.getsockname()[1], REQUEST, False)
    reactor.load(
        phase=1,
        phase_number=0,
        schedule=np.zeros(streams, np.int64),
        body_offset=np.arange(streams + 1, dtype=np.uint64) * len(BODY),
        bodies=np.frombuffer(BODY * streams, np.uint8),
        input_tokens=np.ones(streams, np.int32),
        output_tokens=np.ones(streams, np.int32),
        request_class=np.zeros(streams, np.uint16),
        closed=True,
        limit=streams * events if plain else streams,
        reserve=0,
    )
    reactor.preconnect(streams)
    peers = [listener.accept()[0] for _ in range(streams)]
    for peer in peers:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while reactor.connecting:
        reactor.on_ready()
    reactor.start_at(time.monotonic_ns())
    reactor.rest()  # one batch per call, as where the event loop owns connections
    while reactor.in_flight < streams:
        reactor.on_ready()

    def answer(pieces: list[bytes]) -> None:
        expected = shared.words[k.W_READS] + streams
        for peer, piece in zip(peers, pieces, strict=True):
            peer.send(piece)
            if alone:
                reactor.on_ready()
        while shared.words[k.W_READS] < expected:
            reactor.on_ready()
        assert shared.words[k.W_READS] == expected

    def take_requests() -> None:
        for peer in peers:
            assert peer.recv(4096).endswith(BODY)

    take_requests()
    if plain:
        for number in range(events):
            answer([whole(number * streams + i) for i in range(streams)])
            if number + 1 < events:
                take_requests()
        assert reactor.finished and shared.words[k.W_OK] == streams * events, "a request failed"
        reactor.close_connections()
        recorder.close()
        return
    if written is not None:
        answer([HEAD + written.chunks(written.before, i) for i in range(streams)])
        for first in range(0, events, coalesce):
            answer([written.chunks(written.texts[first : first + coalesce], i) for i in range(streams)])
        answer([written.chunks(written.after, i) + b"0\r\n\r\n" for i in range(streams)])
    else:
        answer_as_vllm(streams, events, coalesce, answer)
    assert reactor.finished and shared.words[k.W_OK] == streams, "a request failed"
    assert shared.words[k.W_CONTENT_EVENTS] == streams * events
    reactor.close_connections()
    recorder.close()


def answer_as_vllm(streams: int, events: int, coalesce: int, answer: Callable[[list[bytes]], None]) -> None:
    answer([HEAD + chunk(i, b'"role":"assistant","content":""') for i in range(streams)])
    for first in range(0, events, coalesce):
        numbers = range(first, first + coalesce)
        answer(
            [
                b"".join(chunk(i, b'"content":"%b"' % WORDS[(i + n) % len(WORDS)]) for n in numbers)
                for i in range(streams)
            ]
        )
    answer([chunk(i, b"", b'"stop"') + DONE for i in range(streams)])


def instructions(asked: argparse.Namespace, events: int, profile: Path | None) -> int:
    """Counted by callgrind around one run."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        out = profile or Path(parent) / "callgrind.out"
        command = [
            "valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={COUNTED}",
            f"--callgrind-out-file={out}", sys.executable, __file__, "--inside", parent,
            "--streams", str(asked.streams), "--events", str(events), "--coalesce", str(asked.coalesce),
            *(["--plain"] if asked.plain else []), *(["--alone"] if asked.alone else []),
            *(["--endpoint-type", asked.endpoint_type] if asked.endpoint_type else []),
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
        )
        if done.returncode:
            raise SystemExit(f"valgrind ended with {done.returncode}: {done.stderr[-2000:]}")
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
        if found is None or int(found[1]) == 0:
            raise SystemExit(f"nothing was counted: no function is called {COUNTED}")
        return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--events", type=int, default=64)
    parser.add_argument("--coalesce", type=int, default=1, help="events in a read; divides a quarter of --events")
    parser.add_argument("--plain", action="store_true", help="--events counts whole answers on each connection")
    parser.add_argument("--alone", action="store_true", help="each read is a batch of its own")
    parser.add_argument("--endpoint-type", choices=ENDPOINTS, help="events as the simulated engine writes them")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        name = asked.endpoint_type
        load(asked.streams, asked.events, asked.coalesce, asked.plain, asked.alone, name, asked.inside)
        return
    if asked.events % 4 or asked.events // 4 % asked.coalesce:
        parser.error(f"--coalesce {asked.coalesce} does not divide a quarter of --events {asked.events}")
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        out = Path(parent) / "profile" if asked.profile else None
        few = instructions(asked, asked.events // 4, None)
        many = instructions(asked, asked.events, out)
        per_event = (many - few) / (asked.streams * (asked.events - asked.events // 4))
        besides = many / asked.streams - per_event * asked.events
        unit, rest = ("whole answer", "connection") if asked.plain else ("event", "request")
        print(f"instructions per {unit} {per_event:9.1f}   per {rest} besides {besides:9.1f}")
        if out is not None:
            subprocess.run(["callgrind_annotate", "--auto=no", str(out)], check=True)


if __name__ == "__main__":
    main()
