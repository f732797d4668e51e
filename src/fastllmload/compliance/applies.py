"""Evaluates the conditions under which a statement applies, each with an argument ("test ttft"). All of them must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastllmload.compliance import facts
from fastllmload.compliance.evidence import ComplianceEvidence

Reason = str | None  # why the statement does not apply; None where it does
HARDWARE = ("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")


def unless(holds: bool, reason: str) -> Reason:
    return None if holds else reason


def test(evidence: ComplianceEvidence, name: str) -> Reason:
    if evidence.test == name:
        return None
    return f"it belongs to the test {name}" + (f", this is {evidence.test}" if evidence.test else "")


def comparison(evidence: ComplianceEvidence, _: str) -> Reason:
    return unless(bool(evidence.others), "nothing is compared (--against FOLDER compares)")


def unequal_hardware(evidence: ComplianceEvidence, _: str) -> Reason:
    found = hardware_of(evidence)
    equal = all(None not in one.values() and one == found[0] for one in found)
    return "the hardware is equal" if equal else None


def hardware_of(evidence: ComplianceEvidence) -> list[dict[str, str | None]]:
    """Declared hardware of each compared run or procedure."""
    return [{key: one.declared.get(key) for key in HARDWARE} for one in (evidence, *evidence.others)]


def workload(evidence: ComplianceEvidence, name: str) -> Reason:
    return unless(name in facts.workload_names(evidence), f"the workload is not {name}")


def kind(evidence: ComplianceEvidence, name: str) -> Reason:
    from_file = any(one.dataset is not None for run in evidence.runs for one in run.workloads)
    if name == "dataset" and from_file:
        return None
    return unless(name in facts.kinds(evidence), f"the workload is not a {name} one")


def boundary(evidence: ComplianceEvidence, name: str) -> Reason:
    declared = facts.boundary(evidence)
    return unless(declared == name, f"the boundary is {declared or 'not declared'}, not {name}")


def load(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.loop(evidence)
    return unless(found in (name, "mixed"), f"the load is {found} loop")


def start(evidence: ComplianceEvidence, name: str) -> Reason:
    return unless(facts.cold_start(evidence) == (name == "cold"), f"this is not a {name} start")


def topology(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.topology(evidence)
    return unless(found == name, f"the topology is {found or 'not known'}")


def clock(evidence: ComplianceEvidence, name: str) -> Reason:
    method = evidence.declared.get("clock.method", "").lower()
    by_chrony = name == "ntp" and "chrony" in method
    return unless(name in method or by_chrony, f"clocks are not declared to be synchronised by {name.upper()}")


def accuracy(evidence: ComplianceEvidence, _: str) -> Reason:
    needed = number(evidence.declared.get("clock.required_accuracy_ms"))
    return unless(needed is not None and needed < 1.0, "no accuracy below a millisecond is declared to be needed")


def protocol(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.protocol(evidence)
    return unless(name in (found or "").split(" and "), f"the protocol is {found or 'not known'}")


def itl(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.itl_option(evidence)
    return unless(found == name, f"the ITL option is {found or 'not known'}")


def counting(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.counting_option(evidence)
    return unless(found == name, f"tokens were counted by option {found or 'neither A nor B'}")


def cache(evidence: ComplianceEvidence, _: str) -> Reason:
    if evidence.test == "prefix-cache":
        return "the test of the cache fills it in its own phase"
    warm = evidence.declared.get("prefix_cache.state") == "warm"
    return unless(warm, "no warm prefix cache is declared to be under test")


def stamps(evidence: ComplianceEvidence, _: str) -> Reason:
    return unless(facts.server_stamps(evidence), "no client metric contains a time stamp of the server")


def adjusted(evidence: ComplianceEvidence, _: str) -> Reason:
    found = any(run.metric("ttft_net_adjusted") is not None for run in evidence.runs)
    return unless(found, "no latency was adjusted")


def leading(evidence: ComplianceEvidence, _: str) -> Reason:
    return unless(facts.leading_content(evidence) > 0, "nothing came before the first content")


def percentile(evidence: ComplianceEvidence, name: str) -> Reason:
    found = any(run.document.metric("ttft").statistic(name) is not None for run in evidence.runs)
    return unless(found, f"no {name} of TTFT is reported")


CONDITIONS: dict[str, Callable[[ComplianceEvidence, str], Reason]] = {
    "test": test, "comparison": comparison, "unequal_hardware": unequal_hardware, "workload": workload, "kind": kind,
    "boundary": boundary, "load": load, "start": start, "topology": topology, "clock": clock, "accuracy": accuracy,
    "protocol": protocol, "itl": itl, "counting": counting, "cache": cache, "stamps": stamps, "adjusted": adjusted,
    "leading": leading, "percentile": percentile,
}  # fmt: skip


def why_not(evidence: ComplianceEvidence, words: Sequence[str]) -> Reason:
    """The first reason why a statement does not apply; None when it does. ValueError for an unknown condition."""
    for word in words:
        name, _, argument = word.partition(" ")
        if name not in CONDITIONS:
            raise ValueError(f"applies = {word!r} is not a known condition")
        reason = CONDITIONS[name](evidence, argument)
        if reason is not None:
            return reason
    return None


def number(text: str | None) -> float | None:
    """The number at the beginning of a declaration; None without one."""
    if text is None:
        return None
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
