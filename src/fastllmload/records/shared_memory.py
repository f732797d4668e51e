"""Maps the shared memory of one worker: int64 words in a file, with the layout of `counters.pxd`."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastllmload._ext import counters, histogram
from fastllmload.errors import HostLimitError, RunFolderError

SIZE = counters.TOTAL_WORDS * 8


class SharedWords:
    """One worker's words. *words* is an int64 array of `counters.TOTAL_WORDS` items that keeps the mapping alive."""

    def __init__(self, descriptor: int) -> None:
        self.words: npt.NDArray[np.int64] = np.frombuffer(mmap.mmap(descriptor, SIZE), np.int64)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> SharedWords:
        """Make the file *path*, all zero. FileExistsError if it exists, HostLimitError if it does not fit on the disk."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
            return cls(descriptor)
        except OSError as problem:
            os.unlink(path)
            raise HostLimitError(
                "disk-full",
                f"the {SIZE} bytes of shared memory do not fit at {os.fspath(path)}: {problem.strerror}; make room there",
            ) from problem
        finally:
            os.close(descriptor)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SharedWords:
        """Map the file that create() made. RunFolderError when it has another size."""
        size = Path(path).stat().st_size
        if size != SIZE:
            raise RunFolderError(
                "run-file-layout",
                f"{os.fspath(path)} has {size} bytes, but the shared memory of a worker has {SIZE}: "
                "it was written by another version; start the run again",
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

    def histogram(self, number: int) -> npt.NDArray[np.int64]:
        """The words of histogram *number* (`counters.H_TTFT` ...), for the functions of `_ext.histogram`."""
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
