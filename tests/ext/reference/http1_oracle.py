"""httptools as the judge of one response, and bodies fed in pieces."""

from __future__ import annotations

from itertools import pairwise

import httptools
from ext.reference.http1_reference import ReferenceFramer

from fastllmload._ext.http.response import BodyFramer


class Oracle:
    """httptools fed whole: accepted or not, and what it says."""

    def __init__(self, data: bytes) -> None:
        self.body = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = self.head_complete = self.keep_alive = False
        self.accepted = True
        self.parser = httptools.HttpResponseParser(self)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            self.accepted = False
            self.reason = str(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.head_complete = True
        self.keep_alive = self.parser.should_keep_alive()  # forgotten once the message is complete

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


def frame(framer: BodyFramer | ReferenceFramer, reads: list[bytes]) -> tuple[bytes, str, bytes]:
    """(payload, last state, unused bytes) after all reads; the framer is not fed after its end."""
    payload, state, unused = b"", "need", b""
    for i, data in enumerate(reads):
        spans, state, unused = framer.feed(data)
        payload += b"".join(spans)
        if state != "need":
            return payload, state, unused + b"".join(reads[i + 1 :])
    return payload, state, unused


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


def drip(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]
