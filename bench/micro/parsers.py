"""Nanoseconds per head, per chunk and per event of the compiled parsers, next to httptools on the same bytes.

Run it as ``python bench/micro/parsers.py``. Each figure is the best of several rounds over one fixed input;
what counts is the ratio within one run, not the absolute number.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import httptools

from fastllmload._ext.events import ndjson, sse
from fastllmload._ext.http import response as http1

ROUNDS = 15
EVENTS = 2000
HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Tue, 04 Aug 2009 07:59:32 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"x-request-id: abcdef0123456789\r\ntransfer-encoding: chunked\r\n\r\n"
)
LINE = (
    b'{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}'
).ljust(250)
EVENT = b"data: " + LINE + b"\n\n"
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)


class Deaf:
    """Callbacks of httptools that do nothing."""

    def on_header(self, name: bytes, value: bytes) -> None:
        pass

    def on_body(self, body: bytes) -> None:
        pass


def best_ns(work: Callable[[], object], units: int) -> float:
    """Least time per unit over ROUNDS, ns."""
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        work()
        least = min(least, (time.perf_counter_ns() - start) / units)
    return least


def oracle(data: bytes, times: int) -> None:
    callbacks = Deaf()
    for _ in range(times):
        httptools.HttpResponseParser(callbacks).feed_data(data)


def heads(reader: http1.HeadReader, times: int) -> None:
    for _ in range(times):
        reader.read_bytes(HEAD)


def split_reads(parser: sse.SseParser, pieces: list[bytes]) -> None:
    for piece in pieces:
        parser.count(piece)


def main() -> None:
    chunks = CHUNK * EVENTS
    events = EVENT * EVENTS
    halves = [EVENT[:100], EVENT[100:]] * EVENTS
    reader = http1.HeadReader()
    framer = http1.BodyFramer("chunked")
    assert framer.count(CHUNK) == len(EVENT) and sse.SseParser().count(events) == EVENTS
    head = best_ns(lambda: heads(reader, EVENTS), EVENTS)
    head_oracle = best_ns(lambda: oracle(HEAD, EVENTS), EVENTS)
    body = best_ns(lambda: framer.count(chunks), EVENTS)
    body_oracle = best_ns(lambda: oracle(HEAD + chunks, 1), EVENTS)
    rows = [
        ("head, 6 fields", head, head_oracle),
        (f"chunk of {len(EVENT)} bytes", body, body_oracle),
        (f"event of {len(EVENT)} bytes", best_ns(lambda: sse.SseParser().count(events), EVENTS), None),
        ("event split over two reads", best_ns(lambda: split_reads(sse.SseParser(), halves), EVENTS), None),
        (
            "JSON line, as Python objects",
            best_ns(lambda: ndjson.NdjsonParser().feed((LINE + b"\n") * EVENTS), EVENTS),
            None,
        ),
    ]
    print(f"{'what':32}{'ns':>10}{'httptools ns':>14}{'ratio':>8}")
    for name, ns, other in rows:
        compared = f"{other:14.1f}{ns / other:8.2f}" if other is not None else ""
        print(f"{name:32}{ns:10.1f}{compared}")


if __name__ == "__main__":
    main()
