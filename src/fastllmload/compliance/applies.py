"""Evaluates the conditions under which a statement applies, each with an argument ("test ttft"). All of them must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastllmload.compliance import facts
from fastllmload.compliance.evidence import ComplianceEvidence

Reason = str | None  # why the statement does not apply; None where it does
Condition = Callable[[ComplianceEvidence, str], Reason]
HARDWARE = ("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")


def only_if(holds: Callable[[ComplianceEvidence], bool], reason: str) -> Condition:
    """A condition without an argument."""
    return lambda evidence, _: None if holds(evidence) else reason


def is_one(holds: Callable[[ComplianceEvidence, str], bool], reason: str) -> Condition:
    """A condition on its argument, which is {name} in *reason*."""
    return lambda evidence, name: None if holds(evidence, name) else reason.format(name=name)


def is_fact(fact: Callable[[ComplianceEvidence], str | None], unknown: str, reason: str) -> Condition:
    """Whether a fact is the argument; {found} in *reason* is the fact, or *unknown*."""

    def condition(evidence: ComplianceEvidence, name: str) -> Reason:
        found = fact(evidence)
        return None if found == name else reason.format(found=found or unknown, name=name)

    return condition


def test(evidence: ComplianceEvidence, name: str) -> Reason:
    if evidence.test == name:
        return None
    return f"it belongs to the test {name}" + (f", this is {evidence.test}" if evidence.test else "")


def unequal_hardware(evidence: ComplianceEvidence) -> bool:
    found = hardware_of(evidence)
    return any(None in one.values() or one != found[0] for one in found)


def hardware_of(evidence: ComplianceEvidence) -> list[dict[str, str | None]]:
    """Declared hardware of each compared run or procedure."""
    return [{key: one.declared.get(key) for key in HARDWARE} for one in (evidence, *evidence.others)]


def has_kind(evidence: ComplianceEvidence, name: str) -> bool:
    from_file = any(one.dataset is not None for run in evidence.runs for one in run.workloads)
    return (name == "dataset" and from_file) or name in facts.kinds(evidence)


def load(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.loop(evidence)
    return None if found in (name, "mixed") else f"the load is {found} loop"


def clock(evidence: ComplianceEvidence, name: str) -> Reason:
    method = evidence.declared.get("clock.method", "").lower()
    by_chrony = name == "ntp" and "chrony" in method
    return None if name in method or by_chrony else f"clocks are not declared to be synchronised by {name.upper()}"


def below_a_millisecond(evidence: ComplianceEvidence) -> bool:
    needed = number(evidence.declared.get("clock.required_accuracy_ms"))
    return needed is not None and needed < 1.0


def protocol(evidence: ComplianceEvidence, name: str) -> Reason:
    found = facts.protocol(evidence)
    return None if name in (found or "").split(" and ") else f"the protocol is {found or 'not known'}"


def cache(evidence: ComplianceEvidence, _: str) -> Reason:
    if evidence.test == "prefix-cache":
        return "the test of the cache fills it in its own phase"
    warm = evidence.declared.get("prefix_cache.state") == "warm"
    return None if warm else "no warm prefix cache is declared to be under test"


def adjusted(evidence: ComplianceEvidence) -> bool:
    return any(run.metric("ttft_net_adjusted") is not None for run in evidence.runs)


def reported(evidence: ComplianceEvidence, percentile: str) -> bool:
    return any(run.document.metric("ttft").statistic(percentile) is not None for run in evidence.runs)


CONDITIONS: dict[str, Condition] = {
    "test": test,
    "comparison": only_if(lambda evidence: bool(evidence.others), "nothing is compared (--against FOLDER compares)"),
    "unequal_hardware": only_if(unequal_hardware, "the hardware is equal"),
    "workload": is_one(lambda evidence, name: name in facts.workload_names(evidence), "the workload is not {name}"),
    "kind": is_one(has_kind, "the workload is not a {name} one"),
    "boundary": is_fact(facts.boundary, "not declared", "the boundary is {found}, not {name}"),
    "load": load,
    "start": is_one(lambda one, name: facts.cold_start(one) == (name == "cold"), "this is not a {name} start"),
    "topology": is_fact(facts.topology, "not known", "the topology is {found}"),
    "clock": clock,
    "accuracy": only_if(below_a_millisecond, "no accuracy below a millisecond is declared to be needed"),
    "protocol": protocol,
    "itl": is_fact(facts.itl_option, "not known", "the ITL option is {found}"),
    "counting": is_fact(facts.counting_option, "neither A nor B", "tokens were counted by option {found}"),
    "cache": cache,
    "stamps": only_if(facts.server_stamps, "no client metric contains a time stamp of the server"),
    "adjusted": only_if(adjusted, "no latency was adjusted"),
    "leading": only_if(lambda one: facts.leading_content(one) > 0, "nothing came before the first content"),
    "percentile": is_one(reported, "no {name} of TTFT is reported"),
}


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
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None
