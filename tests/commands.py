"""Commands of fastllmload in the process of the test, which has imported already what a new one would import for a second.

What begins or ends with a process (signals, standard streams, what is left of a killed one) needs one of its own.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import threading

from fastllmload.cli.main import main


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """Exit code and output of `fastllmload` with *words*."""
    arguments = [str(word) for word in words]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    finally:
        sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
    return subprocess.CompletedProcess(arguments, code, text(out), text(err))


def text(stream: io.TextIOWrapper) -> str:
    inner = stream.buffer
    assert isinstance(inner, io.BytesIO)
    return inner.getvalue().decode()
