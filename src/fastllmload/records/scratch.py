"""Room for arrays with an item per event: large ones lie in nameless files beside the run, where the kernel can write them
out, so that what a process needs of memory does not grow with the run.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

LARGE = 1 << 25  # bytes


def room(items: int, dtype: npt.DTypeLike, beside: Path | None) -> npt.NDArray[Any]:
    """An array of so many *items*, not initialised. Without *beside*, or where no file can be made there, in memory."""
    found = mapped(items, np.dtype(dtype), beside)
    return np.empty(items, dtype) if found is None else found


def zeros(items: int, dtype: npt.DTypeLike, beside: Path | None) -> npt.NDArray[Any]:
    """The same, of zeros."""
    found = mapped(items, np.dtype(dtype), beside)
    return np.zeros(items, dtype) if found is None else found


def mapped(items: int, dtype: np.dtype[Any], beside: Path | None) -> npt.NDArray[Any] | None:
    """Zeros in a file without a name; None for a small array, and where there is no place for a file."""
    size = items * dtype.itemsize
    if beside is None or size < LARGE:
        return None
    try:
        with tempfile.TemporaryFile(dir=beside) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # writing to a mapped hole on a full disk would kill the process
            return np.asarray(np.memmap(file, dtype, "r+", shape=(items,)))
    except OSError:  # a folder to read only, or a full disk: memory may still do
        return None
