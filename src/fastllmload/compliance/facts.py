"""Derives facts that conditions and checks need, from the recorded evidence or else from declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.declarations import workload_kind
from fastllmload.host.probe import is_loopback
from fastllmload.records import layout

PROTOCOLS = {"openai-chat": "sse", "openai-completions": "sse", "ollama-chat": "ndjson", "ollama-generate": "ndjson"}
NTP_MS = 10.0


def boundary(evidence: ComplianceEvidence) -> str | None:
    return evidence.declared.get("sut.boundary")


def loop(evidence: ComplianceEvidence) -> str:
    """`open`, `closed`, or `mixed` where levels differ."""
    kinds = {"closed" if run.closed else "open" for run in evidence.levels}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def workloads(run: MeasuredRun) -> list[dict[str, Any]]:
    """The plan's description of the workload, one per request class; at least one, which may be empty."""
    classes = run.get("plan.description.classes") or ()
    found = [one.get("workload") for one in classes if isinstance(one, dict)] or [run.get("plan.description.workload")]
    return [one if isinstance(one, dict) else {} for one in found]


def workload(run: MeasuredRun) -> dict[str, Any]:
    """The workload as one table; values that differ between classes are joined."""
    first, *others = workloads(run)
    merged = dict(first)
    for other in others:
        for key in [*merged]:
            if merged[key] != other.get(key):
                merged[key] = f"{merged[key]}, {other.get(key)}"
    return merged


def workload_names(evidence: ComplianceEvidence) -> set[str]:
    return {str(one.get("name", "")) for run in evidence.runs for one in workloads(run)}


def kinds(evidence: ComplianceEvidence) -> set[str]:
    """builtin, custom, dataset or trace, of each workload."""
    return {workload_kind(name) for name in workload_names(evidence)}


def protocol(evidence: ComplianceEvidence) -> str | None:
    """`sse` or `ndjson` for streamed answers, `whole` for others; "sse and ndjson" where classes differ."""
    if evidence.first("plan.description.streaming") is False:
        return "whole"
    classes = [one for run in evidence.runs for one in run.get("target.classes") or ()]
    types = {str(one.get("endpoint_type")) for one in classes if isinstance(one, dict)}
    types = types or {str(evidence.first("target.endpoint_type") or evidence.first("plan.description.endpoint"))}
    found = {PROTOCOLS.get(name) for name in types}
    return None if None in found else " and ".join(sorted(map(str, found), reverse=True))


def topology(evidence: ComplianceEvidence) -> str | None:
    """The declared topology, else single-machine when all addresses are loopback ones or local sockets."""
    declared = evidence.declared.get("topology")
    if declared and not evidence.simulated:
        return declared
    if evidence.first("config.target.unix_socket") is not None:
        return "single-machine"
    addresses = [address for run in evidence.runs for address in run.get("target.addresses") or ()]
    if not addresses:
        return None
    return "single-machine" if all(is_loopback(str(address)) for address in addresses) else "distributed"


def cold_start(evidence: ComplianceEvidence) -> bool:
    """Whether the user or the procedure declares a cold start."""
    return evidence.declared.get("cold_start") == "yes" or bool(evidence.asked("cold_start"))


def itl_option(evidence: ComplianceEvidence) -> str | None:
    """direct, A, B or C where all levels agree, else the names joined by commas; None where none is recorded."""
    found = {str(run.get("metrics.share_single.itl_option") or "") for run in evidence.runs}
    return ", ".join(sorted(found)) or None


def server_stamps(evidence: ComplianceEvidence) -> bool:
    """Whether a server's own time stamps were combined with the client's."""
    return "C" in str(itl_option(evidence)) or evidence.declared.get("clock.server_stamps") == "yes"


def token_sources(evidence: ComplianceEvidence) -> dict[str, int]:
    """Number of successful requests by the source of their output count: usage, tokenizer, estimate, none."""
    total = {"usage": 0, "tokenizer": 0, "estimate": 0, "none": 0}
    for run in evidence.runs:
        for name, number in (run.get("counts.output_tokens_source") or {}).items():
            total[name] = total.get(name, 0) + int(number)
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
    return sum(
        int(np.count_nonzero((rows["leading_events"] > 0) | (rows["reasoning_events"] > 0)))
        for rows in (run.ok for run in evidence.runs)
    )


def sends_tools(evidence: ComplianceEvidence) -> bool:
    """Whether bodies contain tool definitions, or answers contain tool calls."""
    bodies = any("tools" in str(run.get("config.workload.extra_body") or "") for run in evidence.runs)
    return bodies or any(bool((run.measure["flags"] & layout.FLAG_TOOL).any()) for run in evidence.runs)


def counted(entry: Mapping[str, Any]) -> bool:
    """Whether a level, by its entry in procedure.json, is evidence on the system although the client was late: its
    decision does not depend on the lateness, or it passes and was offered in full.
    """
    criteria = entry.get("criteria") or {}
    held = entry.get("saturated") is False and entry.get("steady") is True and criteria.get("offered_in_full") is True
    return held or criteria.get("generator_limited") is False or entry.get("passes") in (True, False)


def discarded_repetitions(run: MeasuredRun) -> bool:
    """Whether the client was the limit, so that the run is not evidence on the system."""
    return bool(run.get("certificate.generator_limited")) and not counted(run.entry or {})


def request_count(run: MeasuredRun) -> int:
    """Requests of the measure phase that were to be sent."""
    return len(run.measure)
