"""Checks that compared systems were measured in the same way (IETF 6)."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from fastllmload.compare.side import RunRecord, Side
from fastllmload.compare.workload import unequal_repetitions, unequal_requests
from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check
from fastllmload.compliance.evidence import SCHEDULE, ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, judged, true, undeclared
from fastllmload.declarations import by_key
from fastllmload.plan.pace import has_drawn_arrivals

HARDWARE = ("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")
RUNS = 3
SAME_TIME_S = 3600.0  # most between two runs that count as at the same time
MOST_SENTENCES = 3
MEASURE_EQUALLY = (
    "measure every repetition with every system, with the same options, --seed and --repetition (or one --plan FILE), "
    "and give all of them"
)


def together(evidence: ComplianceEvidence) -> tuple[ComplianceEvidence, ...]:
    return (evidence, *evidence.others)


def systems(evidence: ComplianceEvidence) -> list[list[ComplianceEvidence]]:
    """The compared evidence by system. Systems differ in their declarations or, where these are equal, in their URL."""
    by_declarations: dict[str, list[ComplianceEvidence]] = {}
    for one in together(evidence):
        declared = {key: value for key, value in one.declared.items() if key.startswith(("sut.", "software."))}
        by_declarations.setdefault(text([declared, one.first("config.target.simulate")]), []).append(one)
    if len(by_declarations) > 1:
        return list(by_declarations.values())
    by_url: dict[str, list[ComplianceEvidence]] = {}
    for one in together(evidence):
        url = None if one.simulated else one.first("target.urls")
        by_url.setdefault(text(url), []).append(one)
    return list(by_url.values())


def text(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def begun(one: ComplianceEvidence) -> str:
    """Identity of the measurement, which is the same in a copy of its folder."""
    return text([[run.get("environment.time_utc"), run.get("phases")] for run in one.runs])


def drawn(one: ComplianceEvidence) -> str | None:
    """Identity of the arrivals, where they are random; else None."""
    seeded = any(has_drawn_arrivals(run.get("plan.description.load")) for run in one.runs)
    return text([run.get("plan.digest") for run in one.runs]) if seeded else None


def same(evidence: ComplianceEvidence, values: list[Any], what: str, remedy: str) -> RequirementOutcome:
    """All *values*, one per system, are equal and known."""
    known = all(value not in (None, "", [], [None]) for value in values)
    equal = all(value == values[0] for value in values)
    distinct = " and ".join(dict.fromkeys(str(value)[:60] for value in values))
    return judged(known and equal, f"{what}: {distinct}", remedy)


def sides_of(evidence: ComplianceEvidence) -> list[list[ComplianceEvidence]]:
    """The systems; each folder by itself where systems cannot be distinguished."""
    found = systems(evidence)
    return found if len(found) > 1 else [[one] for one in together(evidence)]


@check
def same_requests(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Repetition k of each system was sent the same requests (`compare.workload.unequal_requests`)."""
    empty = [str(one.folder) for one in together(evidence) if not one.levels]
    if empty:
        return false(f"nothing was measured in {', '.join(empty)}", "measure it again")
    sides = sides_of(evidence)
    fewest = min(len(one.levels) for one in together(evidence))
    unequal = list(dict.fromkeys(sentence for k in range(fewest) for sentence in unequal_levels(sides, k)))
    more = f"; and {len(unequal) - MOST_SENTENCES} more" if len(unequal) > MOST_SENTENCES else ""
    reason = "; ".join(unequal[:MOST_SENTENCES]) + more or "request sequences are equal"
    return judged(not unequal, reason, MEASURE_EQUALLY)


def unequal_levels(sides: list[list[ComplianceEvidence]], k: int) -> list[str]:
    """Differences between the requests of level *k* of a test, or of a run. Tests that find their own loads have the same
    requests at other instants; different loads are covered by another requirement (IETF 6.1-d).
    """
    runs = [[one.levels[k] for one in side] for side in sides]
    for run in (run for side in runs for run in side):
        run.need(SCHEDULE)
    found = [
        Side(str(side[0].folder), tuple(RunRecord(run.run.directory, run.run.manifest) for run in measured))
        for side, measured in zip(sides, runs, strict=True)
    ]
    loads = [{text(run.get("plan.description.load")) for run in side} for side in runs]
    if sides[0][0].procedure is None or all(each == loads[0] for each in loads):
        return unequal_requests(found)
    return unequal_repetitions(tuple(run for side in found for run in side.runs)) if k == 0 else []


@check
def same_boundary(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    missing = [str(one.folder) for one in together(evidence) if facts.boundary(one) is None]
    if missing:
        return undeclared(f"the boundary is not declared for {', '.join(missing)}", by_key()["sut.boundary"].remedy)
    return same(evidence, [facts.boundary(one) for one in together(evidence)], "boundary", "compare equal boundaries")


@check
def same_load(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Each repetition has one with the same load on every other system: model, rate or concurrency, bounds, arrivals."""
    sides = sides_of(evidence)
    found = [{text(one.every("plan.description.load")): one for one in side} for side in sides]
    known = all(one.first("plan.description.load") is not None for one in together(evidence))
    unmatched = [
        f"no run of {other[0].folder} has the load of {one.folder}"
        for side, own in zip(sides, found, strict=True)
        for other, others in zip(sides, found, strict=True)
        for load, one in own.items()
        if load not in others and other is not side
    ]
    loads = ", ".join(dict.fromkeys(text for one in together(evidence) for text in map(load_text, one.runs)))
    return judged(known and not unmatched, "; ".join([f"load: {loads}", *dict.fromkeys(unmatched)]), MEASURE_EQUALLY)


def load_text(run: MeasuredRun) -> str:
    """`40 requests/s, poisson, 42/arrivals`, `8 slots`."""
    described = run.get("plan.description.load") or {}
    if described.get("concurrency") is not None:
        return f"{described['concurrency']} slots"
    arrivals = described.get("arrivals") or {}
    stream = f" ({arrivals['stream']})" if arrivals.get("stream") else ""
    return f"{arrivals.get('rate')} requests/s {arrivals.get('name')}{stream}"


def hardware_of(evidence: ComplianceEvidence) -> list[dict[str, str | None]]:
    """Declared hardware of each compared run or procedure."""
    return [{key: one.declared.get(key) for key in HARDWARE} for one in together(evidence)]


@check
def comparable_hardware(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Hardware is equal, or a normalisation is declared."""
    found = hardware_of(evidence)
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
    return RequirementOutcome(DECLARED, said)


@check
def normalised(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """A normalised throughput for every system."""
    values = [one.first(f"metrics.{name}.value") for one in together(evidence)]
    return judged(
        None not in values, f"{name}: {', '.join(map(str, values))}", "measure with --gpus and --price-per-hour"
    )


@check
def intervals(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every key metric has a confidence interval in every run."""
    gone = [
        name for name in ("ttft", "tpot", "e2e") for one in together(evidence) for run in one.runs
        if run.get(f"metrics.{name}.n") and run.get(f"metrics.{name}.ci95") is None
    ]  # fmt: skip
    return judged(
        not gone, f"{'all have' if not gone else ', '.join(sorted(set(gone))) + ' lacks'} intervals", "-n 1000"
    )


@check
def repeated(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """At least three independent runs of each system. A procedure counts as one run, a copied folder does not count, and
    runs with the same random arrivals count once.
    """
    counts, arrivals = [], []
    for side in systems(evidence):
        runs = {begun(one): one for one in side}
        sequences = {drawn(one) for one in runs.values()}
        counts.append(len(runs))
        arrivals.append(len(runs) if None in sequences else len(sequences))
    reason = f"runs per system: {', '.join(map(str, counts))}"
    if arrivals != counts:
        reason += f"; arrival sequences per system: {', '.join(map(str, arrivals))}"
    return judged(
        min(arrivals) >= RUNS, reason, f"measure {RUNS} each, with --repetition 0, 1, 2 and give all with --against"
    )


@check
def same_setting(evidence: ComplianceEvidence, /, paths: list[str]) -> RequirementOutcome:
    """These values of run.json are equal for all systems."""
    found = [[one.every(path) for path in paths] for one in together(evidence)]
    alike = all(one == found[0] for one in found)
    return judged(alike, f"{', '.join(paths)} {'are equal' if alike else 'differ'}", "measure both in the same way")


@check
def same_time(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Shared resources: the systems were measured within an hour of each other."""
    shared = evidence.declared.get("comparison.shared_resources")
    if shared is None:
        return undeclared(
            "whether resources are shared is not declared", by_key()["comparison.shared_resources"].remedy
        )
    if shared == "no":
        return RequirementOutcome(DECLARED, "no resources are shared")
    times = [datetime.datetime.fromisoformat(str(one.first("environment.time_utc"))) for one in together(evidence)]
    span = (max(times) - min(times)).total_seconds()
    return judged(
        span <= SAME_TIME_S, f"the runs began {span / 60:,.0f} minutes apart", "measure them at the same time"
    )


@check
def differences_known(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every run has its configuration, so that differences can be listed."""
    missing = [str(one.folder) for one in together(evidence) if one.first("config") is None]
    if missing:
        return false(f"no configuration in {', '.join(missing)}", "measure with this version")
    first = together(evidence)[0].first("config")
    parts = sorted(
        {part for one in evidence.others for part in first if first[part] != (one.first("config") or {}).get(part)}
    )
    return true(f"configurations differ in: {', '.join(parts) or 'nothing'}")
