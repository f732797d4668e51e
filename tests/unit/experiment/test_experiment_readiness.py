"""Readiness of a target after a hook: queried with the run's TLS settings; a gateway's error is not an answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from refusals import raises_code

from fastllmload.experiment.preparation.hooks import NOT_YET, await_answer, unreachable_reason
from fastllmload.settings import RunSettings, Target

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def server(*statuses: int) -> Iterator[tuple[RunSettings, str]]:
    """A target that answers with *statuses* in turn, the last one for ever."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = left.pop(0) if len(left) > 1 else left[0]
            if not status:
                self.wfile.write(b"no HTTP at all\r\n\r\n")
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """A test's output is not a log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            url = f"http://127.0.0.1:{found.server_address[1]}"
            yield RunSettings(target=Target(urls=(url,))), url
        finally:
            found.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [200, 401, 404, 500])
def test_any_http_response_is_an_answer(status: int) -> None:
    with server(status) as (settings, url):
        assert unreachable_reason(settings, (url,), None, NOT_YET) is None


@pytest.mark.parametrize("status", NOT_YET)
def test_a_gateway_without_its_server_is_not_ready_but_not_gone(status: int) -> None:
    with server(status) as (settings, url):
        assert str(status) in (unreachable_reason(settings, (url,), None, NOT_YET) or "")
        assert unreachable_reason(settings, (url,), None) is None


def test_what_speaks_something_else_does_not_answer() -> None:
    with server(0) as (settings, url):
        assert "properly" in (unreachable_reason(settings, (url,), None) or "")


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run itself goes to the target directly."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with server(200) as (settings, url):
        assert unreachable_reason(settings, (url,), None) is None


def test_the_wait_ends_when_the_model_is_loaded() -> None:
    with server(503, 503, 200) as (settings, url):
        assert await_answer(lambda: unreachable_reason(settings, (url,), None, NOT_YET), print) >= 0.5


def test_a_wait_without_result_says_why() -> None:
    with raises_code("target-not-ready", "within 0 s", "answers 503"):
        await_answer(lambda: "it answers 503", print, most_s=0.0)
