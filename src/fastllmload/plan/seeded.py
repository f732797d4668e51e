"""Whether the arrivals of a run were drawn from a seed, so that another repetition has others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIXED = ("constant", "trace")  # arrivals that no seed draws


def drawn_from_a_seed(load: Mapping[str, Any] | None) -> bool:
    """*load*: `plan.description.load` of run.json. False in a closed loop, which has no arrivals."""
    arrivals = (load or {}).get("arrivals") or {}
    return arrivals.get("stream") is not None and arrivals.get("name") not in FIXED
