"""Memory of a worker that is there before its clock starts: a page that is touched for the first time stops the worker for
it, for as long as the host takes to find one.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

PAGE = 4096
BLOCK = 16 << 20  # taken from the heap at once: more than the C library may be asked to keep on it
HEAP, PER_CONNECTION, MOST = 8 << 20, 4096, 64 << 20
ON_HEAP = 8 << 20  # what is larger has a mapping of its own, and goes back to the system when it is given back
OBJECTS, MOST_OBJECTS = 2 << 20, 32 << 20  # of Python's own small objects, besides PER_CONNECTION
OBJECT, HELD_EVERY = 448, 500  # one in so many stays, so that the interpreter gives none of its arenas back
KEPT = 16 << 20  # free at the end of the heap beyond what was there at first: then it shrinks
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt()


def warm_heap(connections: int) -> None:
    """Let the heap grow by what *connections* will want of it, and keep that: buffers of requests, templates of events,
    conversations. Another C library than glibc may give it back.
    """
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
    """The same for the interpreter's small objects, of which a connection of the event loop has some. What is returned is to
    be kept for as long as they are needed.
    """
    wanted = min(OBJECTS + connections * PER_CONNECTION, MOST_OBJECTS)
    return [bytes(OBJECT) for _ in range(wanted // OBJECT)][::HELD_EVERY]


def touch(array: npt.NDArray[np.generic] | None) -> None:
    """Read every page of a mapped array once."""
    if array is not None and array.size:
        array.view(np.uint8)[::PAGE].max()
