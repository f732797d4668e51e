"""Checks that compared systems were measured in the same way (IETF 6)."""

from __future__ import annotations

import datetime
from operator import attrgetter
from typing import Any

import msgspec

from fastllmload.compare.side import RunRecord, Side
from fastllmload.compare.workload import unequal_repetitions, unequal_requests
from fastllmload.compliance import facts
from fastllmload.compliance.applies import HARDWARE, hardware_of
from fastllmload.compliance.checks.declared import lacking
from fastllmload.compliance.checks.runs import with_arguments
from fastllmload.compliance.evidence import SCHEDULE, ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, judged, true, undeclared
from fastllmload.declarations import by_key
from fastllmload.documents.plan import ArrivalFacts, LoadDescription
from fastllmload.settings import RunSettings

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
        simulated = one.first(lambda document: document.config.target.simulate or None)
        by_declarations.setdefault(text([declared, simulated]), []).append(one)
    if len(by_declarations) > 1:
        return list(by_declarations.values())
    by_url: dict[str, list[ComplianceEvidence]] = {}
    for one in together(evidence):
        urls = None if one.simulated else one.first(lambda document: document.target.urls or None)
        by_url.setdefault(text(urls), []).append(one)
    return list(by_url.values())


def sides_of(evidence: ComplianceEvidence) -> list[list[ComplianceEvidence]]:
    """The systems; each folder by itself where systems cannot be distinguished."""
    found = systems(evidence)
    return found if len(found) > 1 else [[one] for one in together(evidence)]


def text(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def same_requests(evidence: ComplianceEvidence) -> RequirementOutcome:
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
        Side(str(side[0].folder), tuple(record(run) for run in measured))
        for side, measured in zip(sides, runs, strict=True)
    ]
    loads = [{text(run.description.load) for run in side} for side in runs]
    if sides[0][0].procedure is None or all(each == loads[0] for each in loads):
        return unequal_requests(found)
    return unequal_repetitions(tuple(run for side in found for run in side.runs)) if k == 0 else []


def record(run: MeasuredRun) -> RunRecord:
    return RunRecord(run.run.directory, run.run.document)


def same_boundary(evidence: ComplianceEvidence) -> RequirementOutcome:
    missing = [str(one.folder) for one in together(evidence) if facts.boundary(one) is None]
    if missing:
        return lacking("sut.boundary", f"the boundary is not declared for {', '.join(missing)}")
    values = [str(facts.boundary(one)) for one in together(evidence)]
    reason = f"boundary: {' and '.join(dict.fromkeys(value[:60] for value in values))}"
    return judged(len(set(values)) == 1, reason, "compare equal boundaries")


def comparable_hardware(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Hardware is equal, or a normalisation is declared."""
    found = hardware_of(evidence)
    if any(None in one.values() for one in found):
        remedy = "; ".join(by_key()[key].remedy for key in HARDWARE)
        return undeclared("the hardware of a system is not declared", remedy)
    if all(one == found[0] for one in found):
        return true("the hardware is equal")
    said = evidence.declared.get("comparison.normalisation")
    if said is None:
        return lacking("comparison.normalisation", "the hardware differs and no normalisation is declared")
    return RequirementOutcome(DECLARED, said)


def same_load(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Each repetition has one with the same load on every other system: model, rate or concurrency, bounds, arrivals."""
    sides = sides_of(evidence)
    found = [{text(one.distinct(attrgetter("plan.description.load"))): one for one in side} for side in sides]
    known = all(run.description.load != LoadDescription() for one in together(evidence) for run in one.runs)
    unmatched = [
        f"no run of {other[0].folder} has the load of {one.folder}"
        for side, own in zip(sides, found, strict=True)
        for other, others in zip(sides, found, strict=True)
        for load, one in own.items()
        if load not in others and other is not side
    ]
    loads = ", ".join(dict.fromkeys(load_text(run) for one in together(evidence) for run in one.runs))
    return judged(known and not unmatched, "; ".join([f"load: {loads}", *dict.fromkeys(unmatched)]), MEASURE_EQUALLY)


def load_text(run: MeasuredRun) -> str:
    """`40 requests/s, poisson, 42/arrivals`, `8 slots`; of a mix both."""
    described, slots = run.description.load, sum(run.description.closed_classes.values())
    most = "up to " if run.description.slots_change else ""
    if described.concurrency is not None:
        return f"{most}{described.concurrency} slots"
    arrivals = described.arrivals or ArrivalFacts()
    stream = f" ({arrivals.stream})" if arrivals.stream else ""
    return f"{arrivals.rate} requests/s {arrivals.name}{stream}" + (f" + {most}{slots} slots" if slots else "")


# Without a key word: the draft's advice on claims, and its list to be checked before publishing


@with_arguments
def normalised(evidence: ComplianceEvidence, name: str) -> RequirementOutcome:
    values = [one.first(lambda document: document.metric(name).value) for one in together(evidence)]
    reason = f"{name}: {', '.join(map(str, values))}"
    return judged(None not in values, reason, "measure with --gpus and --price-per-hour")


def intervals(evidence: ComplianceEvidence) -> RequirementOutcome:
    gone = {
        name for name in ("ttft", "tpot", "e2e") for one in together(evidence) for run in one.runs
        if run.samples(name) and run.document.metric(name).ci95 is None
    }  # fmt: skip
    return judged(not gone, f"{', '.join(sorted(gone))} lacks intervals" if gone else "all have intervals", "-n 1000")


def repeated(evidence: ComplianceEvidence) -> RequirementOutcome:
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


def begun(one: ComplianceEvidence) -> str:
    """Identity of the measurement, which is the same in a copy of its folder."""
    return text([[run.document.environment.time_utc, run.document.phases] for run in one.runs])


def drawn(one: ComplianceEvidence) -> str | None:
    """Identity of the arrivals, where they are random; else None."""
    seeded = any(record(run).drawn for run in one.runs)
    return text([run.document.plan.digest for run in one.runs]) if seeded else None


@with_arguments
def same_settings(evidence: ComplianceEvidence, *names: str) -> RequirementOutcome:
    found = [one.distinct(attrgetter(*names)) for one in together(evidence)]
    alike = all(one == found[0] for one in found)
    return judged(alike, f"{', '.join(names)} {'are equal' if alike else 'differ'}", "measure both in the same way")


def same_time(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Shared resources: the systems were measured within an hour of each other."""
    shared = evidence.declared.get("comparison.shared_resources")
    if shared is None:
        return lacking("comparison.shared_resources", "whether resources are shared is not declared")
    if shared == "no":
        return RequirementOutcome(DECLARED, "no resources are shared")
    begun = [one.first(lambda document: document.environment.time_utc) for one in together(evidence)]
    times = [datetime.datetime.fromisoformat(str(time)) for time in begun]
    span = (max(times) - min(times)).total_seconds()
    reason = f"the runs began {span / 60:,.0f} minutes apart"
    return judged(span <= SAME_TIME_S, reason, "measure them at the same time")


def differences_known(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Every run has its configuration, so that differences can be listed."""
    found = [one.first(lambda document: document.config) or RunSettings() for one in together(evidence)]
    missing = [str(one.folder) for one, each in zip(together(evidence), found, strict=True) if each == RunSettings()]
    if missing:
        return false(f"no configuration in {', '.join(missing)}", "measure with this version")
    parts = {
        part for part in RunSettings.__struct_fields__ for one in found if getattr(one, part) != getattr(found[0], part)
    }
    return true(f"configurations differ in: {', '.join(sorted(parts)) or 'nothing'}")
