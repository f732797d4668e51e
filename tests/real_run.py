"""One real run against the simulated engine, made once per test process: for tests that read what a run leaves."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OPTIONS = "--rate 40 --duration 2 --warmup 4 --osl 8 --workers 1 --ui none --goodput ttft:30 --simulate fault=close:0.1"


@functools.cache
def real_run() -> Path:
    """Its folder; copy it before you change anything."""
    scratch = Path(tempfile.mkdtemp(prefix="fastllmload-run-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    folder = scratch / "run"
    command = [sys.executable, "-m", "fastllmload", *OPTIONS.split(), "-o", str(folder)]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder
