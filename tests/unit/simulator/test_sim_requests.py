"""Hostile and strange request bytes: never a crash, and what cannot be framed is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim_client import Client, get, request

CORPORA = Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[4] / "shared" / "corpora"))
REQUESTS = CORPORA / "http" / "test" / "request"


def alive(port: int) -> bool:
    with Client(port) as client:
        return client.ask(get("/health")).status == 200


def outcome(port: int, data: bytes) -> list[int]:
    """Statuses of all replies until the simulator closes, after a health request that ends the connection."""
    with Client(port) as client:
        try:
            client.send(data)
            client.socket.shutdown(1)
            raw = client.rest()
        except OSError:  # reset while we were still sending
            raw = client.buffer
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nName : x\r\n\r\n",
        b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nName: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nName: a\rb\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1 \r\n\r\n",
        b"GET / FTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\nab\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    ],
)
def test_malformed_requests_are_answered_400_and_closed(quick: int, data: bytes) -> None:
    assert outcome(quick, data) == [400]
    assert alive(quick)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\n" + b"Name: value\r\n" * 6000, 431),
    ],
)
def test_requests_above_the_limits(quick: int, data: bytes, status: int) -> None:
    assert outcome(quick, data) == [status]


def test_the_reason_reaches_a_client_that_is_still_sending(quick: int) -> None:
    with Client(quick) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 3_000_000)
        assert client.response().status == 413


@pytest.mark.parametrize("data", [get("/health").replace(b"\r\n", b"\n"), b"\r\n\r\n" + get("/health")])
def test_bare_line_feeds_and_leading_empty_lines_are_tolerated(quick: int, data: bytes) -> None:
    assert outcome(quick, data) == [200]


def corpus() -> Iterator[tuple[str, bytes, bool]]:
    """(name, bytes, the corpus calls it an error) of every request block of llhttp's Markdown tests."""
    for path in sorted(REQUESTS.glob("*.md")):
        text = path.read_text()
        for number, block in enumerate(re.finditer(r"```http\n(.*?)\n?```\s*\n+```log\n(.*?)```", text, re.DOTALL)):
            raw = block[1].replace("\\\n", "")
            raw = raw.replace("\n", "\r\n") if "\\r" not in raw else raw.replace("\n", "")
            data = raw.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").replace("\\f", "\f")
            data = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), data)
            yield f"{path.stem}-{number}", data.encode("latin-1", "replace"), "error code" in block[2]


def test_the_corpus_of_llhttp_does_no_harm(quick: int) -> None:
    """Each request, strange or plain, whole and cut in two: an answer or a close, and the simulator lives on."""
    if not REQUESTS.is_dir():
        pytest.skip(f"the HTTP corpus is not at {REQUESTS}; FASTLLMLOAD_CORPORA names another place")
    cases = list(corpus())
    assert len(cases) > 100
    for name, data, _ in cases:
        for cut in (len(data), len(data) // 2):
            with Client(quick) as client:
                try:
                    client.send(data[:cut])
                    client.send(data[cut:])
                    client.socket.shutdown(1)
                    raw = client.rest()
                except OSError:  # reset while we were still sending
                    continue
            assert raw == b"" or raw.startswith(b"HTTP/1.1 "), (name, raw[:80])
    assert alive(quick)


def test_what_the_corpus_calls_an_error_is_never_served(quick: int) -> None:
    """A request that llhttp refuses in its head gets no 2xx from us."""
    if not REQUESTS.is_dir():
        pytest.skip(f"the HTTP corpus is not at {REQUESTS}; FASTLLMLOAD_CORPORA names another place")
    served = {name for name, data, error in corpus() if error for status in outcome(quick, data) if status < 300}
    assert served == set()


@given(st.binary(max_size=400))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_bytes_do_no_harm(quick: int, data: bytes) -> None:
    assert all(100 <= status < 600 for status in outcome(quick, data))
    assert alive(quick)


@given(st.integers(0, 300), st.binary(min_size=1, max_size=3))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_damage_to_a_request_does_no_harm(quick: int, at: int, junk: bytes) -> None:
    data = request(max_tokens=1)
    outcome(quick, data[:at] + junk + data[at + len(junk) :])
    assert alive(quick)
