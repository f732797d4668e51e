"""One process at a time works in a procedure's folder: a lock on the folder itself, which ends with the process however
that ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fastllmload.errors import InputError


def hold(folder: Path) -> int:
    """Take *folder*, which exists. The descriptor is the ownership: it ends with close(), or with the process; no child
    inherits it. InputError where another process has it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"{folder} is in use: another fastllmload is at work in it; wait for its end, or name a new folder with --output"
        ) from None
    except OSError:  # a file system without locks: nobody can be told
        pass
    return descriptor
