"""Checks the network between client and system (IETF 4.7.3, B.3.3)."""

from __future__ import annotations

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged
from fastllmload.host.probe import is_loopback

NEAR_MS = 1.0


def connects(run: MeasuredRun) -> list[float]:
    """TCP connect times in ms, of the requests' connections or of the checks before the run."""
    p50 = run.get("metrics.rtt_ms.p50")
    return [float(p50)] if p50 is not None else sorted(float(ms) for ms in run.get("target.connect_ms") or ())


@check
def rtt_reported(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Network round trips are reported with the latencies."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = connects(run)
        if not found:
            return false("no round trip of the network was measured", "let the run make connections (TCP)")
        return judged(True, f"a round trip took {found[len(found) // 2]:.3g} ms")

    return each(evidence, judge)


@check
def near(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """On one machine a round trip takes less than a millisecond."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = connects(run)
        if not found:
            return inapplicable("no round trip was measured")
        middle = found[len(found) // 2]
        return judged(
            middle <= NEAR_MS, f"a round trip took {middle:.3g} ms", "check what is between client and server"
        )

    return each(evidence, judge)


@check
def adjustment_documented(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """An adjusted latency has its own name and states what is subtracted; the plain one is reported too."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        adjusted = run.get("metrics.ttft_net_adjusted")
        if adjusted is None:
            return inapplicable("no latency was adjusted")
        stated = adjusted.get("rtt_p50_ms") is not None and run.get("metrics.ttft.n") is not None
        return judged(
            stated, f"ttft less a round trip of {adjusted.get('rtt_p50_ms')} ms", "leave out --ttft-net-adjusted"
        )

    return each(evidence, judge)


@check
def topology_is(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    found = facts.topology(evidence)
    return judged(found == name, f"the topology is {found or 'not known'}", "run the client on the system's machine")


@check
def loopback(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every address of the target is a loopback one."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = [str(address) for address in run.get("target.addresses") or ()]
        if run.get("config.target.unix_socket") is not None:
            return judged(True, "the target is a local socket")
        local = bool(found) and all(is_loopback(address) for address in found)
        return judged(local, f"addresses: {', '.join(found) or 'none'}", "use http://127.0.0.1")

    return each(evidence, judge)
