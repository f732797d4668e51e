"""Checks clocks and the network: format of stamps, synchronisation where two clocks are used, round trips (IETF 4.7)."""

from __future__ import annotations

import math
import re

from fastllmload.compliance import facts
from fastllmload.compliance.applies import number
from fastllmload.compliance.checks.declared import lacking
from fastllmload.compliance.checks.runs import per_run, with_arguments
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true
from fastllmload.documents.fields import known

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,}Z")


@with_arguments
def topology_is(evidence: ComplianceEvidence, name: str) -> RequirementOutcome:
    found = facts.topology(evidence)
    reason = f"the topology is {found or 'not known'}"
    return judged(found == name, reason, "run the client on the system's machine")


def synchronised(evidence: ComplianceEvidence) -> RequirementOutcome:
    """The offset of two clocks is at most 10 ms, where a figure uses both."""
    hosts_ms = facts.hosts_clock_ms(evidence)
    if hosts_ms is not None and (hosts_ms > facts.NTP_MS or not facts.server_stamps(evidence)):
        reason = f"the clocks of the client's hosts are known within {hosts_ms:.3g} ms of the driver's"
        return judged(hosts_ms <= facts.NTP_MS, reason, "use a quieter network between the hosts and measure again")
    if not facts.server_stamps(evidence):
        return true("every figure is from one clock, the client's; nothing has to be synchronised")
    offset = number(evidence.declared.get("clock.offset_ms"))
    if offset is None:
        return lacking("clock.offset_ms", "the offset of the clocks is not declared")
    reason = f"the declared offset is {offset:g} ms, allowed are {facts.NTP_MS:g} ms"
    return judged(abs(offset) <= facts.NTP_MS, reason, "synchronise the clocks (chronyc tracking) and measure again")


def precise_enough(evidence: ComplianceEvidence) -> RequirementOutcome:
    """PTP where an accuracy below a millisecond is needed."""
    method = evidence.declared.get("clock.method", "")
    reason = f"clocks are synchronised by {method or 'nothing declared'}"
    return judged("ptp" in method.lower(), reason, "synchronise with PTP and declare clock.method=ptp")


@with_arguments
def synchronisation_stated(evidence: ComplianceEvidence, key: str) -> RequirementOutcome:
    """Method or accuracy of synchronisation is declared, unless only clocks of the client are used: these it compares."""
    hosts_ms = facts.hosts_clock_ms(evidence)
    if hosts_ms is not None and not facts.server_stamps(evidence):
        reason = f"clocks of the client's hosts, compared by exchanges of datagrams: known within {hosts_ms:.3g} ms"
        return judged(math.isfinite(hosts_ms), reason, "let UDP pass between the hosts and measure again")
    if not facts.server_stamps(evidence):
        return true(
            "one client clock (CLOCK_MONOTONIC): no method is needed and nothing is added to the accuracy"
        )  # fmt: skip
    value = evidence.declared.get(key)
    return lacking(key) if value is None else true(f"declared: {value}")


@per_run
def rtt_reported(run: MeasuredRun) -> RequirementOutcome:
    """Network round trips are reported with the latencies: of the requests' connections, or of the checks before the run."""
    p50 = known(run.document.metric("rtt_ms").p50)
    found = [p50] if p50 is not None else sorted(run.document.target.connect_ms)
    if not found:
        return false("no round trip of the network was measured", "let the run make connections (TCP)")
    return true(f"a round trip took {found[len(found) // 2]:.3g} ms")


@per_run
def adjustment_documented(run: MeasuredRun) -> RequirementOutcome:
    """An adjusted latency has its own name and states what is subtracted; the plain one is reported too."""
    adjusted = run.metric("ttft_net_adjusted")
    if adjusted is None:
        return inapplicable("no latency was adjusted")
    stated = adjusted.rtt_p50_ms is not None and run.document.metric("ttft").n is not None
    reason = f"ttft less a round trip of {adjusted.rtt_p50_ms} ms"
    return judged(stated, reason, "leave out --ttft-net-adjusted")


@per_run
def iso_times(run: MeasuredRun) -> RequirementOutcome:
    """Wall-clock instants of phases are written with milliseconds and Z."""
    written = [phase.start_utc for phase in run.document.phases if phase.start_utc]
    if not written:
        return false("no wall-clock instant of a phase is recorded", "measure with this version")
    wrong = [text for text in written if not ISO.fullmatch(text)]
    return judged(not wrong, f"phases began at {(wrong or written)[0]}", "record milliseconds and Z")
