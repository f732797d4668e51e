"""Messages of gRPC: what they say is what a reader in Python finds, and a bad server's calls end with one definite error."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from ext.reference.grpc_reference import fields, ids_of, number, numbers, sized, whole
from ext.test_ext_grpc_corpus import fed
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.bytes.schema import Kind, Schema
from fastllmload._ext.events.delta import Classifier, expand_text
from fastllmload._ext.events.grpc import GrpcParser
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, STATUS_NAMES

VLLM, KSERVE = ENDPOINTS["vllm-grpc"].dialect, ENDPOINTS["kserve-grpc"].dialect
COUNTS = st.integers(0, 1 << 31)
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(["", " ", '"', "\\", "\x00\x1f\x7f", "ä€😀", "x" * 300]))


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def head(**said: str) -> bytes:
    pairs = [
        (name.replace("_", "-").replace("-status-code", ":status").encode(), text.encode())
        for name, text in said.items()
    ]
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(text),)) + text for name, text in pairs)


SETTINGS = frame(4, 0, b"", 0)
OPEN = frame(1, 4, head(_status_code="200", content_type="application/grpc"))
GOOD = frame(1, 5, head(grpc_status="0"))
CHUNK = sized(1, ids_of(1, [5]) + whole(2, 3))


def message(data: bytes, flag: int = 0) -> bytes:
    return frame(0, 0, bytes((flag,)) + struct.pack(">I", len(data)) + data)


BAD = {
    "a web page": (
        frame(1, 4, head(_status_code="200", content_type="text/html")) + frame(0, 1, b"<html>"),
        "protocol_error", "unexpected_content_type",
    ),
    "half a message": (OPEN + message(CHUNK) + frame(0, 0, b"\0\0\0\0\x09half") + GOOD, "protocol_error", "bad_event"),
    "half a protobuf": (OPEN + message(CHUNK[:-1]) + GOOD, "protocol_error", "bad_event"),
    "a compressed message": (OPEN + message(CHUNK, 1), "protocol_error", "encoded_body"),
    "no prefix": (OPEN + frame(0, 0, b"<html>"), "protocol_error", "bad_event"),
    "a message of 2 GiB": (OPEN + frame(0, 0, b"\0\x80\0\0\0" + bytes(100)), "protocol_error", "event_too_large"),
    "no trailers": (OPEN + message(CHUNK) + frame(0, 1, b""), "truncated", "no_grpc_status"),
    "trailers without a status": (OPEN + message(CHUNK) + frame(1, 5, head(x="y")), "truncated", "no_grpc_status"),
    "trailers with a status of HTTP": (
        OPEN + frame(1, 5, head(_status_code="200", grpc_status="0")), "truncated", "bad_head",
    ),
    "an error after tokens": (OPEN + message(CHUNK) + frame(1, 5, head(grpc_status="14")), "stream_error", "grpc_status"),
    "no token": (OPEN + GOOD, "empty", "none"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_a_bad_call_has_one_error(tmp_path: Path, case: str, step: int) -> None:
    data, status, error = BAD[case]
    data = SETTINGS + data
    rows, *_ = fed(tmp_path, [[data[at : at + step] for at in range(0, len(data), step)]], VLLM)
    assert (STATUS_NAMES[rows[0]["status"]], ERROR_NAMES[rows[0]["error"]]) == (status, error)


def test_an_answer_in_http_1(tmp_path: Path) -> None:
    rows, *_ = fed(tmp_path, [[b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"]], VLLM)
    assert (STATUS_NAMES[rows[0]["status"]], ERROR_NAMES[rows[0]["error"]]) == ("protocol_error", "not_http2")


@given(
    ids=st.lists(COUNTS, max_size=20), prompt=COUNTS, cached=COUNTS, packed=st.booleans(), junk=st.binary(max_size=20)
)
def test_a_chunk_says_what_a_reader_in_python_finds(
    ids: list[int], prompt: int, cached: int, packed: bool, junk: bytes
) -> None:
    """Ids in one list or one by one, among fields that are not known."""
    listed = ids_of(1, ids) if packed else b"".join(number(1 << 3) + number(one) for one in ids)
    inside = sized(900, junk) + listed + whole(2, prompt) + whole(4, cached) + number(77 << 3 | 5) + b"abcd"
    found = Classifier(VLLM).classify_bytes(sized(1, inside))
    said = fields(fields(sized(1, inside))[1][0])
    count = len(numbers(said[1][0])) if packed else len(said.get(1, []))
    assert EVENT_NAMES[found["kind"]] == ("content" if ids else "empty")
    assert max(found["listed_tokens"], 0) == count == len(ids)
    high = (1 << 31) - 1
    assert found["prompt_tokens"] == (prompt if 0 < prompt <= high else -1)
    assert found["cached_tokens"] == (cached if cached <= high else -1)


@given(text=TEXTS, final=st.booleans(), prompt=st.integers(1, 1 << 20), raw=st.booleans(), last=st.booleans())
def test_tensors_say_what_was_put_into_them(text: str, final: bool, prompt: int, raw: bool, last: bool) -> None:
    """In lists of their own or as raw contents, in any order; text in the form of JSON."""
    names = {"text_output": text.encode(), "num_input_tokens": prompt, "num_output_tokens": 1, "other": b"?"}
    order = list(names)[::-1] if last else list(names)
    tensors, contents = b"", b""
    for name in order:
        value = names[name]
        listed = sized(8, value) if isinstance(value, bytes) else ids_of(4, [value])
        tensors += sized(5, sized(1, name.encode()) + ids_of(3, [1]) + (b"" if raw else sized(5, listed)))
        contents += sized(
            6, struct.pack("<I", len(value)) + value if isinstance(value, bytes) else struct.pack("<I", value)
        )
    entry = sized(4, sized(1, b"triton_final_response") + sized(2, whole(1, final)))
    inside = (contents + tensors if last else tensors + contents) if raw else tensors
    found = Classifier(KSERVE).classify_bytes(sized(2, entry + inside))
    kind = "empty" if not text else "whitespace" if text.isspace() else "content"
    assert EVENT_NAMES[found["kind"]] == kind
    assert expand_text(found["text"] or b"") == text
    assert (found["prompt_tokens"], found["listed_tokens"], found["done"]) == (prompt, 1, final)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_bad_event(data: bytes) -> None:
    for dialect in (VLLM, KSERVE):
        assert EVENT_NAMES[Classifier(dialect).classify_bytes(data)["kind"]]


@given(text=st.binary(max_size=30))
def test_text_that_is_not_utf8_is_read_all_the_same(text: bytes) -> None:
    tensor = sized(5, sized(1, b"text_output") + sized(5, sized(8, text)))
    found = Classifier(KSERVE).classify_bytes(sized(2, tensor))
    shown = expand_text(found["text"] or b"")
    assert "\ufffd" in shown or shown == text.decode()


@given(pieces=st.lists(st.binary(max_size=40), max_size=6), cut=st.integers(1, 20))
def test_messages_ignore_how_they_are_split(pieces: list[bytes], cut: int) -> None:
    data = b"".join(b"\0" + struct.pack(">I", len(one)) + one for one in pieces)
    parser = GrpcParser()
    found = [one for at in range(0, len(data), cut) for one in parser.feed(data[at : at + cut])]
    assert (found, parser.rests, parser.fault) == (pieces, True, None)


SCHEMA = Schema({
    "text": (1, Kind.TEXT), "inside": (2, {"ids": (1, Kind.INTEGER), "more": (20, {"flag": (3, Kind.BOOL)})}),
    "real": (3, Kind.FLOAT), "map": (4, Kind.MAP, {"n": (2, Kind.INTEGER)}), "all": (5, Kind.TEXT), "wide": (6, Kind.DOUBLE),
})  # fmt: skip


@given(text=TEXTS, ids=st.lists(st.integers(0, 1 << 40)), all=st.lists(TEXTS, max_size=3), plain=st.booleans())
def test_a_message_is_what_its_json_says(text: str, ids: list[int], all: list[str], plain: bool) -> None:
    said: dict[str, Any] = {
        "text": text, "inside": {"ids": ids, "more": {"flag": True}}, "real": 0.5, "map": {text: {"n": 7}}, "all": all,
        "wide": -2, "text_": None,
    }  # fmt: skip
    del said["text_"]
    found = fields(SCHEMA.encode(json.dumps(said, ensure_ascii=plain).encode()))
    inside = fields(found[2][0])
    assert found[1] == [text.encode()] and found.get(5, []) == [one.encode() for one in all]
    assert numbers(inside[1][0] if ids else b"") == ids and fields(inside[20][0]) == {3: [1]}
    assert (found[3], found[6]) == ([struct.pack("<f", 0.5)], [struct.pack("<d", -2)])
    entry = fields(found[4][0])
    assert entry[1] == [text.encode()] and fields(entry[2][0]) == {2: [7]}


@pytest.mark.parametrize(
    "json", [b'{"other":1}', b'{"text":1}', b'{"inside":{"ids":"a"}}', b'{"real":', b"[]", b'{"map":[]}']
)
def test_what_a_message_lacks_is_refused(json: bytes) -> None:
    with pytest.raises(ValueError):
        SCHEMA.encode(json)
