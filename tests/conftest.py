"""Property tests draw the same examples in every run; FASTLLMLOAD_EXPLORE=1 draws others, to look for more.

FASTLLMLOAD_EXAMPLES is how many a test draws that asks for no number.
"""

from __future__ import annotations

import gc
import os

from hypothesis import settings

examples = int(os.environ.get("FASTLLMLOAD_EXAMPLES", "100"))
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=examples)
settings.register_profile("explore", deadline=None, max_examples=examples)
settings.load_profile("explore" if os.environ.get("FASTLLMLOAD_EXPLORE") else "steady")


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays to the end: without it a collection takes a hundredth of the time."""
    gc.collect()
    gc.freeze()
