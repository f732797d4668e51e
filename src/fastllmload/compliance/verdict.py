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
from fastllmload.compliance.checks import CHECKS
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
    undeclared,
)
from fastllmload.compliance.requirement import Requirement, requirements
from fastllmload.declarations import by_key

SCALED = frozenset(
    {
        "lasted", "requests_per_level", "requests_per_class", "gaps_enough", "slots_used", "samples", "intervals",
        "level_count", "fractions", "spans_to_saturation", "contexts", "buckets", "fixed_output", "long_enough_outputs",
        "enough",
    }
)  # fmt: skip


def with_remedy(evidence: ComplianceEvidence, check: str, outcome: RequirementOutcome) -> RequirementOutcome:
    """*outcome* of *check*; where a scaled-down test caused it, the remedy is first to leave out --quick."""
    if outcome.holds or check not in SCALED or not evidence.asked("quick"):
        return outcome
    least = f"; where that is not enough: {outcome.remedy}" if outcome.remedy else ""
    return RequirementOutcome(outcome.state, outcome.reason, f"leave out --quick, which scales this down{least}")


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


DRAFT = "IETF-"
UNCONDITIONAL, CONDITIONAL, NOT = "unconditionally compliant", "conditionally compliant", "not compliant"


@dataclass(frozen=True)
class RequirementFinding:
    """One requirement and its outcome."""

    requirement: Requirement
    outcome: RequirementOutcome

    def entry(self) -> dict[str, Any]:
        """The finding as plain values."""
        asked, found = self.requirement, self.outcome
        return {
            "id": asked.id,
            "level": asked.level,
            "basis": asked.basis,
            "state": found.state,
            "statement": asked.statement,
            "reason": found.reason,
            "remedy": found.remedy,
        }


@dataclass(frozen=True)
class ComplianceJudgement:
    """*findings*: all requirements, in the order of their sources. *deviations*: sentences."""

    evidence: ComplianceEvidence
    findings: tuple[RequirementFinding, ...]
    deviations: tuple[str, ...]

    def of(self, chosen: Callable[[Requirement], bool]) -> list[RequirementFinding]:
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
            if found.requirement.id.startswith(DRAFT) and not found.requirement.in_verdict and not found.outcome.holds
        ]

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Reasons that exclude compliance whatever the requirements' outcomes, also of compared folders."""
        others = (f"{other.folder}: {why}" for other in self.evidence.others for why in cut_short(other))
        return (*cut_short(self.evidence), *others)

    @property
    def verdict(self) -> str:
        """One of the draft's three verdicts."""
        if self.unfinished or any(found.requirement.must for found in self.unmet):
            return NOT
        return CONDITIONAL if self.unmet else UNCONDITIONAL


def cut_short(evidence: ComplianceEvidence) -> tuple[str, ...]:
    """Reasons why the evidence is incomplete: not finished, damaged, without a level, or scaled down."""
    damage = tuple(damage for run in evidence.runs for damage in run.run.damage)
    if evidence.procedure is None:
        cut = any(run.run.incomplete for run in evidence.runs)
        return (*damage, *(("the run did not finish",) if cut else ()))
    status = evidence.asked("status")
    found = [] if status == "done" else [f"the procedure ended as {status}; start it again to continue"]
    for place in evidence.absent:
        why = evidence.why.get(place)
        found.append(f"the level {place} is missing or damaged{f': {why}' if why else ''}")
    found += [f"{stray}: no level may be left out" for stray in evidence.strays]
    if evidence.asked("quick"):
        found.append("--quick scales the test down, which makes its report non-conforming")
    return (*damage, *found)


def judge(evidence: ComplianceEvidence) -> ComplianceJudgement:
    """Judge *evidence* by every requirement."""
    found: dict[str, RequirementOutcome] = {}
    for requirement in requirements():
        outcome_of(evidence, requirement, found, ())
    findings = tuple(RequirementFinding(requirement, found[requirement.id]) for requirement in requirements())
    return ComplianceJudgement(evidence, findings, tuple(deviations(evidence)))


def outcome_of(
    evidence: ComplianceEvidence, requirement: Requirement, found: dict[str, RequirementOutcome], asked: Sequence[str]
) -> RequirementOutcome:
    """Outcome of one requirement, stored in *found*; *asked*: requirements that depend on it. ValueError for a cycle."""
    if requirement.id in found:
        return found[requirement.id]
    if requirement.id in asked:
        raise ValueError(f"{' -> '.join((*asked, requirement.id))}: a requirement depends on itself")
    reason = applicable(evidence, requirement)
    if isinstance(reason, RequirementOutcome):
        outcome = reason
    elif reason is not None:
        outcome = inapplicable(reason)
    elif requirement.all_of:
        known = by_id()
        parts = {
            name: outcome_of(evidence, known[name], found, (*asked, requirement.id)) for name in requirement.all_of
        }
        outcome = joined(parts)
    else:
        outcome = bound(evidence, requirement)
    found[requirement.id] = fallen_back(outcome, requirement)
    return found[requirement.id]


def applicable(evidence: ComplianceEvidence, requirement: Requirement) -> str | RequirementOutcome | None:
    """Why it does not apply, None where it does; an unchecked outcome where files that decide it are damaged."""
    try:
        return why_not(evidence, requirement.applies)
    except DamagedFolder as problem:
        return unread(problem)


def unread(problem: DamagedFolder) -> RequirementOutcome:
    return RequirementOutcome(UNCHECKED, str(problem), "judge an intact copy of the folder, or measure again")


def by_id() -> dict[str, Requirement]:
    return {requirement.id: requirement for requirement in requirements()}


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


def bound(evidence: ComplianceEvidence, requirement: Requirement) -> RequirementOutcome:
    """Outcome of the check, the metric or the declaration; unchecked where there is none."""
    if requirement.check is not None:
        return checked(evidence, requirement.check, requirement.params)
    if requirement.metric is not None:
        asked = {"names": [requirement.metric], "statistics": list(requirement.statistics)}
        return checked(evidence, "figures", asked)
    if requirement.declare:
        return declared(evidence, requirement.declare)
    if requirement.shown_by is not None:
        return inapplicable("this evidence does not exercise it")
    return RequirementOutcome(UNCHECKED, "no check covers it", "judge it yourself")


def checked(evidence: ComplianceEvidence, name: str, params: dict[str, Any]) -> RequirementOutcome:
    """Outcome of the check *name*, computed once for all requirements that use it with the same parameters."""
    key = f"{name} {params}"
    if key not in evidence.outcomes:
        try:
            evidence.outcomes[key] = with_remedy(evidence, name, CHECKS[name](evidence, **params))
        except DamagedFolder as problem:
            evidence.outcomes[key] = unread(problem)
    return evidence.outcomes[key]


def declared(evidence: ComplianceEvidence, keys: Sequence[str]) -> RequirementOutcome:
    """Declared if all of *keys* are; else undeclared, with the remedies of the missing ones."""
    values = evidence.declared
    missing = [key for key in keys if key not in values]
    if missing:
        remedy = "; ".join(by_key()[key].remedy for key in missing)
        return undeclared(f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not declared", remedy)
    return RequirementOutcome(DECLARED, ", ".join(f"{key}={values[key]}" for key in keys))


def fallen_back(outcome: RequirementOutcome, requirement: Requirement) -> RequirementOutcome:
    """*outcome*, replaced by a test of the project where the evidence does not exercise the capability; the requirement's
    own remedy has priority.
    """
    if outcome.state == INAPPLICABLE and requirement.shown_by is not None:
        return RequirementOutcome(SHOWN, f"by {requirement.shown_by}; {outcome.reason}")
    if requirement.remedy and not outcome.holds:
        return RequirementOutcome(outcome.state, outcome.reason, requirement.remedy)
    return outcome


def summary(judgement: ComplianceJudgement) -> dict[str, Any]:
    """The `compliance` entry of run.json and procedure.json: verdict, counts, ids of unmet requirements."""
    counts = Counter(found.outcome.state for found in judgement.findings)
    evidence = judgement.evidence
    return {
        "verdict": judgement.verdict,
        "test": evidence.test or None,
        "scope": scope(evidence),
        "counts": {state: counts.get(state, 0) for state in STATES},
        "must": tally(judgement.of(lambda one: one.must)),
        "should": tally(judgement.of(lambda one: one.should)),
        "deviations": [*judgement.unfinished, *judgement.deviations],
    }


def scope(evidence: ComplianceEvidence) -> str:
    """What was judged, as a phrase."""
    if evidence.test:
        return f"the test {evidence.test} of the IETF draft, with what it asks of every test"
    return "what the IETF draft asks of every test; a single run is not a complete test of the draft"


def tally(findings: Sequence[RequirementFinding]) -> dict[str, Any]:
    """Number of findings that hold, and the ids of those that do not."""
    return {
        "hold": sum(found.outcome.holds and found.outcome.state != INAPPLICABLE for found in findings),
        "of": sum(found.outcome.state != INAPPLICABLE for found in findings),
        **{
            state: [found.requirement.id for found in findings if found.outcome.state == state]
            for state in (FALSE, UNDECLARED, UNCHECKED)
        },
    }


def document(judgement: ComplianceJudgement, everything: bool = False) -> dict[str, Any]:
    """The summary with the unmet requirements and the informative findings; *everything* adds all requirements."""
    found = summary(judgement) | {
        "unmet": [each.entry() for each in judgement.unmet],
        "beside": [each.entry() for each in judgement.informative],  # prose: allow, a key of the document
    }
    if everything:
        found["requirements"] = [each.entry() for each in judgement.findings]
    return found


def compliance_of(evidence: ComplianceEvidence) -> dict[str, Any]:
    """The `compliance` entry for a document that is being written.

    A single level of a procedure is not judged: what it lacks, such as a warm-up, belongs to the procedure.
    """
    if evidence.procedure is None and evidence.first("metadata.level") is not None:
        return {"verdict": None, "scope": "a level of a procedure, judged with it"}
    return document(judge(evidence))
