"""Finds and runs the linters of files that are not code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = (Path(sys.executable).parent, ROOT / "build/linters/bin", ROOT / "build/linters/node_modules/.bin")


def linter(*names: str) -> str:
    """The first of *names* that is installed; without any, the test is skipped."""
    for name in names:
        found = shutil.which(name) or next((str(place / name) for place in PLACES if (place / name).exists()), None)
        if found is not None:
            return found
    pytest.skip(f"{names[0]} is not installed; tools/check files installs it where it can be had")


def passes(command: str, *arguments: str | Path) -> str:
    """What *command* prints, which must end without a finding."""
    done = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
