"""Checks clocks: resolution and format of stamps, synchronisation where two clocks are used (IETF 4.2.1, 4.7)."""

from __future__ import annotations

import re

import numpy as np

from fastllmload.compliance import facts
from fastllmload.compliance.applies import number
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true, undeclared
from fastllmload.declarations import by_key
from fastllmload.records.integrity import ROWS

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,}Z")
STAMPS = ("t_dispatch", "t_submit", "t_first", "t_last", "t_end")
ENOUGH = 10_000  # rows that are examined for the resolution


@check
def clock_resolution(evidence: ComplianceEvidence, /, at_most_ns: int) -> RequirementOutcome:
    """The greatest unit of which all stamps are multiples is at most *at_most_ns*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        unit = stamp_unit(run)
        if unit is None:
            return inapplicable("there are too few different time stamps to tell")
        return judged(unit <= at_most_ns, f"time stamps are multiples of {unit:,} ns", "measure with a finer clock")

    return each(evidence, judge)


def stamp_unit(run: MeasuredRun) -> int | None:
    """Greatest common divisor of the distances between stamps of some rows, in ns; None below three stamps."""
    run.need(ROWS)
    some = run.run.rows[:ENOUGH]
    stamps = np.concatenate([some[name] for name in STAMPS])
    different = np.unique(stamps[stamps > 0])
    return int(np.gcd.reduce(np.diff(different))) if len(different) >= 3 else None


@check
def iso_times(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Wall-clock instants of phases are written with milliseconds and Z."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        written = [phase.get("start_utc") for phase in run.get("phases") or () if phase.get("start_utc")]
        if not written:
            return false("no wall-clock instant of a phase is recorded", "measure with this version")
        wrong = [text for text in written if not ISO.fullmatch(str(text))]
        return judged(not wrong, f"phases began at {(wrong or written)[0]}", "record milliseconds and Z")

    return each(evidence, judge)


@check
def synchronised(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The offset of two clocks is at most 10 ms, where a figure uses both."""
    if not facts.server_stamps(evidence):
        return true("every figure is from one clock, the client's; nothing has to be synchronised")
    offset = number(evidence.declared.get("clock.offset_ms"))
    if offset is None:
        return undeclared("the offset of the clocks is not declared", by_key()["clock.offset_ms"].remedy)
    return judged(
        abs(offset) <= facts.NTP_MS,
        f"the declared offset is {offset:g} ms, allowed are {facts.NTP_MS:g} ms",
        "synchronise the clocks (chronyc tracking) and measure again",
    )


@check
def synchronisation_stated(evidence: ComplianceEvidence, /, key: str) -> RequirementOutcome:
    """Method or accuracy of synchronisation is declared, unless there is one client clock only."""
    if not facts.server_stamps(evidence):
        return true("one client clock (CLOCK_MONOTONIC): no method is needed and nothing is added to the accuracy")
    value = evidence.declared.get(key)
    if value is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    return true(f"declared: {value}")


@check
def inherent(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """One machine has one clock, so no method of synchronisation may be declared."""
    method = evidence.declared.get("clock.method", "").lower()
    return judged(
        method in ("", "inherent", "none"),
        f"one machine, one clock{f'; declared is {method}' if method else ''}",
        "leave out clock.method, or declare topology=distributed",
    )


@check
def offset_below(evidence: ComplianceEvidence, /, ms: float) -> RequirementOutcome:
    """The declared offset is below *ms*."""
    offset = number(evidence.declared.get("clock.offset_ms"))
    if offset is None:
        return undeclared("the offset is not declared", by_key()["clock.offset_ms"].remedy)
    return judged(abs(offset) < ms, f"the declared offset is {offset:g} ms, to be below {ms:g}", "synchronise better")


@check
def precise_enough(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """PTP where an accuracy below a millisecond is needed."""
    method = evidence.declared.get("clock.method", "")
    return judged(
        "ptp" in method.lower(),
        f"clocks are synchronised by {method or 'nothing declared'}",
        "synchronise with PTP and declare clock.method=ptp",
    )
