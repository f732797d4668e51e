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


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayHosts]:
    """Three hosts in network namespaces, with Ray on each."""
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(RayHosts())
        except NotPossible as problem:
            pytest.skip(str(problem))
        yield hosts
