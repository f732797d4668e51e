"""Fills in the draft's checklist of a fair comparison (IETF 6.4) from the runs and their declarations."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator

from fastllmload.compare.side import Side, manifest_diff
from fastllmload.compare.workload import differences, unequal_requests
from fastllmload.declarations import simulated_declarations, strings
from fastllmload.documents.comparison import ChecklistEntry
from fastllmload.documents.run import RunDocument

BOUNDARY = "sut.boundary"
HARDWARE = ("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")
SAME_TIME_S = 3600.0  # most between the starts of runs that count as made at the same time
YES, NO, DECLARED, NOT_DECLARED = "yes", "NO", "declared", "not declared"
SUCCESS = ("goodput", "prefill_deadline", "decode_deadline", "reading_speed")
WARM_UP = ("warmup_requests", "warmup_tokens", "warmup_seconds", "ramp_share")


def stated(side: Side, key: str) -> str | None:
    """Value of the declaration *key* of a system; None where it is missing or differs between its runs."""
    values = {declared_of(document).get(key) for document in side.documents}
    return values.pop() if len(values) == 1 else None


def declared_of(document: RunDocument) -> dict[str, str]:
    """Declarations of a run: those of the simulated engine, overridden by those of the user."""
    return (simulated_declarations() if document.target.simulated else {}) | strings(document.declarations)


def hardware(side: Side) -> tuple[str | None, ...]:
    """Declared hardware, and the number of GPUs that the figures are normalised by."""
    asked = {str(document.config.output.gpus) for document in side.documents}
    return (*(stated(side, key) for key in HARDWARE), " or ".join(sorted(asked)))


def unequal_systems(sides: list[Side]) -> list[str]:
    """Differences between the systems' workloads, in their rules or in the requests sent (IETF 6.1)."""
    return list(dict.fromkeys([*differences(sides), *unequal_requests(sides)]))


def checklist(sides: list[Side]) -> Iterator[ChecklistEntry]:
    """All items of IETF 6.4, and the boundary and hardware of 6.1."""
    unequal = unequal_systems(sides)
    yield _judged("same workload", not unequal, "; ".join(unequal) or "requests, order, arrivals and seeds are equal")
    yield _same("same test duration", sides, "load", ("duration", "num_requests"))
    yield _same("same warm-up", sides, "load", WARM_UP)
    yield _same("same success criteria", sides, "output", SUCCESS)
    yield _same("same time limits", sides, "load", ("timeout", "grace"))
    yield _at_the_same_time(sides)
    yield _declared("production-representative", sides, "comparison.production_representative")
    yield _declared("boundary of the system", sides, BOUNDARY)
    yield _hardware(sides)
    count = len(manifest_diff(sides))
    yield ChecklistEntry(
        "differences noted", YES, f"{count} entries of the manifests differ" if count else "no entry differs"
    )


def _judged(name: str, holds: bool, evidence: str) -> ChecklistEntry:
    return ChecklistEntry(name, YES if holds else NO, evidence)


def _same(name: str, sides: list[Side], section: str, keys: tuple[str, ...]) -> ChecklistEntry:
    settings = [getattr(document.config, section) for side in sides for document in side.documents]
    found = [{key: getattr(each, key) for key in keys} for each in settings]
    unequal = [key for key in keys if any(each[key] != found[0][key] for each in found)]
    values = ", ".join(f"{key} {found[0][key]}" for key in keys if found[0][key] not in (None, (), 0))
    return _judged(name, not unequal, f"{', '.join(unequal)} differ" if unequal else values or "none set")


def _declared(name: str, sides: list[Side], key: str) -> ChecklistEntry:
    declared = {side.name: stated(side, key) for side in sides}
    if None in declared.values():
        missing = ", ".join(side for side, value in declared.items() if value is None)
        return ChecklistEntry(name, NOT_DECLARED, f"declare {key} for {missing}")
    return ChecklistEntry(name, DECLARED, ", ".join(f"{side}: {value}" for side, value in declared.items()))


def _hardware(sides: list[Side]) -> ChecklistEntry:
    found = [hardware(side) for side in sides]
    if len(set(found)) == 1:
        return ChecklistEntry(
            "comparable hardware", YES if None not in found[0] else NOT_DECLARED, _hardware_text(found[0])
        )
    return _judged("comparable hardware", False, " | ".join(_hardware_text(each) for each in found))


def _hardware_text(found: tuple[str | None, ...]) -> str:
    known = [
        f"{key.rpartition('.')[2]} {value}" for key, value in zip((*HARDWARE, "gpus"), found, strict=True) if value
    ]
    return ", ".join(each for each in known if not each.endswith(" None")) or "nothing declared"


def _at_the_same_time(sides: list[Side]) -> ChecklistEntry:
    shared = {stated(side, "comparison.shared_resources") for side in sides}
    begun = [str(document.environment.time_utc) for side in sides for document in side.documents]
    try:
        times = [datetime.datetime.fromisoformat(each) for each in begun]
    except ValueError:
        return ChecklistEntry("same time", NOT_DECLARED, "a run does not say when it began")
    span = (max(times) - min(times)).total_seconds()
    minutes = max(1, math.ceil(span / 60))
    evidence = f"all runs began within {f'{minutes:,} minutes' if minutes > 1 else 'a minute'}"
    if shared == {"no"}:
        return ChecklistEntry("same time", DECLARED, f"no resources are shared; {evidence}")
    if None in shared:
        return ChecklistEntry("same time", NOT_DECLARED, f"declare comparison.shared_resources; {evidence}")
    return _judged("same time", span <= SAME_TIME_S, f"resources are shared; {evidence}")
