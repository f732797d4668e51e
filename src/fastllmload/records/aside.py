"""What the folder of a run is called that was put aside, so that its own name is free for the run that is made anew."""

from __future__ import annotations

import re
from pathlib import Path

ASIDE = re.compile(r"\.cut-\d+$")


def runs_below(folder: Path) -> list[Path]:
    """Folders in *folder* by name, without those that were put aside; empty where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(place for place in folder.iterdir() if place.is_dir() and not ASIDE.search(place.name))
