"""Judges a run or procedure by every requirement that applies, and gives one of the draft's three verdicts (IETF 2).

A test is not compliant when any MUST, MUST NOT or REQUIRED is false or undeclared; unconditionally compliant when those
and all of SHOULD and RECOMMENDED hold; else conditionally compliant. Only key words of the draft count (spec/procedures
5); the other statements are judged and reported without effect on the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastllmload.compliance import facts
from fastllmload.compliance.applies import why_not
from fastllmload.compliance.coverage import by_id, statements
from fastllmload.compliance.evidence import ComplianceEvidence, DamagedFolder, MeasuredRun
from fastllmload.compliance.outcome import (
    DECLARED,
    FALSE,
    INAPPLICABLE,
    SHOWN,
    STATES,
    TRUE,
    UNCHECKED,
    UNDECLARED,
    RequirementOutcome,
    inapplicable,
)
from fastllmload.compliance.statement import AllOf, Check, Statement
from fastllmload.documents.run_parts.compliance import Compliance, Requirement, Requirements
from fastllmload.documents.write import plain, values


def deviations(evidence: ComplianceEvidence) -> list[str]:
    """Different sentences, in the order in which they are found."""
    found: list[str] = []
    if evidence.simulated and evidence.procedure is None:
        found.append("the target was the tool's own simulated engine, not a system")
    if evidence.declared.get("sut.deployment") in ("edge", "on-device"):
        found.append(f"the system runs {evidence.declared['sut.deployment']}, which the methodology does not cover")
    for run in evidence.runs:
        found += of_run(run)
    if evidence.procedure is not None:
        found += evidence.procedure.deviations
    return list(dict.fromkeys(found))


def of_run(run: MeasuredRun) -> list[str]:
    where = "" if run.entry is None else f" (level {run.name})"
    document, found = run.document, []
    if run.description.streaming is False:
        found.append(f"answers were not streamed{where}: TTFT is not measured")
    estimated = facts.sources_of(run).get("estimate", 0)
    if estimated:
        found.append(f"{estimated:,} output counts are estimated from bytes{where}")
    if document.plan.warmup.deviation is not None and run.entry is None:
        found.append(document.plan.warmup.deviation)
    if facts.discarded_repetitions(run):
        found.append(f"the client was the limit{where}: the run shows nothing about the system's saturation")
    cap = document.config.load.max_concurrency
    if cap is not None:
        found.append(f"--max-concurrency {cap} makes the loop not open{where}")
    waiting = document.config.load.max_prefill
    if waiting is not None and not run.closed:
        found.append(f"--max-prefill {waiting} makes the loop not open{where}")
    by_workload = (text for one in run.workloads for text in one.deviations)
    found += document.plan.deviations or by_workload  # the former name the class
    if run.run.incomplete:
        found.append(f"the run ended as {document.status}{where}")
    return found


UNCONDITIONAL, CONDITIONAL, NOT = "unconditionally compliant", "conditionally compliant", "not compliant"


@dataclass(frozen=True)
class RequirementFinding:
    """One statement and its outcome."""

    requirement: Statement
    outcome: RequirementOutcome

    def entry(self) -> Requirement:
        asked, found = self.requirement, self.outcome
        return Requirement(
            id=asked.id,
            level=asked.level,
            basis=asked.basis,
            state=found.state,
            statement=asked.text,
            reason=found.reason,
            remedy=found.remedy,
        )


@dataclass(frozen=True)
class ComplianceJudgement:
    """*findings*: all requirements, in the order of their sources. *deviations*: sentences."""

    evidence: ComplianceEvidence
    findings: tuple[RequirementFinding, ...]
    deviations: tuple[str, ...]

    def of(self, chosen: Callable[[Statement], bool]) -> list[RequirementFinding]:
        """Findings of the requirements that enter the verdict and for which *chosen* is true."""
        return [found for found in self.findings if found.requirement.in_verdict and chosen(found.requirement)]

    @property
    def unmet(self) -> list[RequirementFinding]:
        """Findings that enter the verdict and do not hold, MUST-class first."""
        broken = [found for found in self.of(lambda _: True) if not found.outcome.holds]
        return sorted(broken, key=lambda found: not found.requirement.must)

    @property
    def informative(self) -> list[RequirementFinding]:
        """Findings without a key word of the draft that do not hold; they have no effect on the verdict."""
        return [
            found
            for found in self.findings
            if found.requirement.of_draft and not found.requirement.in_verdict and not found.outcome.holds
        ]

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Reasons that exclude compliance whatever the requirements' outcomes, also of compared folders."""
        others = (f"{other.folder}: {why}" for other in self.evidence.others for why in cut_short(other))
        return (*cut_short(self.evidence), *others)

    @property
    def verdict(self) -> str:
        if self.unfinished or any(found.requirement.must for found in self.unmet):
            return NOT
        return CONDITIONAL if self.unmet else UNCONDITIONAL


def cut_short(evidence: ComplianceEvidence) -> tuple[str, ...]:
    """Reasons why the evidence is incomplete: not finished, damaged, without a level, or scaled down."""
    damage = tuple(damage for run in evidence.runs for damage in run.run.damage)
    if evidence.procedure is None:
        cut = any(run.run.incomplete for run in evidence.runs)
        return (*damage, *(("the run did not finish",) if cut else ()))
    status = evidence.procedure.status
    found = [] if status == "done" else [f"the procedure ended as {status}; start it again to continue"]
    for place in evidence.absent:
        why = evidence.why.get(place)
        found.append(f"the level {place} is missing or damaged{f': {why}' if why else ''}")
    found += [f"{stray}: no level may be left out" for stray in evidence.strays]
    if evidence.procedure.quick:
        found.append("--quick scales the test down, which makes its report non-conforming")
    return (*damage, *found)


def judge(evidence: ComplianceEvidence) -> ComplianceJudgement:
    found: dict[str, RequirementOutcome] = {}
    findings = tuple(RequirementFinding(one, outcome_of(evidence, one, found, ())) for one in statements())
    return ComplianceJudgement(evidence, findings, tuple(deviations(evidence)))


def outcome_of(
    evidence: ComplianceEvidence, statement: Statement, found: dict[str, RequirementOutcome], asked: Sequence[str]
) -> RequirementOutcome:
    """Outcome of one statement, stored in *found*; *asked*: statements that depend on it. ValueError for a cycle."""
    if statement.id in found:
        return found[statement.id]
    if statement.id in asked:
        raise ValueError(f"{' -> '.join((*asked, statement.id))}: a statement depends on itself")
    try:
        reason = why_not(evidence, statement.applies)
    except DamagedFolder as problem:
        outcome = unread(problem)
    else:
        if reason is not None:
            outcome = inapplicable(reason)
        elif isinstance(statement.judged_by, AllOf):
            path = (*asked, statement.id)
            parts = {name: outcome_of(evidence, by_id()[name], found, path) for name in statement.judged_by.ids}
            outcome = joined(parts)
        else:
            outcome = checked(evidence, statement.judged_by)
    if outcome.state == INAPPLICABLE and statement.design:
        outcome = RequirementOutcome(SHOWN, f"by design: {statement.design}; {outcome.reason}")
    found[statement.id] = outcome
    return outcome


def unread(problem: DamagedFolder) -> RequirementOutcome:
    return RequirementOutcome(UNCHECKED, str(problem), "judge an intact copy of the folder, or measure again")


def joined(parts: dict[str, RequirementOutcome]) -> RequirementOutcome:
    """The first of *parts* that does not hold, false before undeclared; else the weakest that holds."""
    for state in (FALSE, UNDECLARED, UNCHECKED):
        broken = {name: part for name, part in parts.items() if part.state == state}
        if broken:
            name, part = next(iter(broken.items()))
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            return RequirementOutcome(state, f"{name}: {part.reason}{more}", part.remedy)
    for state in (DECLARED, TRUE, SHOWN):
        if any(part.state == state for part in parts.values()):
            return RequirementOutcome(state, f"{', '.join(parts)} hold")
    return inapplicable("none of its parts applies")


def checked(evidence: ComplianceEvidence, check: Check) -> RequirementOutcome:
    """Outcome of *check*, computed once for all statements that have it."""
    if check not in evidence.outcomes:
        try:
            evidence.outcomes[check] = check(evidence)
        except DamagedFolder as problem:
            evidence.outcomes[check] = unread(problem)
    return evidence.outcomes[check]


def document(judgement: ComplianceJudgement) -> Compliance:
    """The `compliance` entry of run.json and procedure.json."""
    counts = Counter(found.outcome.state for found in judgement.findings)
    evidence = judgement.evidence
    return Compliance(
        verdict=judgement.verdict,
        test=evidence.test or None,
        scope=scope(evidence),
        counts={state: counts[state] for state in STATES},
        must=tally(judgement.of(lambda one: one.must)),
        should=tally(judgement.of(lambda one: one.should)),
        deviations=(*judgement.unfinished, *judgement.deviations),
        unmet=tuple(each.entry() for each in judgement.unmet),
        beside=tuple(each.entry() for each in judgement.informative),  # prose: allow, a key of the document
    )


def document_with_all(judgement: ComplianceJudgement) -> dict[str, Any]:
    """The same as plain values, with every requirement."""
    return {**plain(document(judgement)), "requirements": values([each.entry() for each in judgement.findings])}


def scope(evidence: ComplianceEvidence) -> str:
    """What was judged, as a phrase."""
    if evidence.test:
        return f"the test {evidence.test} of the IETF draft, with what it asks of every test"
    return "what the IETF draft asks of every test; a single run is not a complete test of the draft"


def tally(findings: Sequence[RequirementFinding]) -> Requirements:
    """Number of findings that hold, and the ids of those that do not."""

    def ids(state: str) -> tuple[str, ...]:
        return tuple(found.requirement.id for found in findings if found.outcome.state == state)

    return Requirements(
        hold=sum(found.outcome.holds and found.outcome.state != INAPPLICABLE for found in findings),
        of=sum(found.outcome.state != INAPPLICABLE for found in findings),
        false=ids(FALSE),
        undeclared=ids(UNDECLARED),
        unchecked=ids(UNCHECKED),
    )


def compliance_of(evidence: ComplianceEvidence) -> Compliance:
    """The `compliance` entry for a document that is being written.

    A single level of a procedure is not judged: what it lacks, such as a warm-up, belongs to the procedure.
    """
    if evidence.procedure is None and any("level" in run.document.metadata for run in evidence.runs):
        return Compliance(scope="a level of a procedure, judged with it")
    return document(judge(evidence))
