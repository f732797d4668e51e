"""llhttp's own response cases: our verdict, status and body are httptools' own, also under one-byte reads."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from ext.reference.http1_oracle import Oracle, drip, frame

from fastllmload._ext.http.response import BodyFramer, find_head_end, parse_head

ROOT = Path(__file__).parents[3]
CASES = Path(os.environ.get("FASTLLMLOAD_CORPORA", ROOT.parent / "shared" / "corpora")) / "http/test/response"


def unescape(text: str) -> bytes:
    """The corpus's notation: a last backslash joins lines, line ends are CR LF, \\r \\n \\t \\f \\xHH."""
    text = text.removesuffix("\n").replace("\\\n", "").replace("\n", "\r\n")
    names = {"r": "\r", "n": "\n", "t": "\t", "f": "\f"}
    text = re.sub(r"\\(?:x([0-9a-fA-F]{2})|([rntf]))", lambda m: chr(int(m[1], 16)) if m[1] else names[m[2]], text)
    return text.encode("latin-1")


CASE = re.compile(r"^#+ ([^\n]*)\n(?:(?!^#).)*?<!-- meta=(\{[^\n]*\}) -->\n```http\n(.*?)```", re.DOTALL | re.MULTILINE)


def strict_cases() -> list[tuple[str, bytes]]:
    """Every case for a strict response parser; lenient and paused ones are another parser's."""
    found = []
    for path in sorted(CASES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for title, meta, fence in CASE.findall(text):
            if '"type": "response"' in meta and "skipBody" not in meta and "pause" not in meta:
                found.append((f"{path.stem}: {title}", unescape(fence)))
    return found


def ours(data: bytes, one_byte: bool) -> list[tuple[str, int, bytes, str]]:
    """All responses in *data* as the client takes them: (head verdict, status, body, body state)."""
    responses = []
    while data:
        size = find_head_end(data)
        said = parse_head(data[:size]) if size else None
        if said is None or said["error"] != "ok":
            responses.append(("need" if said is None else said["error"], 0, b"", ""))
            break
        framer = BodyFramer(said["framing"], said["length"])  # type: ignore[arg-type]
        rest = data[size:]
        body, state, data = frame(framer, drip(rest) if one_byte and rest else [rest])
        responses.append(("ok", said["status"], body, state))
        if state != "end" or not said["keep_alive"]:
            break
    return responses


def test_llhttps_response_cases() -> None:
    """The first response of each case, and how all of them split.

    The client is stricter in two points: it refuses codings other than chunked, and all but HTTP/1.
    """
    if not CASES.is_dir():
        pytest.skip(f"llhttp's cases are not at {CASES}: set FASTLLMLOAD_CORPORA to the corpora to run this test")
    cases = strict_cases()
    assert len(cases) >= 50, "the corpus is there but its cases were not recognised"
    for title, data in cases:
        responses = ours(data, one_byte=False)
        assert responses == ours(data, one_byte=True), title
        check_first_response(title, data, responses[0])


def check_first_response(title: str, data: bytes, first: tuple[str, int, bytes, str]) -> None:
    verdict, status, body, state = first
    size = find_head_end(data)
    if verdict == "need":
        assert not Oracle(data).head_complete, title
        return
    alone = Oracle(data[:size])
    if verdict != "ok":
        stricter = verdict == "bad_coding" or not data.lstrip(b"\r\n").startswith(b"HTTP/1.")
        assert stricter or not alone.accepted, (title, verdict)
        return
    assert alone.accepted and alone.parser.get_status_code() == status, title
    used = len(data) if state == "need" else first_size(data, size)
    # llhttp accepts no blanks after a chunk size; a client has to
    oracle = Oracle(re.sub(rb"\r\n([0-9a-fA-F]+)[ \t]+\r\n", rb"\r\n\1\r\n", data[:used]))
    assert oracle.accepted == (state in ("need", "end")), (title, state)
    assert oracle.body == body, title


def first_size(data: bytes, size: int) -> int:
    """Bytes of the first response, head and body, as the client counts them."""
    said = parse_head(data[:size])
    _, state, unused = BodyFramer(said["framing"], said["length"]).feed(data[size:])  # type: ignore[arg-type]
    return len(data) - len(unused) if state == "end" else len(data)
