"""Maps one worker's shared memory (`counters.pxd`): no file, because a worker would stall with its disk."""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters, histogram
from fastllmload.errors import HostLimitError

SIZE = counters.TOTAL_WORDS * 8


class SharedWords:
    """One worker's *words*, an int64 array that keeps the mapping alive. Owns *descriptor*, which is inherited."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self.words: npt.NDArray[np.int64] = np.frombuffer(mmap.mmap(descriptor, SIZE), np.int64)

    @classmethod
    def create(cls) -> SharedWords:
        """New memory, all zero, not inherited by default. HostLimitError when the system gives none."""
        try:
            descriptor = os.memfd_create("words", os.MFD_CLOEXEC)
            try:
                os.posix_fallocate(descriptor, 0, SIZE)
            except OSError:
                os.close(descriptor)
                raise
        except OSError as problem:
            raise HostLimitError(
                "memory-unavailable",
                f"the system gives no memory for the counters of a worker: {problem.strerror}; "
                "check ulimit -f and ulimit -n",
            ) from problem
        return cls(descriptor)

    def histogram(self, number: int) -> npt.NDArray[np.int64]:
        """The words of histogram *number* (`counters.H_TTFT` ...), for the functions of `_ext.record.histogram`."""
        start = counters.histogram_start(number)
        return self.words[start : start + histogram.WORDS]

    def stalls(self) -> npt.NDArray[np.int64]:
        """Rows (begin, length, ready, running) in ns, in order: the newest stalls above `counters.STALL_NS`, and the longest
        one of the phase in any case. *ready*: time in it for which the thread was ready to run and had no processor;
        *running*: time for which it ran; -1: not known.
        """
        count = int(self.words[counters.W_STALLS])
        ring = self.words[counters.STALLS_START : counters.TOTAL_WORDS].reshape(-1, counters.STALL_WORDS)[:count]
        at, length = (int(self.words[word]) for word in (counters.W_STALL_MAX_AT, counters.W_STALL_MAX_NS))
        if length and not (ring[:, 0] == at).any():
            ring = np.concatenate([ring, [[at, length, -1, -1]]])
        return ring[np.argsort(ring[:, 0], kind="stable")]
