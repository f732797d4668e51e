"""One exchange, fed by hand: rows, stamps and statuses are what spec/metrics 3.1 to 3.5 say, for any split of the
bytes.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from ext.dialects import CHAT, DIALECTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload._ext.record.recorder import Recorder
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, STATUS_NAMES, TOKENS_NONE
from fastllmload.records.shared_memory import SharedWords

MORE, REUSE, CLOSE = 0, 1, 2
KERNEL, COALESCED = 1, 2
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MS = 1_000_000


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def delta(text: str, finish: str | None = None) -> bytes:
    reason = "null" if finish is None else f'"{finish}"'
    return (
        'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        f'"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{reason}}}]}}\n\n'
    ).encode()


ROLE = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
)
USAGE = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM = HEAD + b"".join(map(chunk, (ROLE, delta("a"), delta(" "), delta("c", "stop"), USAGE, DONE))) + b"0\r\n\r\n"


class Bench:
    """A protocol on files in *directory*, and what it wrote."""

    def __init__(self, directory: Path, max_event: int = 1 << 20, strict: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.shared = SharedWords.create()
        self.words = self.shared.words
        self.recorder = Recorder(directory, text=True)
        self.protocol = Protocol(
            self.recorder, Classifier(DIALECTS[CHAT], strict), self.words, max_event, 4 * max_event
        )
        self.conversation = Conversation(self.protocol)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        self.recorder.close()
        return np.load(self.directory / "requests.npy"), np.load(self.directory / "tokens.npy")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def status(row: np.void) -> tuple[str, str]:
    return STATUS_NAMES[row["status"]], ERROR_NAMES[row["error"]]


def test_stream_in_single_reads(bench: Bench) -> None:
    """Each event its own read: every stamp exact, t_any = t_first at the first content, usage and finish kept."""
    bench.conversation.open(1 * MS)
    pieces = [HEAD, *map(chunk, (ROLE, delta("a"), delta(" "), delta("c", "stop"), USAGE, DONE)), b"0\r\n\r\n"]
    verdicts = [bench.conversation.feed(piece, (10 + i) * MS) for i, piece in enumerate(pieces)]
    assert verdicts == [MORE] * 7 + [REUSE]
    rows, events = bench.rows()
    (row,) = rows
    assert status(row) == ("ok", "none")
    assert [row[name] // MS for name in ("t_headers", "t_any", "t_first", "t_last", "t_end")] == [10, 12, 12, 14, 16]
    assert (row["prompt_tokens"], row["completion_tokens"], row["content_events"], row["events"]) == (7, 3, 3, 6)
    assert list(events["t_ns"] // MS) == [11, 12, 13, 14, 15, 16]
    assert set(events["stamp"]) == {KERNEL}
    assert row["bytes_received"] == sum(map(len, pieces[:7]))


def test_everything_in_one_read_is_coalesced(bench: Bench) -> None:
    """Only the last event of a read has its exact time; the others are upper bounds with the submission as floor."""
    bench.conversation.open(1 * MS)
    assert bench.conversation.feed(STREAM, 9 * MS) == REUSE
    rows, events = bench.rows()
    assert status(rows[0]) == ("ok", "none")
    assert [stamp & 3 for stamp in events["stamp"]] == [COALESCED] * 5 + [KERNEL]
    assert [stamp >> 2 for stamp in events["stamp"]] == [0, 1, 1, 1, 1, 1]
    assert list(events["bracket_ns"]) == [8 * MS] * 5 + [0]
    assert bench.words[k.W_COALESCED] == 5


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=12, unique=True))
def test_any_split_gives_the_same_row(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    """Counts, status and text do not depend on how the bytes are cut; times never run backwards."""
    bench = Bench(tmp_path_factory.mktemp("split"))
    bench.conversation.open(1)
    edges = [0, *sorted(cuts), len(STREAM)]
    verdicts = [
        bench.conversation.feed(STREAM[a:b], 1000 * (i + 1)) for i, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    assert verdicts[-1] == REUSE and set(verdicts[:-1]) <= {MORE}
    rows, events = bench.rows()
    row = rows[0]
    assert status(row) == ("ok", "none")
    assert (row["content_events"], row["events"], row["completion_tokens"], row["text_bytes"]) == (3, 6, 3, 3)
    assert 1 <= row["t_headers"] <= row["t_any"] <= row["t_first"] <= row["t_last"] <= row["t_end"]
    assert list(events["kind"]) == [1, 3, 3, 3, 7, 10]
    assert (np.diff(events["t_ns"]) >= 0).all()


def test_whitespace_before_the_first_token_is_not_content(bench: Bench) -> None:
    """Leading whitespace sets t_any, not t_first, and is counted apart."""
    bench.conversation.open(1 * MS)
    for i, piece in enumerate(
        [HEAD, chunk(delta("\\n")), chunk(delta("a")), chunk(delta("", "stop")), chunk(DONE), b"0\r\n\r\n"]
    ):
        bench.conversation.feed(piece, (10 + i) * MS)
    rows, events = bench.rows()
    row = rows[0]
    assert (row["t_any"] // MS, row["t_first"] // MS, row["leading_events"], row["content_events"]) == (11, 12, 1, 1)
    assert list(events["kind"]) == [2, 3, 8, 10]


def test_done_ends_the_request_and_the_message_end_frees_the_connection(bench: Bench) -> None:
    """t_end is [DONE]; the connection is reusable only when the last chunk has come."""
    bench.conversation.open(1 * MS)
    assert bench.conversation.feed(HEAD + chunk(delta("a")) + chunk(DONE), 5 * MS) == MORE
    assert bench.conversation.ended
    assert bench.conversation.feed(b"0\r\n\r\n", 9 * MS) == REUSE
    rows, _ = bench.rows()
    assert rows[0]["t_end"] == 5 * MS


def plain(status_line: bytes, body: bytes, content_type: bytes = b"application/json", extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s" % (
        status_line,
        content_type,
        extra,
        len(body),
        body,
    )


COMPLETE = (
    b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},'
    b'"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}'
)
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
SIZED = UNTIL_CLOSE.replace(b"\r\n\r\n", b"\r\nContent-Length: 9999\r\n\r\n")
ERROR_BODY = b'{"error":{"message":"no","type":"x","code":500}}'


@pytest.mark.parametrize(
    ("data", "expected", "verdict"),
    [
        (plain(b"200 OK", COMPLETE), ("ok", "none"), REUSE),
        (plain(b"200 OK", b""), ("empty", "none"), REUSE),
        (plain(b"200 OK", ERROR_BODY), ("stream_error", "event"), REUSE),
        (plain(b"200 OK", b"<html></html>", b"text/html"), ("protocol_error", "unexpected_content_type"), REUSE),
        (plain(b"200 OK", b"\x1f\x8b", extra=b"Content-Encoding: gzip\r\n"), ("protocol_error", "encoded_body"), CLOSE),
        (plain(b"429 Too Many", ERROR_BODY, extra=b"Retry-After: 3\r\n"), ("rate_limited", "http_status"), REUSE),
        (plain(b"503 Busy", ERROR_BODY), ("http_error", "http_status"), REUSE),
        (plain(b"500 Oops", b"x" * 200_000, b"text/plain"), ("http_error", "http_status"), REUSE),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + plain(b"200 OK", COMPLETE), ("ok", "none"), REUSE),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ("empty", "none"), REUSE),
        (plain(b"206 Partial Content", COMPLETE), ("http_error", "http_status"), REUSE),
        (STREAM.replace(b"200 OK", b"206 Partial Content", 1), ("http_error", "http_status"), REUSE),
        (b"garbage\r\n\r\n", ("protocol_error", "bad_head"), CLOSE),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, ("protocol_error", "head_too_large"), CLOSE),
        (HEAD + b"zz\r\n", ("protocol_error", "bad_chunk"), CLOSE),
        (HEAD + chunk(b"data: {nope\n\n") + chunk(DONE) + b"0\r\n\r\n", ("protocol_error", "bad_event"), REUSE),
        (
            HEAD + chunk(b"data:\n\n") + chunk(delta("a", "stop")) + chunk(b"data: \n\n" + DONE) + b"0\r\n\r\n",
            ("ok", "none"),
            REUSE,
        ),
        (HEAD + chunk(b"data:\n\n") + b"0\r\n\r\n", ("truncated", "no_done"), REUSE),
        (
            HEAD + chunk(delta("a")) + chunk(b'data: {"error":{"message":"x"}}\n\n') + b"0\r\n\r\n",
            ("stream_error", "event"),
            REUSE,
        ),
        (
            HEAD + chunk(delta("a")) + chunk(b'event: error\ndata: {"message":"x"}\n\n') + b"0\r\n\r\n",
            ("stream_error", "event"),
            REUSE,
        ),
        (
            HEAD + chunk(delta("a")) + chunk(b"event: error\ndata: out of memory\n\n" + DONE) + b"0\r\n\r\n",
            ("stream_error", "event"),
            REUSE,
        ),
        (HEAD + chunk(b'event: ping\ndata: {"type": "ping"}\n\n') + STREAM[len(HEAD) :], ("ok", "none"), REUSE),
        (
            HEAD + chunk(b'event: pings\ndata: {"type": "ping"}\n\n') + STREAM[len(HEAD) :],
            ("protocol_error", "bad_event"),
            REUSE,
        ),
        (HEAD + chunk(delta("a")) + b"0\r\n\r\n", ("truncated", "no_done"), REUSE),
        (HEAD + chunk(delta("", "stop")) + chunk(DONE) + b"0\r\n\r\n", ("empty", "none"), REUSE),
        (HEAD + chunk(delta("a", "content_filter")) + chunk(DONE) + b"0\r\n\r\n", ("refused", "none"), REUSE),
        # vLLM and SGLang end what their engine has given up with abort and [DONE], as if it were whole
        (HEAD + chunk(delta("a", "abort")) + chunk(DONE) + b"0\r\n\r\n", ("stream_error", "finish_reason"), REUSE),
        (HEAD + chunk(delta("a") + delta("", "error")) + b"0\r\n\r\n", ("stream_error", "finish_reason"), REUSE),
        (HEAD + chunk(delta("a", "null") + delta("", "stop") + DONE) + b"0\r\n\r\n", ("ok", "none"), REUSE),
        (
            HEAD + chunk(delta("a", "abort") + b'data: {"error":{"message":"x"}}\n\n') + b"0\r\n\r\n",
            ("stream_error", "event"),
            REUSE,
        ),
        *(
            (HEAD + chunk(delta("a", word)) + chunk(DONE) + b"0\r\n\r\n", ("ok", "none"), REUSE)
            for word in ("eos", "eos_token", "end_turn", "MAX_TOKENS", "stop_sequence", "wandered")
        ),
        *(
            (HEAD + chunk(delta("a", word)) + chunk(DONE) + b"0\r\n\r\n", ("stream_error", "finish_reason"), REUSE)
            for word in ("insufficient_system_resource", "aborted", "MALFORMED_FUNCTION_CALL")
        ),
        (HEAD + chunk(delta("a", "SAFETY")) + chunk(DONE) + b"0\r\n\r\n", ("refused", "none"), REUSE),
        (plain(b"200 OK", COMPLETE.replace(b'"length"', b'"wandered"')), ("ok", "none"), REUSE),
        (plain(b"200 OK", COMPLETE.replace(b'"length"', b'"abort"')), ("stream_error", "finish_reason"), REUSE),
        (STREAM + b"HTTP/1.1 200 OK\r\n", ("ok", "none"), CLOSE),
        (STREAM.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), ("ok", "none"), CLOSE),
    ],
)
def test_each_ending_has_its_status(bench: Bench, data: bytes, expected: tuple[str, str], verdict: int) -> None:
    bench.conversation.open(1)
    assert bench.conversation.feed(data, 5) == verdict
    assert bench.conversation.ended
    rows, _ = bench.rows()
    assert status(rows[0]) == expected


def test_an_event_above_the_limit_fails_and_memory_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_event=4096)
    bench.conversation.open(1)
    bench.conversation.feed(HEAD, 2)
    verdict = MORE
    for i in range(100):
        verdict = bench.conversation.feed(chunk(b"data: " + b"x" * 500), 3 + i)
        if verdict == CLOSE:
            break
    assert verdict == CLOSE
    rows, _ = bench.rows()
    assert status(rows[0]) == ("protocol_error", "event_too_large")


def test_a_failure_whose_body_does_not_end_is_that_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_event=100_000)
    bench.conversation.open(1)
    bench.conversation.feed(HEAD.replace(b"200 OK", b"500 Oops"), 2)
    more = [bench.conversation.feed(chunk(b"x" * 50_000), 3) for _ in range(8)]
    assert more == [MORE] * 7 + [CLOSE]
    rows, _ = bench.rows()
    assert (*status(rows[0]), rows[0]["http_status"]) == ("http_error", "http_status", 500)


@pytest.mark.parametrize("end", [b"zz\r\n", b"0\n\n", b"0\r\nnocolon\r\n\r\n"])
@pytest.mark.parametrize("step", [1, 100_000])
def test_broken_framing_after_done_does_not_fail_the_request(bench: Bench, end: bytes, step: int) -> None:
    """In the same read as [DONE] or in a later one."""
    bench.conversation.open(1)
    data = HEAD + chunk(delta("a", "stop")) + chunk(DONE) + end
    verdicts = [bench.conversation.feed(data[at : at + step], 5) for at in range(0, len(data), step)]
    assert CLOSE in verdicts
    rows, _ = bench.rows()
    assert status(rows[0]) == ("ok", "none")


def test_interim_responses_do_not_go_on_without_end(bench: Bench) -> None:
    bench.conversation.open(1)
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert bench.conversation.feed(hints * (60_000 // len(hints)), 2) == MORE
    assert bench.conversation.feed(hints * (10_000 // len(hints)), 3) == CLOSE
    rows, _ = bench.rows()
    assert status(rows[0]) == ("protocol_error", "head_too_large")


def test_a_final_head_follows_interim_responses_in_a_large_read(bench: Bench) -> None:
    """What follows the interim response in the same read is not part of the heads."""
    bench.conversation.open(1)
    body = COMPLETE.ljust(100_000)
    assert bench.conversation.feed(b"HTTP/1.1 100 Continue\r\n\r\n" + plain(b"200 OK", body), 2) == REUSE
    rows, _ = bench.rows()
    assert status(rows[0]) == ("ok", "none")


@pytest.mark.parametrize(
    ("fed", "reused", "error_number", "expected"),
    [
        (b"", False, 0, ("connection_error", "closed_before_response")),
        (b"", True, 0, ("connection_error", "reused_connection_lost")),
        (b"", True, 104, ("connection_error", "reused_connection_lost")),
        (HEAD + chunk(delta("a")), False, 104, ("connection_error", "reset")),
        (HEAD + chunk(delta("a")), False, 0, ("truncated", "closed_in_body")),
        # the finish_reason came, the message's own end did not: FIN and reset make no difference
        (HEAD + chunk(delta("a", "stop")), False, 0, ("ok", "cut_after_end")),
        (HEAD + chunk(delta("a", "stop")), False, 104, ("ok", "cut_after_end")),
        (HEAD + chunk(delta("a", "stop") + DONE), False, 104, ("ok", "none")),
        (HEAD + chunk(delta("", "stop")), False, 104, ("empty", "none")),
        (SIZED + delta("a", "stop"), False, 0, ("ok", "cut_after_end")),
        (SIZED + delta("a", "stop"), False, 104, ("ok", "cut_after_end")),
        (SIZED + delta("a"), False, 0, ("truncated", "closed_in_body")),
        (plain(b"200 OK", COMPLETE)[:-1], False, 0, ("truncated", "closed_in_body")),
        (HEAD + chunk(delta("a", "abort")), False, 104, ("stream_error", "finish_reason")),
        (UNTIL_CLOSE + delta("a", "stop"), False, 0, ("ok", "none")),
        (UNTIL_CLOSE + delta("a", "stop"), False, 104, ("ok", "cut_after_end")),
        (HEAD + chunk(delta("a", "abort")), False, 0, ("stream_error", "finish_reason")),
        (HEAD[:20], False, 0, ("connection_error", "closed_in_body")),
        (HEAD[:3], False, 0, ("connection_error", "closed_in_body")),
        (b"SSH-2.0-server\r\n", False, 0, ("protocol_error", "bad_head")),
        (b"\0", False, 0, ("protocol_error", "bad_head")),
        (b"HTTP/1.1 100 Continue\r\n\r\n", False, 0, ("connection_error", "closed_in_body")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + delta("a", "stop") + DONE[:-1],
            False,
            0,
            ("ok", "none"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + delta("a"),
            False,
            0,
            ("truncated", "no_done"),
        ),
    ],
)
def test_each_lost_connection_has_its_class(
    bench: Bench, fed: bytes, reused: bool, error_number: int, expected: tuple[str, str]
) -> None:
    bench.conversation.open(1, reused)
    bench.conversation.feed(fed, 5)
    if not bench.conversation.ended:
        assert bench.conversation.eof(9, error_number) == CLOSE
    rows, _ = bench.rows()
    assert status(rows[0]) == expected
    assert rows[0]["t_end"] >= 5 or fed == b""


def test_a_stamp_before_the_submission_is_moved_up_and_counted(bench: Bench) -> None:
    """On loopback the answer can be stamped before send() has returned: never a negative TTFT."""
    bench.conversation.open(100)
    bench.conversation.feed(STREAM, 40)
    rows, _ = bench.rows()
    assert rows[0]["t_first"] == 100 and rows[0]["flags"] & 32
    assert bench.words[k.W_CLAMPED] == 1


def test_bytes_on_an_idle_connection_close_it(bench: Bench) -> None:
    assert bench.conversation.feed(b"HTTP/1.1 408 Timeout\r\n\r\n", 1) == CLOSE


def test_events_of_one_segment_have_its_exact_time(bench: Bench) -> None:
    """Where the kernel got a read at once, every event of it came at the stamp: no bracket, no coalesced event."""
    bench.conversation.open(1 * MS)
    assert bench.conversation.feed(STREAM, 9 * MS, one_segment=True) == REUSE
    _, events = bench.rows()
    assert set(events["stamp"] & 3) == {KERNEL} and not events["bracket_ns"].any()
    assert bench.words[k.W_COALESCED] == 0


def test_a_bracket_begins_where_the_socket_was_known_to_be_empty(bench: Bench) -> None:
    """The lower end is what the transport knows, and never before the read before or the submission."""
    bench.conversation.open(1 * MS)
    bench.conversation.feed(HEAD + chunk(ROLE) + chunk(delta("a"))[:40], 9 * MS, low=2 * MS)
    rest = chunk(delta("a"))[40:] + chunk(delta("b"))
    bench.conversation.feed(rest + chunk(delta("c")), 20 * MS, low=17 * MS)
    bench.conversation.feed(chunk(delta("d")) + chunk(delta("e")), 30 * MS, low=4 * MS)
    bench.conversation.eof(31 * MS)
    _, events = bench.rows()
    assert list(events["t_ns"] // MS) == [9, 20, 20, 20, 30, 30]
    assert list(events["bracket_ns"] // MS) == [7, 3, 3, 0, 10, 0]  # the role event: more bytes came in its read


def test_an_event_that_ends_inside_its_read_is_not_exact(bench: Bench) -> None:
    """The last event of a read that ends with a part of the next one may have come in an earlier segment."""
    bench.conversation.open(1 * MS)
    bench.conversation.feed(HEAD + chunk(ROLE), 9 * MS)
    bench.conversation.feed(chunk(delta("a")) + chunk(delta("b"))[:50], 20 * MS, low=15 * MS)
    bench.conversation.feed(chunk(delta("b"))[50:], 30 * MS, low=25 * MS)
    bench.conversation.eof(31 * MS)
    _, events = bench.rows()
    assert list(events["stamp"] & 3) == [KERNEL, COALESCED, KERNEL]
    assert list(events["bracket_ns"] // MS) == [0, 5, 0]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=12, unique=True))
def test_offsets_do_not_depend_on_the_split(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    """Each event has the connection offset of the end of its data line, and the row those of its response."""
    bench = Bench(tmp_path_factory.mktemp("offsets"))
    for begin in (0, len(STREAM)):  # a second response on the same connection continues the count
        bench.conversation.open(1)
        edges = [0, *sorted(cuts), len(STREAM)]
        for i, (a, b) in enumerate(itertools.pairwise(edges)):
            bench.conversation.feed(STREAM[a:b], 1000 * (i + 1))
        assert bench.conversation.ended, begin
    rows, events = bench.rows()
    ends = [at + 1 for at in range(len(STREAM)) if STREAM[at : at + 2] == b"\n\n"]
    assert list(events["offset"]) == ends + [len(STREAM) + end for end in ends]
    assert list(rows["stream_begin"]) == [0, len(STREAM)]
    assert list(rows["head_end"]) == [len(HEAD), len(STREAM) + len(HEAD)]


def test_the_usage_of_an_answer_that_was_cut_after_its_end_is_kept(bench: Bench) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}\n\n'
    bench.conversation.open(1)
    bench.conversation.feed(HEAD + chunk(delta("a", "stop") + usage), 5)
    assert bench.conversation.eof(9, 104) == CLOSE
    (row,) = bench.rows()[0]
    assert status(row) == ("ok", "cut_after_end")
    assert (row["prompt_tokens"], row["completion_tokens"], row["error_number"], row["t_end"]) == (5, 7, 104, 9)


def test_words_that_are_not_known_are_kept_and_crowd_out_no_failure(bench: Bench) -> None:
    """Each answer ends with a word of its own: the first 8 are kept, and the text of a failure after 40 of them too."""
    for n in range(40):
        bench.conversation.open(1)
        bench.conversation.feed(HEAD + chunk(delta("a", f"word{n}") + DONE) + b"0\r\n\r\n", 5)
    bench.conversation.open(1)
    bench.conversation.feed(plain(b"503 Busy", ERROR_BODY), 5)
    taken = bench.protocol.error_texts.taken()
    assert taken == [
        *((200, 0, f"finish_reason: word{n}".encode(), 1) for n in range(8)),
        (503, ERROR_NAMES.index("http_status"), ERROR_BODY, 1),
    ]
    assert bench.protocol.error_texts.left_out == 0


def used(text: str | None, count: int | None, finish: str | None = None, **choice: object) -> bytes:
    """An event of a stream that says its completion_tokens up to now, as vLLM does with continuous_usage_stats."""
    delta = {} if text is None else {"content": text}
    event: dict[str, object] = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]}
    if count is not None:
        event["usage"] = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


ONLY_USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}\n\n'
ROLE_USED = used("", 0).replace(b'{"content"', b'{"role":"assistant","content"')
WITHOUT_TEXT, NONE = 8, TOKENS_NONE


@pytest.mark.parametrize(
    ("events", "kinds", "tokens"),
    [
        (
            [ROLE_USED, used("a", 1), used("", 2), used("bc", 5), used("d", 5), used(None, 6, "stop"), ONLY_USAGE],
            ["role", "content", "content", "content", "content", "content", "usage"],
            [0, 1, 1, 3, NONE, 1, 0],
        ),
        (  # usage comes with the end alone: it is not known what an event carries, and the end is not an event
            [used("", None), used("a", None), used("", None), used("b", None), used("", 5, "stop"), ONLY_USAGE],
            ["empty", "content", "empty", "content", "finish", "usage"],
            [0] * 6,
        ),
        (  # one event without it: no later growth is that of one event
            [ROLE_USED, used("a", 1), used("b", None), used("c", 4), used("", 5), used("d", 5)],
            ["role", "content", "content", "content", "empty", "content"],
            [0, 1, 0, 0, 0, 0],
        ),
        (  # 0 until the end is not a running count
            [ROLE_USED, used("a", 0), used("b", 0), used("", 5, "stop")],
            ["role", "content", "content", "finish"],
            [0] * 4,
        ),
        (  # it falls
            [ROLE_USED, used("a", 4), used("b", 2), used("c", 3)],
            ["role", "content", "content", "content"],
            [0, 4, 0, 0],
        ),
        (
            [
                used("", None, token_ids=[]),
                used("a", None, token_ids=[5, 6]),
                used("", None, token_ids=[7]),
                used("b", None, logprobs={"content": [{"token": "b"}]}),
                used("c", None),
                used("", None, "stop", token_ids=[2]),
                used("", None, token_ids=[2]),
            ],
            ["empty", "content", "content", "content", "content", "content", "empty"],
            [0, 2, 1, 1, 0, 1, 0],
        ),
        (  # before the first content it is whitespace, or reasoning behind reasoning
            [ROLE_USED, used("", 1), used(None, 2, delta={"reasoning": "r"}), used("", 3), used("a", 4), used("", 5)],
            ["role", "whitespace", "reasoning", "reasoning", "content", "content"],
            [0, 1, 1, 1, 1, 1],
        ),
        (  # a first event without text, as of a completion that begins with half a character, is one too
            [used("", 1), used("a", 2), used("b", 3), used("", 3, "stop")],
            ["whitespace", "content", "content", "finish"],
            [1, 1, 1, NONE],
        ),
        (  # 0 is said before there is a token
            [ROLE_USED, used("", 0), used("a", 2), used("b", 3)],
            ["role", "empty", "content", "content"],
            [0, 0, 2, 1],
        ),
    ],
    ids=[
        "counted",
        "at the end",
        "once not",
        "zero",
        "falling",
        "listed",
        "before content",
        "empty first",
        "zero first",
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_tokens_of_each_event(
    tmp_path: Path, events: list[bytes], kinds: list[str], tokens: list[int], strict: bool
) -> None:
    """By the growth of cumulative usage, else by a list; an event without text that carries tokens is an arrival."""
    bench = Bench(tmp_path, strict=strict)
    bench.conversation.open(1 * MS)
    bench.conversation.feed(HEAD, 2 * MS)
    for i, event in enumerate(events):
        bench.conversation.feed(chunk(event), (10 + i) * MS)
    bench.conversation.feed(chunk(DONE) + b"0\r\n\r\n", 30 * MS)
    rows, found = bench.rows()
    found = found[: len(events)]
    assert [EVENT_NAMES[kind] for kind in found["kind"]] == kinds
    assert found["tokens"].tolist() == tokens
    content = [10 + i for i, kind in enumerate(kinds) if kind == "content"]
    assert (rows[0]["t_first"] // MS, rows[0]["t_last"] // MS) == (content[0], content[-1])
    assert rows[0]["content_events"] == len(content)
    texts = [json.loads(event[6:]).get("choices") or [{"delta": {}}] for event in events]
    bare = [not any(text[0]["delta"].get(key) for key in ("content", "reasoning")) for text in texts]
    assert [bool(stamp & WITHOUT_TEXT) for stamp in found["stamp"]] == [
        empty and kind in ("content", "reasoning", "whitespace") for empty, kind in zip(bare, kinds, strict=True)
    ]


def test_an_answer_that_is_all_reasoning_is_ok(bench: Bench) -> None:
    """It has a first token of any kind and an end, and no answer token; without any token it stays empty."""
    thought = b'data: {"choices":[{"index":0,"delta":{"reasoning":"r"},"finish_reason":%b}]}\n\n'
    for number in range(2):
        bench.conversation.open(1 * MS)
        pieces = [
            HEAD,
            *[chunk(thought % b"null")] * (2 - 2 * number),
            chunk(delta("", "length")),
            chunk(DONE),
            b"0\r\n\r\n",
        ]
        for i, piece in enumerate(pieces):
            bench.conversation.feed(piece, (10 + i) * MS)
    rows, _ = bench.rows()
    assert [status(row) for row in rows] == [("ok", "none"), ("empty", "none")]
    assert [rows[0][name] // MS for name in ("t_any", "t_first", "t_last", "t_end")] == [11, 0, 12, 14]
    assert (rows[0]["reasoning_events"], rows[0]["content_events"], rows[1]["t_last"]) == (2, 0, 0)
    assert bench.words[k.W_OK] == 1


def test_the_live_view_has_the_first_token_of_any_kind(bench: Bench) -> None:
    """One value a response that generated something, and how many of them reasoned; the answer's is counted apart."""
    thought = b'data: {"choices":[{"index":0,"delta":{"reasoning":"r"},"finish_reason":null}]}\n\n'
    for middle in ([thought, thought, delta("a")], [thought], [delta("a"), delta("b")]):
        bench.conversation.open(1 * MS)
        pieces = [HEAD, *map(chunk, middle), chunk(delta("", "stop")), chunk(DONE), b"0\r\n\r\n"]
        for i, piece in enumerate(pieces):
            bench.conversation.feed(piece, (10 + i) * MS)
    assert bench.words[k.W_REASONED] == 2
    first, any_kind = (bench.shared.histogram(number) for number in (k.H_TTFT, k.H_TTFT_ANY))
    assert (histogram.total(first), histogram.total(any_kind)) == (2, 3)
    assert histogram.percentile(first, 1.0) == pytest.approx(12 * MS, rel=1e-3)
    assert histogram.percentile(any_kind, 1.0) == pytest.approx(10 * MS, rel=1e-3)


def said(path: list[bytes], *pieces: bytes) -> bytes:
    """The token of the session that an answer of *pieces* has at *path*."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        bench.protocol.want(path=path)
        bench.conversation.open(1 * MS)
        for number, piece in enumerate(pieces):
            bench.conversation.feed(piece, (10 + number) * MS)
        assert bench.conversation.ended
        return bench.conversation.token


def document(text: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(text) + text


@pytest.mark.parametrize(
    ("path", "token"),
    [
        ([b"id"], b'"x"'),
        ([b"created"], b"1"),
        ([b"usage", b"total_tokens"], b"10"),  # of a later event
        ([b"usage", b"id"], b""),
        ([b"choices"], b""),  # neither a string nor a number
        ([b"object", b"id"], b""),
        ([b"i"], b""),
    ],
)
def test_the_token_of_a_body_is_the_first_value_at_its_path(path: list[bytes], token: bytes) -> None:
    assert said(path, STREAM) == said(path, *[STREAM[at : at + 7] for at in range(0, len(STREAM), 7)]) == token


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (b'"a\\n\\u00e9"', b'"a\\n\\u00e9"'),
        (b"-1.5e3", b"-1.5e3"),
        (b"null", b""),
        (b"true", b""),
        (b'""', b'""'),
        (b'"%b"' % (b"y" * 4094), b'"%b"' % (b"y" * 4094)),
        (b'"%b"' % (b"y" * 4095), b""),
    ],
)
def test_the_token_of_a_complete_document(value: bytes, token: bytes) -> None:
    text = b'{"a":{"b":%b},"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}' % value
    assert said([b"a", b"b"], document(text)) == token


def test_each_answer_has_a_token_of_its_own(bench: Bench) -> None:
    bench.protocol.want(path=[b"id"])
    for text, token in ((b'{"id":"one"}', b'"one"'), (b"{}", b""), (b'{"id":2}', b"2")):
        bench.conversation.open(1 * MS)
        bench.conversation.feed(document(text), 2 * MS)
        assert bench.conversation.token == token
