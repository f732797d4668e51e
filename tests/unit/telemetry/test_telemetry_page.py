"""Fetching a page: whole answers come back whole, and no peer holds the sampler beyond its deadline or its bound."""

import gzip
import threading

import pytest
from metrics_peer import answering, peer, request, response

from fastllmload.telemetry import http_page as pages
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.sensors.sensor import SensorError


def got(behave, timeout_s=5.0):
    with peer(behave) as server:
        page = HttpPage(server.spec, timeout_s)
        try:
            return page.get()
        finally:
            page.close()


def failure(behave, timeout_s=5.0):
    with pytest.raises(SensorError) as raised:
        got(behave, timeout_s)
    return str(raised.value)


def test_one_connection_serves_many_scrapes():
    with peer(answering(response(b"up 1\n"))) as server:
        page = HttpPage(server.spec)
        assert [page.get().body for _ in range(3)] == [b"up 1\n"] * 3
        page.close()
        assert server.connections == 1


def test_a_connection_that_the_server_closed_is_made_again():
    def once(connection):
        request(connection)
        connection.sendall(response(b"up 1\n"))

    with peer(once) as server:
        page = HttpPage(server.spec)
        assert [page.get().body for _ in range(3)] == [b"up 1\n"] * 3
        page.close()
        assert server.connections == 3


def test_chunked_and_until_close_bodies_are_whole():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nup \r\n2\r\n1\n\r\n0\r\n\r\n"
    assert got(answering(chunked)).body == b"up 1\n"

    def until_close(connection):
        request(connection)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nup 1\n")

    assert got(until_close).body == b"up 1\n"


def packed(content, begin=None, end=None):
    body = gzip.compress(content)[begin:end]
    return answering(response(body, "200 OK", "Content-Encoding: gzip"))


def test_a_page_that_was_compressed_all_the_same_is_expanded():
    answer = got(packed(b"up 1\n" * 1000))
    assert answer.body == b"up 1\n" * 1000 and "content-encoding" not in answer.headers
    assert "in the middle" in failure(packed(b"up 1\n", end=-9))
    assert "not the gzip" in failure(packed(b"up 1\n", begin=1))
    assert "larger than 8 MB" in failure(packed(bytes((8 << 20) + 1)))


def test_status_and_headers_are_reported():
    answer = got(answering(response(b"no", "503 Service Unavailable", "Server: one")))
    assert (answer.status, answer.headers["server"], answer.body) == (503, "one", b"no")


def test_a_body_without_end_is_cut_at_the_bound(monkeypatch):
    monkeypatch.setattr(pages, "LARGEST_PAGE", 1 << 20)

    def endless(connection):
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    assert "larger than 1 MB" in failure(endless)


def test_a_head_without_end_is_cut_at_the_bound():
    def endless(connection):
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X: " + b"y" * 1000 + b"\r\n")

    assert failure(endless).split()[-1] in ("end", "HTTP")


def test_a_byte_now_and_then_does_not_stretch_the_deadline():
    stop = threading.Event()

    def dribble(connection):
        request(connection)
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000:
            connection.sendall(bytes([byte]))
            if stop.wait(0.02):
                return

    with peer(dribble) as server:
        page = HttpPage(server.spec, 0.2)
        with pytest.raises(SensorError, match="within 0.2 s"):
            page.get()
        stop.set()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x00\x01 garbage\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nup", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nContent-", "in the middle"),
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
    ],
)
def test_half_and_wrong_answers_have_a_sentence(data, sentence):
    def behave(connection):
        request(connection)
        connection.sendall(data)

    assert sentence in failure(behave)


def test_a_missing_server_has_a_sentence():
    with peer(answering(b"")) as server:
        spec = server.spec
    with pytest.raises(SensorError, match="connection refused"):
        HttpPage(spec).get()


def test_a_failed_scrape_leaves_the_next_one_whole():
    answers = [b"garbage\r\n\r\n", response(b"up 1\n")]

    def behave(connection):
        request(connection)
        connection.sendall(answers.pop(0))

    with peer(behave) as server:
        page = HttpPage(server.spec)
        with pytest.raises(SensorError):
            page.get()
        assert page.get().body == b"up 1\n"
        page.close()
