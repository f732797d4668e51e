"""Allocations of a worker while its clock runs need no new pages."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from fastllmload.engine.workers.memory import warm_objects
held = warm_objects(int(sys.argv[1])) if sys.argv[1] != "none" else []
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
kept = [bytes(400) for _ in range(1_000)] + [(n, n + 1, n + 2) for n in range(1_000, 9_000)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(("connections", "most"), [("none", None), ("0", 60), ("1000", 60)])
def test_small_objects_need_no_new_pages(connections: str, most: int | None) -> None:
    """1.5 MB of objects: some hundred page faults without warm_objects; the remaining ones are of the list, on the heap."""
    done = subprocess.run([sys.executable, "-c", FAULTS, connections], capture_output=True, text=True, check=True)
    faults = int(done.stdout)
    assert faults > 200 if most is None else faults <= most


CODE = """
import re
import fastllmload._ext.send.reactor
from fastllmload.engine.workers.memory import warm_code
warm_code()
smaps = open("/proc/self/smaps").read()
print(re.findall(r"r-xp .*/_ext/.*\\nSize: +(\\d+) kB(?:\\n.*){2}\\nRss: +(\\d+) kB", smaps))
"""


def test_all_of_the_compiled_code_is_in_memory() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    mappings = ast.literal_eval(done.stdout)
    assert len(mappings) > 10
    assert all(size == resident for size, resident in mappings)
