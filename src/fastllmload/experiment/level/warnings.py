"""Warnings of levels, from their entries in procedure.json: each kind once, with the numbers of its levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastllmload.experiment.level.verdict import TOO_SHORT

Entry = Mapping[str, Any]


def level_warnings(levels: Sequence[Entry]) -> Iterator[str]:
    """Sentences for `warnings` from `criteria.warnings` of *levels*."""
    found: dict[str, list[tuple[Entry, str]]] = {}
    for level in levels:
        for text in (level.get("criteria") or {}).get("warnings") or ():
            found.setdefault(TOO_SHORT if str(text).endswith(TOO_SHORT) else str(text), []).append((level, str(text)))
    for kind, there in found.items():
        if len(there) == 1:
            [(level, text)] = there
            yield f"level {level.get('number')} ({level.get('name')}): {text}"
            continue
        numbers = ", ".join(str(level.get("number")) for level, _ in there)
        why = "the mean e2e latency is more than a tenth of each: " if kind == TOO_SHORT else ""
        yield f"levels {numbers}: {why}{kind}"
