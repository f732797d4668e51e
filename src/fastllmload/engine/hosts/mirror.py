"""Copies of words of one host on another, and sums of histograms of many: the agent sends what has changed since before."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import histogram
from fastllmload.engine.hosts.link import LinkError
from fastllmload.engine.hosts.messages import Changes, Increments

Words = npt.NDArray[np.int64]
POSITION, COUNT, VALUE = np.dtype("<u4"), np.dtype("<u4"), np.dtype("<i8")
EXTREMES = [histogram.MINIMUM, histogram.MAXIMUM]
NOTHING = 1 << 62  # the minimum of an empty histogram


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


class Growing:
    """The histograms that the other side has, each a row of *kinds*."""

    def __init__(self, kinds: int) -> None:
        self._known = np.zeros((kinds, histogram.WORDS), np.int64)

    def increments(self, now: Words) -> Increments:
        """By how much *now* differs from what was sent before, which counts as sent from here on."""
        extremes = now[:, EXTREMES]
        extremes[now[:, histogram.TOTAL] == 0, 0] = NOTHING
        grown = now - self._known
        grown[:, EXTREMES] = 0
        self._known = now
        flat = grown.reshape(-1)
        at = np.flatnonzero(flat)
        return Increments(at.astype(POSITION).tobytes(), flat[at].astype(COUNT).tobytes(), extremes.tobytes())


class SummedHistograms:
    """Histograms of *hosts* together, of several *kinds*. *of_hosts* has that of each host, of the kind *apart* only."""

    def __init__(self, kinds: int, hosts: int, apart: int = 0) -> None:
        self._sum = np.zeros((kinds, histogram.WORDS), np.int64)
        self._apart = apart
        self._bounds = np.array([apart, apart + 1], POSITION) * POSITION.type(histogram.WORDS)  # of its positions
        self.of_hosts = np.zeros((hosts, histogram.WORDS), np.int64)
        self._extremes = np.zeros((hosts, kinds, 2), np.int64)
        self._extremes[:, :, 0] = NOTHING

    def add(self, host: int, grown: Increments) -> None:
        """LinkError when *grown* does not fit."""
        flat = self._sum.reshape(-1)
        at, counts = unpacked(grown.positions, grown.counts, COUNT, len(flat))
        if len(grown.extremes) != self._extremes[host].nbytes:
            raise LinkError("extremes of another number of histograms were received")
        flat[at] += counts
        self._extremes[host] = np.frombuffer(grown.extremes, VALUE).reshape(-1, 2)
        first, last = np.searchsorted(at, self._bounds)
        own = self.of_hosts[host]
        own[at[first:last] % histogram.WORDS] += counts[first:last]  # an agent's positions are in order
        own[EXTREMES] = self._extremes[host, self._apart]

    def kind(self, number: int) -> Words:
        """A copy of the histogram of one kind."""
        found: Words = self._sum[number].copy()
        if found[histogram.TOTAL]:
            found[histogram.MINIMUM] = self._extremes[:, number, 0].min()
            found[histogram.MAXIMUM] = self._extremes[:, number, 1].max()
        return found


def unpacked(
    positions: bytes, values: bytes, kind: np.dtype[Any], words: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
    """Positions and values in an array of *words*. LinkError when they do not fit it."""
    if len(positions) % POSITION.itemsize or len(values) % kind.itemsize:
        raise LinkError("changed words were received that are not complete")
    at, found = np.frombuffer(positions, POSITION).astype(np.intp), np.frombuffer(values, kind)
    if len(at) != len(found) or (len(at) and int(at.max()) >= words):
        raise LinkError(f"changed words were received for positions beyond the {words:,} that there are")
    return at, found


def apply(changes: Changes, words: Words) -> None:
    """Put *changes* into *words*, a C-contiguous array. LinkError when they do not fit it."""
    flat = words.reshape(-1)
    at, values = unpacked(changes.positions, changes.values, VALUE, len(flat))
    flat[at] = values
