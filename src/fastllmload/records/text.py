"""Generated text of a run's requests, when it was recorded (text.bin)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fastllmload._ext import recorder
from fastllmload.records.run import Run


def unescape(escaped: bytes) -> str:
    """The text of a JSON string body. What is no valid Unicode (half a surrogate pair) becomes U+FFFD."""
    text: str = json.loads('"' + escaped.decode("utf-8", "replace") + '"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def texts(run: Run) -> Iterator[tuple[int, str]]:
    """(row, whole generated text without reasoning) for every row that has some, by row."""
    rows, starts, sizes = recorder.text_index(run.text)
    order = np.argsort(rows, kind="stable")
    borders = np.flatnonzero(np.diff(rows[order])) + 1
    for group in np.split(order, borders):
        if len(group):
            pieces = (run.text[starts[k] : starts[k] + sizes[k]].tobytes() for k in group)
            yield int(rows[group[0]]), unescape(b"".join(pieces))
