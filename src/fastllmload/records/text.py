"""Generated text of a run's requests, when it was recorded (text.bin)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fastllmload._ext import recorder
from fastllmload.records.run import Run


def unescape(escaped: bytes) -> str:
    """The text of a JSON string body. What is no valid Unicode (half a surrogate pair) becomes U+FFFD."""
    return paired(decoded(escaped))


def decoded(escaped: bytes) -> str:
    """The same with halves of surrogate pairs left as they are: their other half may be in the next piece."""
    text: str = json.loads('"' + escaped.decode("utf-8", "replace") + '"', strict=False)
    return text


def paired(text: str) -> str:
    """*text* with its surrogate pairs joined and lone halves replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def pieces(run: Run) -> Iterator[tuple[int, list[bytes]]]:
    """(row, its text records in the order of its events, JSON-escaped) for every row that has some, by row."""
    rows, starts, sizes = recorder.text_index(run.text)
    order = np.argsort(rows, kind="stable")
    borders = np.flatnonzero(np.diff(rows[order])) + 1
    for group in np.split(order, borders):
        if len(group):
            yield int(rows[group[0]]), [run.text[starts[k] : starts[k] + sizes[k]].tobytes() for k in group]


def texts(run: Run) -> Iterator[tuple[int, str]]:
    """(row, whole generated text without reasoning) for every row that has some, by row."""
    for row, escaped in pieces(run):
        yield row, unescape(b"".join(escaped))


def chunk_texts(run: Run) -> Iterator[tuple[int, list[str]]]:
    """(row, text of each event that carried some, without reasoning); see `decoded` for halves of surrogate pairs."""
    for row, escaped in pieces(run):
        yield row, [decoded(piece) for piece in escaped]
