"""Reads the generated text of a run's requests, where it was recorded (text.bin)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import recorder
from fastllmload.records.run import Run
from fastllmload.workload.tokenizers.tokenizer import NONE, Tokenizer, load_tokenizer

Numbers = npt.NDArray[np.int64]

AT_ONCE = 1 << 16  # text records that are joined at once
LONG = 64  # mean bytes per record above which each is copied separately
STRING = json.JSONDecoder(strict=False)


def tokenizer_of(run: Run) -> Tokenizer | None:
    """The reference tokenizer that the run was planned with; None when it was switched off."""
    name = run.document.config.workload.tokenizer
    return None if name == NONE else load_tokenizer(name)


def unescape(escaped: bytes) -> str:
    """The text of a JSON string body. Invalid Unicode (half a surrogate pair) becomes U+FFFD."""
    return paired(decoded(escaped))


def decoded(escaped: bytes) -> str:
    """The same with halves of surrogate pairs left as they are: their other half may be in the next piece."""
    text = escaped.decode("utf-8", "replace")
    return text if "\\" not in text else str(STRING.decode(f'"{text}"'))


def paired(text: str) -> str:
    """*text* with its surrogate pairs joined and lone halves replaced by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def pieces(run: Run, part: slice | None = None, most: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """(row, its escaped text records in the order of events) for rows (of *part*) that have some, and at most *most*."""
    text = run.text.data
    for row, begin, size in records(run, part):
        if most is None or len(begin) <= most:
            yield row, [bytes(text[a:b]) for a, b in zip(begin.tolist(), (begin + size).tolist(), strict=True)]


def records(run: Run, part: slice | None = None) -> Iterator[tuple[int, Numbers, Numbers]]:
    """(row, where its text records begin, bytes of each) for every row (of *part*) that has some."""
    rows, begin, size = recorder.text_index(run.text)
    if part is not None:
        selected = (rows >= part.start) & (rows < part.stop)
        rows, begin, size = rows[selected], begin[selected], size[selected]
    order = np.argsort(rows, kind="stable")
    borders = np.flatnonzero(np.diff(rows[order])) + 1
    for group in np.split(order, borders):
        if len(group):
            yield int(rows[group[0]]), begin[group].astype(np.int64), size[group].astype(np.int64)


def texts(run: Run) -> Iterator[tuple[int, str]]:
    """(row, complete generated text without reasoning) for every row that has some, by row."""
    for row, begin, size in records(run):
        blocks = (slice(at, at + AT_ONCE) for at in range(0, len(begin), AT_ONCE))
        yield row, unescape(b"".join(joined(run.text, begin[block], size[block]) for block in blocks))


def joined(text: npt.NDArray[np.uint8], begin: Numbers, size: Numbers) -> bytes:
    end = np.cumsum(size)
    if end[-1] > LONG * len(size):
        return b"".join(text[a:b].tobytes() for a, b in zip(begin.tolist(), (begin + size).tolist(), strict=True))
    indices = np.arange(end[-1]) + np.repeat(begin - (end - size), size)
    return bytes(text[indices].data)


def chunk_texts(run: Run, part: slice | None = None, most: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """(row, `decoded` text of each event with some, without reasoning), of *part*, for rows with at most *most* of them."""
    for row, escaped in pieces(run, part, most):
        yield row, [decoded(piece) for piece in escaped]
