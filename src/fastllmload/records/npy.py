"""The .npy files of a run folder, read with one sentence for each way in which they can be broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import RunFolderError

Array = npt.NDArray[Any]


def read_array(
    path: Path, dtype: np.dtype[Any] | None = None, shape: tuple[int | None, ...] | None = None, mapped: bool = False
) -> Array | None:
    """The array in *path*, None when the file is not there. RunFolderError when it is cut or of another layout.

    *dtype* and *shape* are what it must have, None in *shape* for any length. *mapped* maps it instead of reading it.
    """
    try:
        found: Array = np.load(path, mmap_mode="r" if mapped else None)
    except FileNotFoundError:
        return None
    except (ValueError, OSError, EOFError, MemoryError, TypeError) as problem:
        raise RunFolderError(
            f"{path} cannot be read as a .npy file, it may be truncated: {first_line(problem)}"
        ) from problem
    if dtype is not None and found.dtype != dtype:
        raise RunFolderError(
            f"{path} has records of another layout ({described(found.dtype)}, expected {described(dtype)}): it was "
            "written by another version; read it with that one"
        )
    if shape is not None and not fits(found.shape, shape):
        raise RunFolderError(
            f"{path} has the shape {found.shape}, expected {tuple('any' if n is None else n for n in shape)}: it was "
            "written by another version, or changed since"
        )
    return found


def fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(asked is None or n == asked for n, asked in zip(found, shape, strict=True))


def described(dtype: np.dtype[Any]) -> str:
    return f"{dtype.itemsize} bytes" if dtype.names else str(dtype)


def first_line(problem: BaseException) -> str:
    """numpy and the system say much in several lines; the first one is what happened."""
    return (str(problem).splitlines() or [type(problem).__name__])[0]
