"""Lock on the folder of an experiment: one process at a time works in it. The lock ends with the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fastllmload.errors import InputError


def hold(folder: Path) -> int:
    """Lock *folder*, which exists. Returns the descriptor that owns the lock: close() releases it; children do not inherit
    it. InputError if another process holds the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"{folder} is in use: another fastllmload works in it; wait until it ends, or name a new folder with --output"
        ) from None
    except OSError:  # a file system without locks: work without one
        pass
    return descriptor
