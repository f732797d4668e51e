"""A server that answers each request as the hash of its number says, well or badly, and keeps a log of its own.

`faulty_server.py LOG` prints its port and writes the log as .npy when its input ends: per request the action, when it
was read whole, and when the last byte of its answer was handed to the kernel (CLOCK_MONOTONIC ns; 0: never).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time

import numpy as np
import uvloop

LOG = np.dtype([("number", "<u4"), ("action", "u1"), ("t_read", "<i8"), ("t_sent", "<i8")])
LATE_S = 0.8
SHARES = {  # of 10,000 requests
    "late": 10, "silent": 10, "close": 300, "reset": 300, "busy": 300, "limited": 300, "garbage": 300,
    "close_in_body": 300, "reset_in_body": 300, "no_end": 300, "cut": 300, "cut_reset": 300, "error_event": 300,
    "ok_and_close": 300, "stream": 3000,
}  # fmt: skip
ACTIONS = (*SHARES, "whole")
DEALT = np.repeat(np.arange(len(ACTIONS), dtype=np.uint8), [*SHARES.values(), 10_000 - sum(SHARES.values())]).tolist()

ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
JSON = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
WHOLE = JSON % (b"200 OK", len(ANSWER), ANSWER)
BUSY = JSON % (b"500 Busy", 2, b"{}")
LIMITED = JSON % (b"429 Slower", 2, b"{}")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(finish: bytes) -> bytes:
    return chunk(b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":%s}]}\n\n' % finish)


BEGUN = HEAD + token(b"null")
FINISHED = BEGUN + token(b'"stop"')


class Served(asyncio.Protocol):
    """One connection; requests come one after the other."""

    entries: list[tuple[int, int, int, int]]
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        length = int(head.rpartition(b"Content-Length: ")[2].partition(b"\r\n")[0]) if found else 1
        if len(body) < length:
            return
        self.data = b""
        number = int(head.partition(b"X-Fastllmload-Request: ")[2].partition(b"\r\n")[0].rpartition(b"-")[2])
        action = DEALT[number * 2654435761 % 2**32 % 10_000]
        at = len(self.entries)
        self.entries.append((number, action, time.monotonic_ns(), 0))
        name = ACTIONS[action]
        if name == "silent":
            return
        if name == "late":
            asyncio.get_running_loop().call_later(LATE_S, self.say, at, WHOLE)
            return
        self.say(at, SAID[name])
        if name in ("reset", "reset_in_body", "cut_reset"):
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        elif name in ("close", "garbage", "close_in_body", "cut", "ok_and_close"):
            self.transport.close()

    def say(self, at: int, text: bytes) -> None:
        if text and not self.transport.is_closing():
            self.transport.write(text)
            self.entries[at] = (*self.entries[at][:3], time.monotonic_ns())


SAID = {
    "close": b"", "reset": b"", "busy": BUSY, "limited": LIMITED, "garbage": b"\0garbage\r\n\r\n", "close_in_body": BEGUN,
    "reset_in_body": BEGUN, "no_end": BEGUN + END, "cut": FINISHED, "cut_reset": FINISHED,
    "error_event": BEGUN + chunk(b'data: {"error":{"message":"no"}}\n\n') + END, "ok_and_close": WHOLE,
    "stream": FINISHED + chunk(b"data: [DONE]\n\n") + END, "whole": WHOLE,
}  # fmt: skip


async def serve(log: str) -> None:
    Served.entries = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Served, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    over: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sys.stdin, lambda: over.done() or over.set_result(None))
    await over
    np.save(log, np.array(Served.entries, LOG))


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
