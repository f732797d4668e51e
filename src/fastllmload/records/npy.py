"""Reads the .npy files of a run folder, with an error message for each way in which they can be damaged."""

from __future__ import annotations

import math
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import RunFolderError
from fastllmload.files import check_npy_head, regular

# Exceptions that numpy raises for invalid files.
UNREADABLE = (ValueError, OSError, EOFError, MemoryError, TypeError, SyntaxError, tokenize.TokenError, RecursionError)
Array = npt.NDArray[Any]


def read_array(
    path: Path, dtype: np.dtype[Any] | None = None, shape: tuple[int | None, ...] | None = None, mapped: bool = False
) -> Array | None:
    """The array in *path*, None when the file is not there. RunFolderError when it is cut or of another layout.

    *dtype* and *shape* are required, None in *shape* is any length. *mapped* maps it instead of reading it. Layouts that
    differ only in the names of `spare...` fields are the same.
    """
    try:
        regular(path)
        with path.open("rb") as file:
            check_npy_head(file)
        found: Array = np.load(path, mmap_mode="r" if mapped else None)
    except FileNotFoundError:
        return None
    except UNREADABLE as problem:
        head = read_head(path)
        if isinstance(problem, OSError):
            message = f"cannot be read: {problem.strerror}"
        elif head is not None and path.stat().st_size < head.expected_bytes:
            message = f"is cut: {size_text(path.stat().st_size, head.expected_bytes)}"
        else:
            first_line = (str(problem).splitlines() or [type(problem).__name__])[0]  # numpy's texts have several
            message = f"cannot be read as a .npy file, it may be truncated: {first_line}"
        raise RunFolderError("run-file-damaged", f"{path} {message}") from problem
    if dtype is not None and same_but_for_spares(found.dtype, dtype):
        found = found.view(dtype)
    if dtype is not None and found.dtype != dtype:
        raise RunFolderError(
            "run-file-layout",
            f"{path} has records of another layout ({difference(found.dtype, dtype)}): it was written by another "
            "version; read it with that one",
        )
    if shape is not None and not fits(found.shape, shape):
        raise RunFolderError(
            "run-file-layout",
            f"{path} has the shape {found.shape}, expected {tuple('any' if n is None else n for n in shape)}: it was "
            "written by another version, or changed since",
        )
    return found


@dataclass(frozen=True)
class Head:
    """The header of a .npy file; its records begin at *offset*."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def expected_bytes(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_head(path: Path) -> Head | None:
    """The header of a .npy file; None where it cannot be read."""
    try:
        regular(path)
        with path.open("rb") as file:
            check_npy_head(file)
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            return Head(dtype, shape, file.tell())
    except UNREADABLE:
        return None


def size_text(found: int, expected: int) -> str:
    return f"{found:,} bytes where {expected:,} are expected"


def complete_records(path: Path, dtype: np.dtype[Any]) -> Array:
    """Map the complete records of a truncated file of *dtype* records; none where its header cannot be read."""
    head = read_head(path)
    if head is None or not (head.dtype == dtype or same_but_for_spares(head.dtype, dtype)):
        return np.empty(0, dtype)
    count = min((path.stat().st_size - head.offset) // dtype.itemsize, math.prod(head.shape))
    if count <= 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset=head.offset, shape=(count,)))


def fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(
        required is None or n == required for n, required in zip(found, shape, strict=True)
    )


def same_but_for_spares(found: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Whether the records have the same fields at the same offsets, except for those named `spare...` in one of the two."""
    if found.fields is None or expected.fields is None or found.itemsize != expected.itemsize:
        return False
    actual, required = fields_of(found), fields_of(expected)
    spares = [(a, b) for a, b in zip(actual, required, strict=False) if a != b]
    return len(actual) == len(required) and all(
        a[0] == b[0] and a[1].itemsize == b[1].itemsize and (a[2].startswith("spare") or b[2].startswith("spare"))
        for a, b in spares
    )


def fields_of(dtype: np.dtype[Any]) -> list[tuple[int, np.dtype[Any], str]]:
    """(offset, type, name) of each field, in the order of offsets."""
    return sorted(
        ((int(entry[1]), entry[0], name) for name, entry in (dtype.fields or {}).items()), key=lambda field: field[0]
    )


def difference(found: np.dtype[Any], expected: np.dtype[Any]) -> str:
    if found.itemsize != expected.itemsize or found.fields is None or expected.fields is None:
        return f"{found if found.fields is None else found.itemsize}, expected {expected.itemsize} bytes per record"
    for actual, required in zip(found.descr, expected.descr, strict=False):
        if actual != required:
            return f"{actual[0]} where {required[0]} is expected"
    return "padding"
