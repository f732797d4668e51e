"""Copies of words of one host on another: the agent sends those that have changed, the driver puts them in place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.engine.hosts.link import LinkError
from fastllmload.engine.hosts.messages import Changes

Words = npt.NDArray[np.int64]
POSITION, VALUE = np.dtype("<u4"), np.dtype("<i8")


class Reflected:
    """The words that the other side has."""

    def __init__(self, words: int) -> None:
        self._known = np.zeros(words, np.int64)

    def changes(self, now: Words) -> Changes:
        """What differs in *now* from what was sent before, which counts as sent from here on."""
        flat = now.reshape(-1)
        at = np.flatnonzero(flat != self._known)
        values = flat[at]
        self._known[at] = values
        return Changes(at.astype(POSITION).tobytes(), values.astype(VALUE).tobytes())


def unpacked(changes: Changes, words: int) -> tuple[npt.NDArray[np.uint32], Words]:
    """Positions and values of *changes* in an array of *words*. LinkError when they do not fit it."""
    if len(changes.positions) % POSITION.itemsize or len(changes.values) % VALUE.itemsize:
        raise LinkError("changed words were received that are not complete")
    at, values = np.frombuffer(changes.positions, POSITION), np.frombuffer(changes.values, VALUE)
    if len(at) != len(values) or (len(at) and int(at.max()) >= words):
        raise LinkError(f"changed words were received for positions beyond the {words:,} that there are")
    return at, values


def apply(changes: Changes, words: Words) -> None:
    """Put *changes* into *words*, a C-contiguous array. LinkError when they do not fit it."""
    flat = words.reshape(-1)
    at, values = unpacked(changes, len(flat))
    flat[at] = values
