"""Property tests draw the same examples in every run; FASTLLMLOAD_EXPLORE=1 draws others, to look for more."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("FASTLLMLOAD_EXPLORE") else "steady")
