"""The memory of a connection is asked for before it is needed: a compiler may not drop that (conn.pxd)."""

from __future__ import annotations

import platform
import shutil
import subprocess

import pytest

from fastllmload._ext.send import reactor, transport

PREFETCHES = {"x86_64": "prefetch", "aarch64": "prfm"}
able = shutil.which("objdump") is not None and platform.machine() in PREFETCHES


@pytest.mark.skipif(not able, reason="no disassembler, or a machine whose instructions are not known here")
@pytest.mark.parametrize(("module", "least"), [(reactor, 2), (transport, 6)])
def test_the_compiled_hot_path_fetches(module: object, least: int) -> None:
    """A batch its next connections; a read three more lines of its own, those of its row and of its template."""
    listed = subprocess.run(["objdump", "-d", str(module.__file__)], capture_output=True, text=True, check=True)
    assert listed.stdout.count(PREFETCHES[platform.machine()]) >= least
