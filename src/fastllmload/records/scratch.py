"""Allocates arrays with an item per event; large ones in unnamed files, so that memory does not grow with the run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

LARGE = 1 << 25  # bytes


def room(items: int, dtype: npt.DTypeLike, folder: Path | None) -> npt.NDArray[Any]:
    """An array of zeros; a small one, one without *folder*, and where no file can be made in it, in memory."""
    size = items * np.dtype(dtype).itemsize
    if folder is None or size < LARGE:
        return np.zeros(items, dtype)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # writing to a mapped hole on a full disk would kill the process
            return np.asarray(np.memmap(file, dtype, "r+", shape=(items,)))
    except OSError:  # a read-only folder, or a full disk: memory may suffice
        return np.zeros(items, dtype)
