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
    size = items * np.dtype(dtype).itemsize
    if beside is None or size < LARGE:
        return np.empty(items, dtype)
    try:
        with tempfile.TemporaryFile(dir=beside) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # writing to a mapped hole on a full disk would kill the process
            return np.asarray(np.memmap(file, dtype, "r+", shape=(items,)))
    except OSError:  # a folder to read only, or a full disk: memory may still do
        return np.empty(items, dtype)
