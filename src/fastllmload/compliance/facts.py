"""Derives facts that conditions and checks need, from the recorded evidence or else from declarations."""

from __future__ import annotations

import math

import numpy as np

from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.declarations import workload_kind
from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.fields import known
from fastllmload.endpoint import ENDPOINTS
from fastllmload.host.probe import is_loopback
from fastllmload.records import layout

NTP_MS = 10.0


def boundary(evidence: ComplianceEvidence) -> str | None:
    return evidence.declared.get("sut.boundary")


def loop(evidence: ComplianceEvidence) -> str:
    """`open`, `closed`, or `mixed` where levels, or classes of one, differ."""
    kinds = {"closed" if run.closed else "open" for run in evidence.levels}
    kinds |= {"closed" for run in evidence.levels if run.description.closed_classes}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def workload_names(evidence: ComplianceEvidence) -> set[str]:
    return {one.name or "" for run in evidence.runs for one in run.workloads}


def kinds(evidence: ComplianceEvidence) -> set[str]:
    """standard, custom, dataset or trace, of each workload."""
    return {workload_kind(name) for name in workload_names(evidence)}


def protocol(evidence: ComplianceEvidence) -> str | None:
    """`sse` or `ndjson` for streamed answers, `whole` for others; "sse and ndjson" where classes differ."""
    if evidence.first(lambda document: document.plan.description.streaming) is False:
        return "whole"
    types = {str(one.endpoint_type) for run in evidence.runs for one in run.document.target.classes}
    if not types:
        asked = evidence.first(lambda document: document.target.endpoint_type)
        types = {str(asked or evidence.first(lambda document: document.plan.description.endpoint))}
    found = {ENDPOINTS[name].framing if name in ENDPOINTS else None for name in types}
    return None if None in found else " and ".join(sorted(map(str, found), reverse=True))


def topology(evidence: ComplianceEvidence) -> str | None:
    """The declared topology, else single-machine when all addresses are loopback ones or local sockets."""
    declared = evidence.declared.get("topology")
    if declared and not evidence.simulated:
        return declared
    if evidence.first(lambda document: document.config.target.unix_socket) is not None:
        return "single-machine"
    addresses = [address for run in evidence.runs for address in run.document.target.addresses]
    if not addresses:
        return None
    return "single-machine" if all(map(is_loopback, addresses)) else "distributed"


def cold_start(evidence: ComplianceEvidence) -> bool:
    by_procedure = evidence.procedure is not None and evidence.procedure.cold_start is not None
    return evidence.declared.get("cold_start") == "yes" or by_procedure


def itl_option(evidence: ComplianceEvidence) -> str | None:
    """direct, A, B or C where all levels agree, else the names joined by commas; None where none is recorded."""
    found = {run.document.metric("share_single").itl_option or "" for run in evidence.runs}
    return ", ".join(sorted(found)) or None


def server_stamps(evidence: ComplianceEvidence) -> bool:
    """Whether a server's own time stamps were combined with the client's."""
    return "C" in str(itl_option(evidence)) or evidence.declared.get("clock.server_stamps") == "yes"


def hosts_clock_ms(evidence: ComplianceEvidence) -> float | None:
    """The largest error of the clock of a host of the load generator, in ms; inf where one is not known, None where each
    run had one host.
    """
    clocks = [host.clock for run in evidence.runs for host in run.document.judged_hosts]
    bounds = [None if clock is None else known(clock.bound_ns) for clock in clocks]
    return max((math.inf if bound is None else bound / 1e6 for bound in bounds), default=None)


def sources_of(run: MeasuredRun) -> dict[str, int]:
    """Number of successful requests by the source of their output count: usage, tokenizer, estimate, none."""
    return {name: int(known(number) or 0) for name, number in run.document.counts.output_tokens_source.items()}


def token_sources(evidence: ComplianceEvidence) -> dict[str, int]:
    total = {"usage": 0, "tokenizer": 0, "estimate": 0, "none": 0}
    for run in evidence.runs:
        for name, number in sources_of(run).items():
            total[name] = total.get(name, 0) + number
    return total


def counting_option(evidence: ComplianceEvidence) -> str | None:
    """A: all by the server's usage; B: all by the reference tokenizer; else None."""
    sources = token_sources(evidence)
    if sources["usage"] and not (sources["tokenizer"] or sources["estimate"] or sources["none"]):
        return "A"
    if sources["tokenizer"] and not (sources["usage"] or sources["estimate"] or sources["none"]):
        return "B"
    return None


def leading_content(evidence: ComplianceEvidence) -> int:
    """Number of requests whose first content came after whitespace or reasoning."""
    return sum(leading_content_of(run) for run in evidence.runs)


def leading_content_of(run: MeasuredRun) -> int:
    return int(np.count_nonzero((run.ok["leading_events"] > 0) | (run.ok["reasoning_events"] > 0)))


def sends_tools(evidence: ComplianceEvidence) -> bool:
    """Whether bodies contain tool definitions, or answers contain tool calls."""
    bodies = any("tools" in (run.document.config.workload.extra_body or "") for run in evidence.runs)
    return bodies or any(bool((run.measure["flags"] & layout.FLAG_TOOL).any()) for run in evidence.runs)


def discarded_repetitions(run: MeasuredRun) -> bool:
    """Whether the client was the limit, so that the run is not evidence on the system."""
    certificate = run.document.certificate
    limited = certificate is not None and bool(certificate.generator_limited)
    return limited and not (run.entry or LevelEntry()).counts
