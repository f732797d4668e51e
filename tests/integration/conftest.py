"""The real servers, installed once, and a Ray cluster; where that is impossible, one sentence says why tests are skipped."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.ray_hosts import NotPossible, RayHosts

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def installed() -> str | None:
    """Install what tests need besides the project; a sentence if that failed."""
    (ROOT / "build").mkdir(exist_ok=True)
    try:
        done = subprocess.run([ROOT / "tools" / "integration-setup"], capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "the real servers could not be installed within 10 minutes (tools/integration-setup)"
    if done.returncode == 0:
        return None
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"the real servers cannot be installed here (tools/integration-setup: {last})"


@pytest.fixture(scope="session")
def real_servers(installed: str | None) -> Path:
    """The environment with llama.cpp's server, Envoy and the tiny model; nginx and HAProxy are on the PATH."""
    if installed is not None:
        pytest.skip(installed)
    return ROOT / "build" / "integration-venv"


@pytest.fixture(scope="module")
def cluster(installed: str | None) -> Iterator[RayHosts]:
    """Three hosts in network namespaces, with Ray on each."""
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(RayHosts())
        except NotPossible as problem:
            pytest.skip(str(problem) if installed is None else f"{problem}; {installed}")
        yield hosts
