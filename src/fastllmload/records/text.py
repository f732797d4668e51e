"""Generated text of a run's requests, when it was recorded (text.bin)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fastllmload._ext import recorder
from fastllmload.records.run import Run
from fastllmload.workload.tokenizer import NONE, Tokenizer, load_tokenizer

STRING = json.JSONDecoder(strict=False)


def tokenizer_of(run: Run) -> Tokenizer | None:
    """The reference tokenizer that the run was planned with; None when it was switched off."""
    name = run.manifest.get("config", {}).get("workload", {}).get("tokenizer", "cl100k_base")
    return None if name == NONE else load_tokenizer(name)


def unescape(escaped: bytes) -> str:
    """The text of a JSON string body. What is no valid Unicode (half a surrogate pair) becomes U+FFFD."""
    return paired(decoded(escaped))


def decoded(escaped: bytes) -> str:
    """The same with halves of surrogate pairs left as they are: their other half may be in the next piece."""
    text = escaped.decode("utf-8", "replace")
    return text if "\\" not in text else str(STRING.decode(f'"{text}"'))


def paired(text: str) -> str:
    """*text* with its surrogate pairs joined and lone halves replaced by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def pieces(run: Run, part: slice | None = None, most: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """(row, its text records in the order of its events, JSON-escaped) for every row (of *part*) that has some, and no
    more than *most*.
    """
    rows, starts, sizes = recorder.text_index(run.text)
    if part is not None:
        mine = (rows >= part.start) & (rows < part.stop)
        rows, starts, sizes = rows[mine], starts[mine], sizes[mine]
    order = np.argsort(rows, kind="stable")
    borders = np.flatnonzero(np.diff(rows[order])) + 1
    for group in np.split(order, borders):
        if len(group) > 0 and (most is None or len(group) <= most):
            yield int(rows[group[0]]), [run.text[starts[k] : starts[k] + sizes[k]].tobytes() for k in group]


def texts(run: Run) -> Iterator[tuple[int, str]]:
    """(row, whole generated text without reasoning) for every row that has some, by row."""
    for row, escaped in pieces(run):
        yield row, unescape(b"".join(escaped))


def chunk_texts(run: Run, part: slice | None = None, most: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """(row, text of each event that carried some, without reasoning) of all rows, or of *part*, that have no more than
    *most* such events; see `decoded` for halves of surrogate pairs.
    """
    for row, escaped in pieces(run, part, most):
        yield row, [decoded(piece) for piece in escaped]
