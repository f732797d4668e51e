"""Outputs compared byte for byte with files under tests/golden.

After an intended change: FLL_GOLDEN=write python -m pytest <the test>, then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def same_as_golden(name: str, text: str) -> None:
    """*text* is what tests/golden/*name* holds."""
    path = GOLDEN / name
    if os.environ.get("FLL_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    assert text == path.read_text(encoding="utf-8"), f"tests/golden/{name} differs"
