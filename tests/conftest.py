"""Property tests draw the same examples in every run; FASTLLMLOAD_EXPLORE=1 draws others, to look for more.

FASTLLMLOAD_EXAMPLES is how many a test draws that asks for no number.
"""

from __future__ import annotations

import gc
import os

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of numpy's library would spin while they wait for a core

from hypothesis import settings

examples = int(os.environ.get("FASTLLMLOAD_EXAMPLES", "100"))
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=examples)
settings.register_profile("explore", deadline=None, max_examples=examples)
settings.load_profile("explore" if os.environ.get("FASTLLMLOAD_EXPLORE") else "steady")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and collected tests live until the process ends: a collection of garbage need not visit a million of them, and
    tests that count what is alive collect twice each.
    """
    gc.collect()
    gc.freeze()
