"""Whether compared systems were measured alike (IETF 6)."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check
from fastllmload.compliance.declarations import by_key
from fastllmload.compliance.evidence import Evidence, Measured
from fastllmload.compliance.outcome import DECLARED, Outcome, false, judged, true, undeclared
from fastllmload.plan.seeded import drawn_from_a_seed

HARDWARE = ("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")
RUNS = 3
APART_S = 3600.0  # between two runs that count as at the same time


def together(evidence: Evidence) -> tuple[Evidence, ...]:
    return (evidence, *evidence.others)


def systems(evidence: Evidence) -> list[list[Evidence]]:
    """What is compared, by system: what is declared of it tells one from another; the URL only where nothing does."""
    by_words: dict[str, list[Evidence]] = {}
    for one in together(evidence):
        words = {key: said for key, said in one.declared.items() if key.startswith(("sut.", "software."))}
        by_words.setdefault(text([words, one.first("config.target.simulate")]), []).append(one)
    if len(by_words) > 1:
        return list(by_words.values())
    by_place: dict[str, list[Evidence]] = {}
    for one in together(evidence):
        place = None if one.simulated else one.first("target.urls")
        by_place.setdefault(text(place), []).append(one)
    return list(by_place.values())


def text(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def begun(one: Evidence) -> str:
    """Which measurement it is: the same in a copy of its folder."""
    return text([[run.get("environment.time_utc"), run.get("phases")] for run in one.runs])


def drawn(one: Evidence) -> str | None:
    """Its arrivals, where a seed draws them."""
    seeded = any(drawn_from_a_seed(run.get("plan.description.load")) for run in one.runs)
    return text([run.get("plan.digest") for run in one.runs]) if seeded else None


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
    """Load model, rate or concurrency, bounds, arrival stream: every repetition of a system has one of each other."""
    sides = systems(evidence)
    if len(sides) == 1:
        sides = [[one] for one in together(evidence)]
    found = [sorted({text(one.every("plan.description.load")) for one in side}) for side in sides]
    known = all(one.first("plan.description.load") is not None for one in together(evidence))
    alike = known and all(one == found[0] for one in found)
    told = dict.fromkeys(words for one in together(evidence) for words in map(load_words, one.runs))
    return judged(alike, f"load: {', '.join(told)}", "measure all with the same loads, seeds and repetitions")


def load_words(run: Measured) -> str:
    """`40 requests/s, poisson, 42/arrivals`, `8 slots`."""
    described = run.get("plan.description.load") or {}
    if described.get("concurrency") is not None:
        return f"{described['concurrency']} slots"
    arrivals = described.get("arrivals") or {}
    stream = f" ({arrivals['stream']})" if arrivals.get("stream") else ""
    return f"{arrivals.get('rate')} requests/s {arrivals.get('name')}{stream}"


def hardware_of(evidence: Evidence) -> list[dict[str, str | None]]:
    """As declared, of each that is compared."""
    return [{key: one.declared.get(key) for key in HARDWARE} for one in together(evidence)]


@check
def comparable_hardware(evidence: Evidence, /) -> Outcome:
    """Equal hardware, or a declared way of normalising."""
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
    """At least three independent runs of each system: a procedure is one run however many levels it has, a copy of a
    folder none, and runs at the same drawn arrivals are one look at these arrivals.
    """
    counts, arrivals = [], []
    for side in systems(evidence):
        runs = {begun(one): one for one in side}
        sequences = {drawn(one) for one in runs.values()}
        counts.append(len(runs))
        arrivals.append(len(runs) if None in sequences else len(sequences))
    told = f"runs per system: {', '.join(map(str, counts))}"
    if arrivals != counts:
        told += f"; arrival sequences per system: {', '.join(map(str, arrivals))}"
    return judged(
        min(arrivals) >= RUNS, told, f"measure {RUNS} each, with --repetition 0, 1, 2 and give all with --against"
    )


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
