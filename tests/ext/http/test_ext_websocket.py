"""WebSocket frames, sans-IO: equal to a reference twin whatever the split, and each stream of the corpus has its outcome."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from ext.reference import websocket_frames as w

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.receive.messages import text_frame
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.receive.websocket import MessageReader
from fastllmload._ext.record.recorder import Recorder
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, FINISH_NAMES, STATUS_NAMES
from fastllmload.records.shared_memory import SharedWords

ROOT = Path(__file__).parents[3]
CORPUS = Path(os.environ.get("FASTLLMLOAD_CORPORA", ROOT.parent / "shared" / "corpora")) / "wire"
STREAMS = sorted(CORPUS.glob("ws-*.ws"))
EACH = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
USAGE = {
    "input": "prompt_tokens",
    "output": "completion_tokens",
    "cached": "cached_tokens",
    "reasoning": "reasoning_tokens",
}


def read(data: bytes, cuts: list[int], limit: int = 1 << 20) -> tuple[list[bytes], list[bytes], object]:
    """As the twin's `read`: messages, payloads of the pongs, how it ended."""
    reader, messages, out = MessageReader(limit), [], b""
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        messages += reader.feed(data[start:end])
        out += reader.out()
    sent = list(w.frames(out))
    assert all(masked for _, masked, _ in sent)
    assert (w.CLOSE in {first & 15 for first, _, _ in sent}) == bool(reader.error), "an end is answered"
    pongs = [payload for first, _, payload in sent if first & 15 == w.PONG]
    return messages, pongs, reader.code or (ERROR_NAMES[reader.error] == "bad_frame" and "bad") or None


def alike(data: bytes, cuts: list[int]) -> None:
    assert read(data, cuts) == w.read(data)


def some_frames(chance: random.Random) -> bytes:
    """A stream of messages, some in parts with control frames between these, some of it broken."""
    made = b""
    for _ in range(chance.randrange(1, 6)):
        payload = chance.randbytes(chance.choice((0, 1, 5, 125, 126, 300, 65535, 65536)))
        parts = sorted(chance.randrange(len(payload) + 1) for _ in range(chance.choice((0, 0, 1, 3))))
        edges = list(zip([0, *parts], [*parts, len(payload)], strict=True))
        for number, (start, end) in enumerate(edges):
            last = number == len(edges) - 1
            made += w.frame(payload[start:end], 0 if number else w.TEXT, w.FINAL if last else 0)
            if chance.random() < 0.4:
                made += w.frame(chance.randbytes(chance.choice((0, 3, 125))), chance.choice((w.PING, w.PONG)))
    if chance.random() < 0.3:
        made += chance.choice((w.close(), w.close(1000), w.close(1011, b"why"), w.frame(b"x", w.CLOSE)))
    if chance.random() < 0.3:
        broken = bytearray(made)
        broken[chance.randrange(min(len(made), 200))] ^= 1 << chance.randrange(8)
        made = bytes(broken)
    return made


@pytest.mark.parametrize("seed", range(150))
def test_frames_are_read_as_the_twin_reads_them(seed: int) -> None:
    """Messages, answers to pings and the end, in reads of any size."""
    chance = random.Random(seed)
    data = some_frames(chance)
    alike(data, [])
    alike(data, sorted(chance.randrange(len(data) + 1) for _ in range(8)))
    if len(data) < 3000:
        alike(data, list(range(1, len(data))))


@pytest.mark.parametrize(
    "wrong",
    [w.frame(b"{}", first=w.FINAL | bit) for bit in (0x40, 0x20, 0x10)]
    + [w.frame(b"{}", opcode) for opcode in (3, 7, 11, 15)]
    + [w.frame(b"{}", key=b"abcd"), w.frame(b"{}", 0), w.frame(b"a", first=0) + w.frame(b"b"), w.frame(b"", w.PING, 0),
       w.frame(bytes(126), w.PING), w.frame(b"x", w.CLOSE)],
)  # fmt: skip
def test_frames_that_break_the_protocol_end_it(wrong: bytes) -> None:
    reader = MessageReader()
    assert reader.feed(w.frame(b"{}") + wrong + w.frame(b"{}")) == [b"{}"]
    assert ERROR_NAMES[reader.error] == "bad_frame" and reader.code == 0
    assert list(w.frames(reader.out())) == [(0x88, True, (1002).to_bytes(2, "big"))]


@pytest.mark.parametrize("parts", [1, 4])
def test_a_message_above_the_limit_ends_it_before_it_is_read(parts: int) -> None:
    reader = MessageReader(1000)
    data = (
        w.frame(bytes(400), first=0) + w.frame(bytes(400), 0, 0) + w.frame(bytes(400), 0)
        if parts > 1
        else b"\x81\x7f" + b"\0" * 5 + b"\xff" * 3
    )
    assert reader.feed(data) == [] and ERROR_NAMES[reader.error] == "event_too_large"
    assert next(w.frames(reader.out()))[2] == (1009).to_bytes(2, "big")


def test_pings_whose_answers_are_not_read_have_an_end() -> None:
    reader = MessageReader()
    assert reader.feed(w.frame(bytes(125), w.PING) * 1000) == []
    assert ERROR_NAMES[reader.error] == "bad_frame" and len(reader.out()) < 20_000


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_a_clients_message_has_a_key_of_zeros(size: int) -> None:
    """Masked, as it must be, and its payload is sent as it is."""
    made = text_frame(bytes(size))
    assert list(w.frames(made)) == [(0x81, True, bytes(size))] and made.endswith(bytes(4 + size))


def fed(directory: Path, streams: list[list[bytes]], strict: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows and events of one request per item of *streams*, each on an upgraded connection of its own that then closes."""
    recorder, shared = Recorder(directory), SharedWords.create()
    classifier = Classifier(ENDPOINTS["openai-responses-ws"].dialect, strict)
    protocol = Protocol(recorder, classifier, shared.words, 1 << 20, 4 << 20)
    for number, reads in enumerate(streams):
        conversation = Conversation(protocol, websocket=True)
        conversation.open(1000 * number + 1)
        for place, data in enumerate(reads):
            if conversation.feed(data, 1000 * number + 2 + min(place, 900)) in (1, 2):
                break
        if not conversation.ended:
            conversation.eof(1000 * (number + 1))
    recorder.close()
    return np.load(directory / "requests.npy"), np.load(directory / "tokens.npy")


@EACH
@pytest.mark.parametrize(("step", "strict"), [(1, False), (1 << 20, False), (1 << 20, True)])
def test_a_stream_has_the_expected_outcome(tmp_path: Path, path: Path, step: int, strict: bool) -> None:
    data, expected = path.read_bytes(), json.loads(path.with_suffix(".json").read_text())
    rows, events = fed(tmp_path, [[data[at : at + step] for at in range(0, len(data), step)]], strict)
    row, status = rows[0], STATUS_NAMES[rows[0]["status"]]
    assert (status if status in ("ok", "truncated") else "failed") == expected["status"]
    assert row["http_status"] == expected["http"]
    assert (row["error_number"], ERROR_NAMES[row["error"]]) == (
        (1011, "close_frame") if path.stem == "ws-closed" else (0, ERROR_NAMES[row["error"]])
    )
    found = [EVENT_NAMES[each["kind"]] for each in events if each["kind"] in range(2, 7)]
    assert found == [each["kind"] for each in expected["arrivals"]]
    assert row["text_bytes"] == len("".join(expected["text"].values()))
    assert {name: int(row[field]) for name, field in USAGE.items()} == {
        name: -1 if expected["usage"].get(name) is None else expected["usage"][name] for name in USAGE
    }
    assert (FINISH_NAMES[row["finish"]] == "stop") == (expected["finish"] == "completed")


ALIKE = ["status", "error", "finish", "events", "content_events", "text_bytes", *USAGE.values()]


@EACH
def test_a_stream_in_two_reads_has_one_outcome(tmp_path: Path, path: Path) -> None:
    """Split at every byte."""
    data = path.read_bytes()
    rows, events = fed(tmp_path, [[data[:at], data[at:]] for at in range(1, len(data))])
    assert (rows[ALIKE] == rows[ALIKE][0]).all()
    kinds = events[["kind", "tokens"]].reshape(len(rows), -1)
    assert (kinds == kinds[0]).all()


@EACH
def test_a_cut_stream_is_ok_only_when_it_is_whole(tmp_path: Path, path: Path) -> None:
    """Cut after every byte: the last message is the protocol's last word."""
    data = path.read_bytes()
    rows, _ = fed(tmp_path, [[data[:size]] for size in range(len(data) + 1)])
    ok = [size for size, row in enumerate(rows) if STATUS_NAMES[row["status"]] == "ok"]
    assert ok == ([len(data)] if path.stem in ("ws-plain", "ws-fragmented", "ws-lanes") else [])


@pytest.mark.parametrize("strict", [False, True])
def test_each_of_two_lanes_has_its_events(tmp_path: Path, strict: bool) -> None:
    """What has another stream_id than the first event says nothing, an end and usage neither."""
    paths = [path for path in STREAMS if path.stem == "ws-lanes"]
    if not paths:
        pytest.skip("no corpus")
    expected = json.loads(paths[0].with_suffix(".json").read_text())
    frames = [w.frame(payload) for _, _, payload in w.frames(paths[0].read_bytes())]
    for name, first, wanted in (("a", 0, expected), ("b", 1, expected["others"]["b"])):
        directory = tmp_path / name
        directory.mkdir()
        rows, events = fed(directory, [frames[first:]], strict)
        assert STATUS_NAMES[rows[0]["status"]] == wanted["status"]
        kinds = [EVENT_NAMES[each["kind"]] for each in events]
        assert kinds.count("content") == len(wanted["arrivals"]) and set(kinds) <= {"other", "content", "finish"}
        assert rows[0]["text_bytes"] == sum(len(each["text"]) for each in wanted["arrivals"])
        assert {name: int(rows[0][field]) for name, field in USAGE.items()} == wanted["usage"]


DELTA = b'{"type":"response.output_text.delta","delta":"a","stream_id":"%b","sequence_number":%d}'


@pytest.mark.parametrize("strict", [False, True])
def test_an_event_of_another_lane_never_is_ones_own(tmp_path: Path, strict: bool) -> None:
    """Neither text between like events, nor an error, nor a word with escapes in it."""
    events = [DELTA % (b"a", 1), DELTA % (b"a", 2), DELTA % (b"b", 3), DELTA % (b"\\u0061", 4), DELTA % (b"a", 5),
              b'{"type":"error","error":{"message":"no"},"stream_id":"b"}', b'{"type":"response.failed","stream_id":"b"}',
              b'{"type":"response.completed","response":{"status":"completed"},"stream_id":"a"}']  # fmt: skip
    rows, _ = fed(tmp_path, [[w.frame(event) for event in events]], strict)
    assert STATUS_NAMES[rows[0]["status"]] == "ok" and rows[0]["content_events"] == 4


@pytest.mark.parametrize("strict", [False, True])
def test_reasoning_after_content_is_reasoning(tmp_path: Path, strict: bool) -> None:
    event = b'{"type":"response.%b_text.delta","delta":"a","sequence_number":%d}'
    kinds = [b"output"] * 2 + [b"reasoning"] * 4 + [b"output"] * 3
    _, events = fed(tmp_path, [[w.frame(event % (kind, n)) for n, kind in enumerate(kinds)]], strict)
    assert [EVENT_NAMES[each["kind"]] for each in events] == ["content"] * 2 + ["reasoning"] * 4 + ["content"] * 3


ERROR = b'{"type":"error","error":{"message":"no","code":"server_error"}}'


@pytest.mark.parametrize("before", [[], [DELTA % (b"a", 1)]])
def test_a_connection_has_no_request_after_an_error(tmp_path: Path, before: list[bytes]) -> None:
    """Its response.failed may still come, as if it were the next one's."""
    recorder, shared = Recorder(tmp_path), SharedWords.create()
    protocol = Protocol(recorder, Classifier(ENDPOINTS["openai-responses-ws"].dialect), shared.words, 1 << 20, 4 << 20)
    conversation = Conversation(protocol, websocket=True)
    conversation.open(1)
    assert conversation.feed(b"".join(w.frame(event) for event in [*before, ERROR]), 2) == 2
    assert conversation.ended
    recorder.close()
    assert STATUS_NAMES[np.load(tmp_path / "requests.npy")[0]["status"]] == "stream_error"
