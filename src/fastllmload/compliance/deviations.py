"""Lists deviations that a report names even where no key word is violated (procedures.md 5)."""

from __future__ import annotations

from fastllmload.compliance import facts
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun


def deviations(evidence: ComplianceEvidence) -> list[str]:
    """Different sentences, in the order in which they are found."""
    found: list[str] = []
    if evidence.simulated and evidence.procedure is None:
        found.append("the target was the tool's own simulated engine, not a system")
    if evidence.declared.get("sut.deployment") in ("edge", "on-device"):
        found.append(f"the system runs {evidence.declared['sut.deployment']}, which the methodology does not cover")
    for run in evidence.runs:
        found += of_run(run)
    found += [str(text) for text in evidence.asked("deviations") or ()]
    return list(dict.fromkeys(found))


def of_run(run: MeasuredRun) -> list[str]:
    """Deviations of one run."""
    where = "" if run.entry is None else f" (level {run.name})"
    found = []
    if run.get("plan.description.streaming") is False:
        found.append(f"answers were not streamed{where}: TTFT is not measured")
    estimated = int(run.get("counts.output_tokens_source.estimate") or 0)
    if estimated:
        found.append(f"{estimated:,} output counts are estimated from bytes{where}")
    warmup = run.get("plan.warmup.deviation")
    if warmup is not None and run.entry is None:
        found.append(str(warmup))
    if facts.discarded_repetitions(run):
        found.append(f"the client was the limit{where}: the run shows nothing about the system's saturation")
    if run.get("config.load.max_concurrency") is not None:
        found.append(f"--max-concurrency {run.get('config.load.max_concurrency')} makes the loop not open{where}")
    by_workload = [text for one in facts.workloads(run) for text in one.get("deviations") or ()]
    found += [str(text) for text in run.get("plan.deviations") or by_workload]  # the former name the class
    if run.run.incomplete:
        found.append(f"the run ended as {run.get('status')}{where}")
    return found
