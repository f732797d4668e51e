"""Instructions that a worker spends in user space per event and per request: reactor, exchange, parsers, recorder.

Run it as ``python bench/micro/hot_path.py``; it needs valgrind. One thread is the server and, by turns, the reactor of
the client, so that every event is a read of its own and the counts of two runs differ by parts in a thousand at most. Two
loads with different numbers of events are subtracted: the slope is the cost of an event, what is left that of a request.
Counted is what happens inside `Reactor.on_ready`; the kernel's part is not, and a clock read counts as one system call
(valgrind hides the vDSO). ``--profile`` also prints in which functions they are. ``--plain`` counts requests that are
answered whole, one after the other on kept connections, in place of events. ``--alone`` has each read come as a batch of its
own, as most do where a worker keeps up: then an event bears the costs of a batch too. ``--endpoint-type`` has the events
that the simulated engine writes for that protocol in place of those of OpenAI's chat as vLLM writes them; ``all`` compares
every protocol that streams with OpenAI's chat. ``--transport http2`` has each stream on an HTTP/2 connection of its own and
each event in a DATA frame, as gRPC always has. ``--session`` has each request name its session in a header,
``--backend`` notes the header `server` of each answer (``--plain`` answers have it).
"""

from __future__ import annotations

import argparse
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastllmload._ext.bytes.schema import with_prefix
from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.http.block import response_block
from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.record import counters as k
from fastllmload._ext.record.recorder import Recorder
from fastllmload._ext.send.identity import Identity
from fastllmload._ext.send.reactor import Reactor
from fastllmload._ext.simserver.writer import CALL_HEAD, trailers
from fastllmload.endpoint import ENDPOINTS, Endpoint
from fastllmload.endpoint.call import PREFIX
from fastllmload.endpoint.endpoint import named
from fastllmload.endpoint.identity import compiled
from fastllmload.engine.preflight.http2 import ask
from fastllmload.engine.upgrade import accept_of, upgrade_fields
from fastllmload.records.layout import EVENT_CONTENT
from fastllmload.records.shared_memory import SharedWords
from fastllmload.settings import SessionIdentity, Workload
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
SWITCHED = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n"
COUNTED = "__pyx_pw_*7Reactor_*on_ready"
LOADS = 3  # of each protocol in one process: one that does what happens once, one with few events, one with many
WORDS = [b" the", b" answer", b",", b" with", b" some", b" longer", b" internationalisation", b" and"]
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
CALL = b"POST %b HTTP/1.1\r\nHost: bench\r\ncontent-type: application/grpc\r\nte: trailers\r\n"
BODY = b'{"model":"m","messages":[{"role":"user","content":"Count."}],"stream":true}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
LINES_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
DATA, HEADERS, SETTINGS, END_STREAM, END_HEADERS = 0, 1, b"\0\0\0\4\0\0\0\0\0", 1, 4
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
PLAIN_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sat, 01 Aug 2026 12:00:%02d GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
    b"content-type: application/json\r\nx-request-id: %032x\r\n\r\n"
)


def frame(kind: int, payload: bytes, flags: int = 0) -> bytes:
    """Of HTTP/2, on stream 1 of its connection."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + b"\0\0\0\1" + payload


def chunk(stream: int, delta: bytes, finish: bytes = b"null", http2: bool = False) -> bytes:
    """One event in one chunk, as vLLM writes it, or in one frame."""
    event = (
        b'data: {"id":"chatcmpl-%016x","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        b'"choices":[{"index":0,"delta":{%b},"logprobs":null,"finish_reason":%b}]}\n\n'
    ) % (stream * 0x9E3779B9, delta, finish)
    return frame(DATA, event) if http2 else b"%x\r\n%b\r\n" % (len(event), event)


def message_head(size: int) -> bytes:
    """Of a server's text message in one frame."""
    return bytes((0x81, size)) if size < 126 else struct.pack(">BBH", 0x81, 126, size)


def take_upgrade(peer: socket.socket) -> None:
    """Answer a connection's upgrade to WebSocket."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.recv(4096)
    peer.send(SWITCHED % accept_of(KEY).encode())


def whole(number: int) -> bytes:
    """One answer with its head, as vLLM under uvicorn writes it."""
    body = (
        b'{"id":"chatcmpl-%016x","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":"length"}],'
        b'"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}'
    ) % (number * 0x9E3779B9, WORDS[number % len(WORDS)])
    return PLAIN_HEAD % (number // 1000 % 60, len(body), number * 0x9E3779B97F4A7C15) + body


def messages(body: bytes) -> list[bytes]:
    """Of the answer to a call."""
    found = []
    while body:
        end = PREFIX + int.from_bytes(body[1:PREFIX], "big")
        found.append(body[PREFIX:end])
        body = body[end:]
    return found


class Written:
    """A streamed answer of the simulated engine: what is before, of and after its events with text, each a chunk. Over
    WebSocket each is a message, of what the protocol has over HTTP; over HTTP/2 a frame.
    """

    def __init__(self, endpoint: Endpoint, events: int, http2: bool) -> None:
        self.messages, self.http2 = endpoint.websocket, http2
        if self.messages:
            endpoint = ENDPOINTS[endpoint.name.removesuffix("-ws")]
        form = "words" if endpoint.takes("text") else "ids"
        workload = Workload(continuous_usage="off", prompt_form=form)
        with SimulatorProcess(SimulatorOptions(ttft_ms=0.1, itl_ms=0.1)) as server:
            prompt = "Count." if form == "words" else [5, 2, 3]
            asked = endpoint.encode_body("simulated", workload, prompt, events)
            if endpoint.call is not None:
                message = endpoint.call.framed(asked, b"one")
                with socket.create_connection(("127.0.0.1", server.port)) as peer:
                    body = ask(peer, CALL % endpoint.path("").encode(), message, 1 << 30).content
            else:
                request = urllib.request.Request(
                    server.url + named(endpoint.path(""), "simulated"), asked, {"Content-Type": "application/json"}
                )
                body = urllib.request.urlopen(request).read()
        classifier = Classifier(endpoint.dialect)
        self.head, end = (LINES_HEAD, b"\n") if endpoint.framing == "ndjson" else (HEAD, b"\n\n")
        parts = messages(body) if endpoint.call is not None else [part + end for part in body.split(end) if part]
        payloads = parts if endpoint.call is not None else [part.rpartition(b"data: ")[2].strip() for part in parts]
        kinds = [classifier.classify_bytes(payload)["kind"] for payload in payloads]
        first = kinds.index(EVENT_CONTENT)
        found = re.search(rb"[0-9a-f]{16}", parts[0])
        assert set(kinds[first : first + events]) == {EVENT_CONTENT}
        self.id = found[0] if found is not None else None
        if self.messages:
            parts = payloads
        elif endpoint.call is not None:
            parts = [with_prefix(part) for part in parts]
        self.before, self.texts, self.after = parts[:first], parts[first : first + events], parts[first + events :]

    def chunks(self, parts: list[bytes], stream: int) -> bytes:
        own = parts if self.id is None else [part.replace(self.id, b"%016x" % (stream * 0x9E3779B9)) for part in parts]
        if self.messages:
            return b"".join(message_head(len(part)) + part for part in own)
        if self.http2:
            return b"".join(frame(DATA, part) for part in own)
        return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in own)


def load(
    streams: int,
    events: int,
    coalesce: int,
    plain: bool,
    alone: bool,
    name: str | None,
    http2: bool,
    directory: Path,
    session: SessionIdentity,
    backend: bytes | None = None,
) -> None:
    """*streams* requests at once, *events* with text on each, *coalesce* of them in a read, each a chunk of its own.

    *plain*: *events* requests on each connection, one after the other, each answered whole. *alone*: one read a batch.
    """
    shared = SharedWords.create()
    recorder = Recorder(directory)
    endpoint = ENDPOINTS[name or "openai-chat"]
    http2 |= endpoint.call is not None
    written = Written(endpoint, events, http2) if name is not None else None
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
    protocol.want(backend=backend)
    if session.headers:
        reactor.use_identity(Identity(**compiled(session, ())))
    listener = socket.create_server(("127.0.0.1", 0), backlog=streams)
    websocket = endpoint.websocket
    reactor.add_target(
        "inet", "127.0.0.1", listener.getsockname()[1], REQUEST + upgrade_fields(KEY).encode() * websocket, False,
        websocket_accept=accept_of(KEY).encode() if websocket else None, http2_streams=1 if http2 else 0,
    )  # fmt: skip
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
    for peer in peers * websocket:
        while not select.select([peer], [], [], 0)[0]:
            reactor.on_ready()
        take_upgrade(peer)
    for peer in peers * http2:
        peer.send(SETTINGS)
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
            sent = peer.recv(4096)
            while http2 and not sent.endswith(BODY):  # what begins a connection comes before
                sent += peer.recv(4096)
            assert sent.endswith(BODY[websocket:])

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
        head = b"" if websocket else written.head
        end = b"" if websocket else b"0\r\n\r\n"
        if http2:
            head = frame(HEADERS, response_block(CALL_HEAD if endpoint.call else STREAM), END_HEADERS)
            end = (
                frame(HEADERS, trailers(0), END_HEADERS | END_STREAM) if endpoint.call else frame(DATA, b"", END_STREAM)
            )
        answer([head + written.chunks(written.before, i) for i in range(streams)])
        for first in range(0, events, coalesce):
            answer([written.chunks(written.texts[first : first + coalesce], i) for i in range(streams)])
        answer([written.chunks(written.after, i) + end for i in range(streams)])
    else:
        answer_as_vllm(streams, events, coalesce, http2, answer)
    assert reactor.finished and shared.words[k.W_OK] == streams, "a request failed"
    assert shared.words[k.W_CONTENT_EVENTS] == streams * events
    reactor.close_connections()
    recorder.close()


def answer_as_vllm(
    streams: int, events: int, coalesce: int, http2: bool, answer: Callable[[list[bytes]], None]
) -> None:
    head = frame(HEADERS, response_block(STREAM), END_HEADERS) if http2 else HEAD
    done = frame(DATA, b"data: [DONE]\n\n", END_STREAM) if http2 else DONE
    answer([head + chunk(i, b'"role":"assistant","content":""', http2=http2) for i in range(streams)])
    for first in range(0, events, coalesce):
        numbers = range(first, first + coalesce)
        answer(
            [
                b"".join(chunk(i, b'"content":"%b"' % WORDS[(i + n) % len(WORDS)], http2=http2) for n in numbers)
                for i in range(streams)
            ]
        )
    answer([chunk(i, b"", b'"stop"', http2) + done for i in range(streams)])


def slopes(asked: argparse.Namespace, names: list[str | None], directory: Path) -> list[tuple[float, float]]:
    """Instructions per event, and per request besides, of each of *names*: callgrind writes a file after each `load`."""
    out = directory / "callgrind.out"
    command = [
        "valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={COUNTED}",
        f"--callgrind-out-file={out}", sys.executable, __file__, "--inside", str(directory),
        "--streams", str(asked.streams), "--events", str(asked.events), "--coalesce", str(asked.coalesce),
        *(["--plain"] if asked.plain else []), *(["--alone"] if asked.alone else []),
        *(["--endpoint-type", asked.endpoint_type] if asked.endpoint_type else []), "--transport", asked.transport,
        *(["--session"] if asked.session else []), *(["--backend"] if asked.backend else []),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    if done.returncode:
        raise SystemExit(f"valgrind ended with {done.returncode}: {done.stderr[-2000:]}")
    found = []
    for number in range(len(names)):
        few, many = (counted(directory / f"callgrind.out.{LOADS * number + place}") for place in (LOADS - 1, LOADS))
        per_event = (many - few) / (asked.streams * (asked.events - asked.events // 4))
        found.append((per_event, many / asked.streams - per_event * asked.events))
    return found


def write_counts() -> None:
    """Callgrind writes a file of what it counted since the last one; it is asked while instructions run."""
    asked = subprocess.Popen(
        ["vgdb", f"--pid={os.getpid()}", "dump"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while asked.poll() is None:
        time.sleep(0.001)


def counted(out: Path) -> int:
    total = re.search(r"^totals: (\d+)", out.read_text(), re.MULTILINE)
    if total is None or int(total[1]) == 0:
        raise SystemExit(f"nothing was counted: no function is called {COUNTED}")
    return int(total[1])


def print_functions(out: Path) -> None:
    """Without calls that have not returned (``calls=0``): callgrind_annotate takes what they cost for their callers' own."""
    out.write_text(re.sub(r"^calls=0 .*\n.*\n", "", out.read_text(), flags=re.MULTILINE))
    subprocess.run(["callgrind_annotate", "--auto=no", out], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--events", type=int, default=64)
    parser.add_argument("--coalesce", type=int, default=1, help="events in a read; divides a quarter of --events")
    parser.add_argument("--plain", action="store_true", help="--events counts whole answers on each connection")
    parser.add_argument("--alone", action="store_true", help="each read is a batch of its own")
    parser.add_argument(
        "--endpoint-type", choices=[*ENDPOINTS, "all"], help="events as the simulated engine writes them"
    )
    parser.add_argument("--transport", choices=["http1", "http2"], default="http1")
    parser.add_argument("--session", action="store_true", help="each request has a header that names its session")
    parser.add_argument("--backend", action="store_true", help="a header of each answer is noted")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    session = SessionIdentity(headers=(("X-Session-ID", "{session}"),) if asked.session else ())
    several = asked.endpoint_type == "all"
    names = [each.name for each in ENDPOINTS.values() if each.tokens] if several else [asked.endpoint_type]
    if asked.inside is not None:
        for name in names:
            for number, events in enumerate((asked.events // 4, asked.events // 4, asked.events)):
                directory = asked.inside / f"{name}-{number}"
                directory.mkdir()
                http2 = asked.transport == "http2" and not (name and ENDPOINTS[name].websocket)
                backend = b"server" if asked.backend else None
                load(
                    asked.streams,
                    events,
                    asked.coalesce,
                    asked.plain,
                    asked.alone,
                    name,
                    http2,
                    directory,
                    session,
                    backend,
                )
                write_counts()
        return
    if asked.plain and asked.transport == "http2":
        parser.error("--plain is of HTTP/1.1")
    if asked.events % 4 or asked.events // 4 % asked.coalesce:
        parser.error(f"--coalesce {asked.coalesce} does not divide a quarter of --events {asked.events}")
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        found = slopes(asked, names, Path(parent))
        unit, rest = ("whole answer", "connection") if asked.plain else ("event", "request")
        for name, (per_event, besides) in zip(names, found, strict=True):
            ratio = f"   {per_event / found[0][0]:5.2f} of {names[0]}" if several else ""
            line = f"instructions per {unit} {per_event:9.1f}   per {rest} besides {besides:9.1f}{ratio}   {name or ''}"
            print(line.rstrip())
        if asked.profile:
            print_functions(Path(parent) / f"callgrind.out.{LOADS * len(names)}")


if __name__ == "__main__":
    main()
