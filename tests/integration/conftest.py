"""The real servers, installed once; a machine that cannot install them skips their tests with one sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def real_servers() -> Path:
    """The environment with llama.cpp's server, Envoy and the tiny model; nginx and HAProxy are on the PATH."""
    (ROOT / "build").mkdir(exist_ok=True)
    try:
        done = subprocess.run([ROOT / "tools" / "integration-setup"], capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        pytest.skip("the real servers could not be installed within 10 minutes (tools/integration-setup)")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        pytest.skip(f"the real servers cannot be installed here (tools/integration-setup: {last})")
    return ROOT / "build" / "integration-venv"
