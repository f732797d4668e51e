"""How much of a run's connections goes to one place: local ports are used once per source address and place."""

from __future__ import annotations

from urllib.parse import urlsplit

import numpy as np

from fastllmload.records import layout
from fastllmload.records.run import Run

Place = tuple[str, int]  # numeric address, port


def crowded_share(run: Run) -> float | None:
    """The largest part of the connections that one place had, by the time that its requests took (Little's law); 1
    where the run does not tell. None where all places are Unix sockets, which use no ports.
    """
    target = run.manifest.get("target") or {}
    places = [
        place_of(url, str(at)) for url, at in zip(target.get("urls", ()), target.get("addresses", ()), strict=False)
    ]
    if not places:
        return 1.0
    if not any(places):
        return None
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_dispatch"] > 0) & (run.rows["t_end"] > 0)]
    mine = rows[rows["url"] < len(places)]
    held = np.bincount(mine["url"], (mine["t_end"] - mine["t_dispatch"]).astype(np.float64), len(places))
    parts: dict[Place, float] = {}
    for place, seconds in zip(places, held.tolist(), strict=True):
        if place is not None:
            parts[place] = parts.get(place, 0.0) + seconds
    return max(parts.values()) / float(held.sum()) if max(parts.values()) > 0 else 1.0


def place_of(url: str, address: str) -> Place | None:
    """Where *url* was found; None for a Unix socket, whose address is a path."""
    if "/" in address:
        return None
    parts = urlsplit(url)
    return address, parts.port or (443 if parts.scheme == "https" else 80)
