"""Passes the texts of a worker's failures to the row writer through memory: a worker never waits for a disk.

The memory is a memfd with a head and the texts as they are to be in their file.
"""

from __future__ import annotations

import os
import struct

HEAD = struct.Struct("<QQ")  # version of the texts, 0 while they change; their size


def create() -> int:
    """A descriptor of new memory for one worker, not inherited. OSError when the system gives none."""
    return os.memfd_create("texts", os.MFD_CLOEXEC)


def put(memory: int, version: int, texts: bytes) -> None:
    """Replace the texts; *version* is above 0 and differs from the one before. OSError when the system gives no memory."""
    os.pwrite(memory, HEAD.pack(0, 0), 0)
    os.pwrite(memory, texts, HEAD.size)
    os.pwrite(memory, HEAD.pack(version, len(texts)), 0)


def take(memory: int, known: int) -> tuple[int, bytes] | None:
    """(version, texts); None when there are none, when their version is *known*, and while they change."""
    head = os.pread(memory, HEAD.size, 0)
    version, size = HEAD.unpack(head) if head else (0, 0)
    if version in (0, known):
        return None
    texts = os.pread(memory, size, HEAD.size)
    return (version, texts) if os.pread(memory, HEAD.size, 0) == head else None
