"""Whether compared systems were measured alike (IETF 6)."""

from __future__ import annotations

import datetime
from typing import Any

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check
from fastllmload.compliance.declarations import by_key
from fastllmload.compliance.evidence import Evidence
from fastllmload.compliance.outcome import DECLARED, Outcome, false, judged, true, undeclared

HARDWARE = ("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")
RUNS = 3
APART_S = 3600.0  # between two runs that count as at the same time


def together(evidence: Evidence) -> tuple[Evidence, ...]:
    return (evidence, *evidence.others)


def same(evidence: Evidence, values: list[Any], what: str, remedy: str) -> Outcome:
    """All *values*, one per system, are equal and known."""
    known = all(value not in (None, "", [], [None]) for value in values)
    equal = all(value == values[0] for value in values)
    told = " and ".join(dict.fromkeys(str(value)[:60] for value in values))
    return judged(known and equal, f"{what}: {told}", remedy)


@check
def same_requests(evidence: Evidence, /) -> Outcome:
    """Same lengths in the same order, same seed and same description of the workload."""

    def fingerprint(one: Evidence) -> list[Any]:
        run = one.runs[0]
        members = run.plan.get("members") or {}
        lengths = [members.get(f"{side}_tokens.npy") for side in ("input", "output")]
        return [*lengths, run.get("plan.description.seed"), facts.workload(run)]

    found = [fingerprint(one) if one.runs else [None] for one in together(evidence)]
    alike = all(one == found[0] for one in found) and found[0][0] is not None
    return judged(alike, "request sequences are " + ("equal" if alike else "different"), "measure with one --plan FILE")


@check
def same_boundary(evidence: Evidence, /) -> Outcome:
    return same(evidence, [facts.boundary(one) for one in together(evidence)], "boundary", "compare equal boundaries")


@check
def same_load(evidence: Evidence, /) -> Outcome:
    """Load model, rate or concurrency, bounds, arrival stream."""
    found = [one.every("plan.description.load") for one in together(evidence)]
    return same(evidence, found, "load", "measure both with the same load and seed")


@check
def comparable_hardware(evidence: Evidence, /) -> Outcome:
    """Equal hardware, or a declared way of normalising."""
    found = [{key: one.declared.get(key) for key in HARDWARE} for one in together(evidence)]
    if any(None in one.values() for one in found):
        return undeclared(
            "the hardware of a system is not declared", "; ".join(by_key()[key].remedy for key in HARDWARE)
        )
    if all(one == found[0] for one in found):
        return true("the hardware is equal")
    said = evidence.declared.get("comparison.normalisation")
    if said is None:
        return undeclared(
            "the hardware differs and no normalisation is declared", by_key()["comparison.normalisation"].remedy
        )
    return Outcome(DECLARED, said)


@check
def normalised(evidence: Evidence, /, name: str) -> Outcome:
    """A normalised throughput for every system."""
    values = [one.first(f"metrics.{name}.value") for one in together(evidence)]
    return judged(
        None not in values, f"{name}: {', '.join(map(str, values))}", "measure with --gpus and --price-per-hour"
    )


@check
def intervals(evidence: Evidence, /) -> Outcome:
    """Every key metric has a confidence interval in every run."""
    gone = [
        name for name in ("ttft", "tpot", "e2e") for one in together(evidence) for run in one.runs
        if run.get(f"metrics.{name}.n") and run.get(f"metrics.{name}.ci95") is None
    ]  # fmt: skip
    return judged(
        not gone, f"{'all have' if not gone else ', '.join(sorted(set(gone))) + ' lacks'} intervals", "-n 1000"
    )


@check
def repeated(evidence: Evidence, /) -> Outcome:
    """At least three runs of each system."""
    per_system: dict[str, int] = {}
    for one in together(evidence):
        key = one.declared.get("sut.model.name", str(one.first("target.urls")))
        per_system[key] = per_system.get(key, 0) + len(one.runs)
    least = min(per_system.values())
    return judged(least >= RUNS, f"runs per system: {', '.join(map(str, per_system.values()))}", f"measure {RUNS} each")


@check
def same_setting(evidence: Evidence, /, paths: list[str]) -> Outcome:
    """Values of run.json that must be equal over all systems."""
    found = [[one.every(path) for path in paths] for one in together(evidence)]
    alike = all(one == found[0] for one in found)
    return judged(alike, f"{', '.join(paths)} {'are equal' if alike else 'differ'}", "measure both alike")


@check
def same_time(evidence: Evidence, /) -> Outcome:
    """Shared resources: the systems were measured within an hour of each other."""
    shared = evidence.declared.get("comparison.shared_resources")
    if shared is None:
        return undeclared(
            "whether resources are shared is not declared", by_key()["comparison.shared_resources"].remedy
        )
    if shared == "no":
        return Outcome(DECLARED, "no resources are shared")
    times = [datetime.datetime.fromisoformat(str(one.first("environment.time_utc"))) for one in together(evidence)]
    apart = (max(times) - min(times)).total_seconds()
    return judged(apart <= APART_S, f"the runs began {apart / 60:,.0f} minutes apart", "measure them side by side")


@check
def differences_known(evidence: Evidence, /) -> Outcome:
    """What differs between the manifests is computed, and each side is in the document."""
    gone = [str(one.folder) for one in together(evidence) if one.first("config") is None]
    if gone:
        return false(f"no configuration in {', '.join(gone)}", "measure with this version")
    first = together(evidence)[0].first("config")
    parts = sorted(
        {part for one in evidence.others for part in first if first[part] != (one.first("config") or {}).get(part)}
    )
    return true(f"configurations differ in: {', '.join(parts) or 'nothing'}")
