"""Faults in a worker's memory before its clock starts, since the first access to a page stops the worker."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAGE = 4096
BLOCK = 16 << 20  # taken from the heap at once: more than the C library may be asked to keep on it
HEAP, PER_CONNECTION, MOST = 8 << 20, 4096, 64 << 20
ON_HEAP = 8 << 20  # a larger block has its own mapping, which is returned to the system when it is freed
OBJECTS, MOST_OBJECTS = 2 << 20, 32 << 20  # of Python's own small objects, in addition to PER_CONNECTION
OBJECT, KEEP_EVERY = 448, 500  # one in KEEP_EVERY objects is kept, so that the interpreter frees none of its arenas
KEPT = 16 << 20  # the heap shrinks only when this much more than the initial size is free at its end
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt()
MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23  # of madvise(), Linux 5.14
MOST_CODE = 4 << 20  # of one mapping: what is larger is a library for matrices, which no request calls


def warm_heap(connections: int) -> None:
    """Grow the heap by what *connections* need, and keep it. C libraries other than glibc may return it to the system."""
    c = ctypes.CDLL(None)
    wanted = min(HEAP + connections * PER_CONNECTION, MOST)
    c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    c.free.argtypes = [ctypes.c_void_p]
    if hasattr(c, "mallopt"):
        c.mallopt(M_TRIM_THRESHOLD, wanted + KEPT)
        c.mallopt(M_MMAP_THRESHOLD, BLOCK + PAGE)
    blocks = [c.malloc(min(BLOCK, wanted - at)) for at in range(0, wanted, BLOCK)]
    for at, block in zip(range(0, wanted, BLOCK), blocks, strict=True):
        if block is not None:
            ctypes.memset(block, 0, min(BLOCK, wanted - at))
    for block in reversed(blocks):
        c.free(block)
    if hasattr(c, "mallopt"):
        c.mallopt(M_MMAP_THRESHOLD, ON_HEAP)


def warm_objects(connections: int) -> list[bytes]:
    """The same for the interpreter's small objects, for connections of the event loop, while the result is kept."""
    wanted = min(OBJECTS + connections * PER_CONNECTION, MOST_OBJECTS)
    return [bytes(OBJECT) for _ in range(wanted // OBJECT)][::KEEP_EVERY]


def warm_code() -> None:
    """Fault in the program and its libraries, also what only a rare failure reaches (Linux before 5.14: on first use)."""
    c = ctypes.CDLL(None)
    c.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    mappings = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    programs = {each[5] for each in mappings if "x" in each[1] and each[5:] and each[5].startswith("/")}
    for each in mappings:
        begin, end = (int(address, 16) for address in each[0].split("-"))
        if each[5:] and each[5] in programs and "r" in each[1] and end - begin <= MOST_CODE:
            c.madvise(begin, end - begin, MADV_POPULATE_WRITE if "w" in each[1] else MADV_POPULATE_READ)


def touch(array: npt.NDArray[np.generic] | None) -> None:
    """Read every page of a mapped array once."""
    if array is not None and array.size:
        array.view(np.uint8)[::PAGE].max()


def page_faults() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt
