"""One real run against the simulated engine, made once per test process: for tests that read what a run leaves."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OPTIONS = (
    "--duration 2 --warmup 4 --workers 1 --ui none --goodput ttft:30 --simulate fault=close:0.1 --cancel-share 0.1"
)
CLASSES = ("chat rate=25 osl=8 turns=2", "code rate=15 osl=6 isl=40")


@functools.cache
def real_run() -> Path:
    """Its folder; copy it before you change anything."""
    scratch = Path(tempfile.mkdtemp(prefix="fastllmload-run-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    folder = scratch / "run"
    classes = [word for each in CLASSES for word in ("--class", each)]
    command = [
        sys.executable,
        "-m",
        "fastllmload",
        *OPTIONS.split(),
        "--cancel-after",
        "3tok",
        *classes,
        "-o",
        str(folder),
    ]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder
