"""Lists differences between the sides other than the workload: target, host, versions, declarations, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastllmload.compare.side import Side
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import values

SECTIONS = ("tool", "config", "target", "environment", "declarations", "metadata")
PER_RUN = {  # entries that differ between any two runs
    "config.output.directory",
    "config.output.ui",
    "config.output.save_plan",
    "config.load.repetition",
    "environment.time_utc",
    "environment.clock_offset_ns",
    "target.connect_ms",
    "target.connect_after_ms",
    "target.probe_s",
    "target.addresses",
}


@dataclass(frozen=True)
class SetupDifference:
    """One entry of the manifest; *values* by side, each the values of its runs, as text."""

    key: str
    values: tuple[str, ...]


def manifest_diff(sides: list[Side]) -> list[SetupDifference]:
    """Entries, by name, whose sets of values differ between the sides."""
    flat = [[dict(_entries(document)) for document in side.documents] for side in sides]
    keys = sorted({key for runs in flat for run in runs for key in run})
    found = []
    for key in keys:
        values = tuple(" or ".join(sorted({run.get(key, "-") for run in runs})) for runs in flat)
        if len(set(values)) > 1 and key not in PER_RUN:
            found.append(SetupDifference(key, values))
    return found


def _entries(document: RunDocument) -> Iterator[tuple[str, str]]:
    for section in SECTIONS:
        for key, text in _flat(section, values(getattr(document, section))):
            own_port = document.target.simulated and key == "target.urls"  # the simulated engine takes any free port
            if not own_port:
                yield key, text


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    elif isinstance(value, list) and len(value) == 1:
        yield key, str(value[0])
    elif value is not None and value != [] and value != {}:
        yield key, str(value)
