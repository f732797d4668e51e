"""What failed responses said is kept: the first distinct texts, counted, bounded, of the measured phase."""

from __future__ import annotations

from pathlib import Path

import pytest
from ext.test_ext_exchange import DONE, ERROR_BODY, HEAD, STREAM, USAGE, Bench, chunk, delta, plain

from fastllmload.records.layout import ERROR_NAMES

HTTP_STATUS, EVENT, BAD_EVENT = (ERROR_NAMES.index(name) for name in ("http_status", "event", "bad_event"))
FINISH_REASON = ERROR_NAMES.index("finish_reason")
UNEXPECTED = ERROR_NAMES.index("unexpected_content_type")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def ask(bench: Bench, answer: bytes) -> None:
    bench.conversation.open(1)
    bench.conversation.feed(answer, 5)
    assert bench.conversation.ended


def taken(bench: Bench) -> list[tuple[int, int, bytes, int]]:
    return bench.protocol.error_texts.taken()


def test_each_kind_of_failure_is_kept_in_its_own_words(bench: Bench) -> None:
    error_event = b'{"error":{"message":"CUDA out of memory"}}'
    for answer in (
        plain(b"503 Busy", b"no capacity", b"text/plain"),
        plain(b"200 OK", ERROR_BODY),
        plain(b"200 OK", b"<html>login</html>", b"text/html"),
        HEAD + chunk(delta("a")) + chunk(b"data: %s\n\n" % error_event) + b"0\r\n\r\n",
        HEAD + chunk(b"data: {nope\n\n") + chunk(DONE) + b"0\r\n\r\n",
    ):
        ask(bench, answer)
    assert taken(bench) == [
        (503, HTTP_STATUS, b"no capacity", 1),
        (200, EVENT, ERROR_BODY, 1),
        (200, UNEXPECTED, b"<html>login</html>", 1),
        (200, EVENT, error_event, 1),
        (200, BAD_EVENT, b"{nope", 1),
    ]


def test_a_request_counts_once_and_equal_texts_together(bench: Bench) -> None:
    twice = chunk(b'data: {"error":{"message":"x"}}\n\n' * 2) + chunk(b"data: {bad\n\n")
    for _ in range(3):
        ask(bench, HEAD + twice + b"0\r\n\r\n")
    assert taken(bench) == [(200, EVENT, b'{"error":{"message":"x"}}', 3)]
    assert bench.protocol.error_texts.versions == 1


def test_an_unusual_finish_reason_is_kept_as_text(bench: Bench) -> None:
    """Every event has an id of its own, so the word alone counts them together; what cannot be read is kept whole."""
    whole = b'{"id":"%d","choices":[{"message":{"content":"hi"},"finish_reason":"abort"}]}'
    escaped = b'{"choices":[{"delta":{"content":"hi"},"finish\\u005freason":"abort"}]}'
    abort = HEAD + chunk(delta("a") + delta("", "abort")) + chunk(USAGE + DONE) + b"0\r\n\r\n"
    for answer in (
        abort,
        plain(b"200 OK", whole % 1),
        plain(b"200 OK", whole % 2),
        HEAD + chunk(b"data: %s\n\n" % escaped + DONE) + b"0\r\n\r\n",
        HEAD + chunk(delta("a", "error") + b'data: {"error":{"message":"x"}}\n\n') + b"0\r\n\r\n",
        HEAD + chunk(delta("a", "null") + delta("b", "stop") + DONE) + b"0\r\n\r\n",
    ):
        ask(bench, answer)
    assert taken(bench) == [
        (200, FINISH_REASON, b"finish_reason: abort", 3),
        (200, FINISH_REASON, escaped, 1),
        (200, EVENT, b'{"error":{"message":"x"}}', 1),
    ]


def test_good_answers_and_failures_without_words_leave_nothing(bench: Bench) -> None:
    ask(bench, STREAM)
    ask(bench, plain(b"500 Oops", b""))
    assert taken(bench) == []


def test_a_text_of_its_own_for_each_request_takes_no_more_memory(bench: Bench) -> None:
    for number in range(100):
        ask(bench, plain(b"500 Oops", b"%03d" % number + b"x" * 200_000, b"text/plain"))
    texts = taken(bench)
    assert len(texts) == 32 and all(len(text) == 4096 for _, _, text, _ in texts)
    assert bench.protocol.error_texts.left_out == 68
