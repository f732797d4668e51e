"""A judgement as blocks: verdict, counts, unmet requirements with remedies, deviations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fastllmload.compliance.outcome import DECLARED, FALSE, INAPPLICABLE, STATES, UNCHECKED, UNDECLARED
from fastllmload.compliance.verdict import ComplianceJudgement, RequirementFinding, document, scope
from fastllmload.declarations import by_key
from fastllmload.report.blocks import Block, Facts, Items, Section, Table

NOT_VERIFIED = "declared: stated by the user and not verified"
Pairs = Iterator[tuple[str, str]]


def blocks(judgement: ComplianceJudgement, everything: bool = False) -> Iterator[Block]:
    """The report; *everything* appends a table of all statements."""
    yield Facts([("verdict", judgement.verdict.upper()), ("of", scope(judgement.evidence)), *counted(judgement)])
    if judgement.unmet:
        yield Section("not met", [Facts([pair for finding in judgement.unmet for pair in unmet(finding)])])
    declarations = missing_declarations(judgement.unmet)
    if len(declarations) > 1:
        yield Table("", ("declare, with values of your own, for the next run:",), [(each,) for each in declarations])
    if judgement.informative:
        texts = [informative(finding) for finding in judgement.informative]
        yield Section("without a key word in the draft, so without effect on the verdict", [Items(texts)])
    if deviations := document(judgement).deviations:
        yield Section("deviations", [Items(deviations)])
    if everything:
        yield Table("", ("statement", "level", "state", "text"), [row_of(each) for each in judgement.findings])


def counted(judgement: ComplianceJudgement) -> Pairs:
    """How many requirements hold, of those that enter the verdict and of all, by state."""
    found, counts = document(judgement), Counter(each.outcome.state for each in judgement.findings)
    for label, tally in (("MUST", found.must), ("SHOULD", found.should)):
        broken = ((FALSE, tally.false), (UNDECLARED, tally.undeclared), (UNCHECKED, tally.unchecked))
        unmet = [f"{len(ids)} {state}" for state, ids in broken if ids]
        suffix = f"; {', '.join(unmet)}" if unmet else ""
        yield label, f"{tally.hold} of {tally.of} hold{suffix}"
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    yield "all", f"{counts.total()} statements: {', '.join(parts)}"
    if counts[DECLARED]:
        yield "", NOT_VERIFIED


def unmet(finding: RequirementFinding) -> Pairs:
    asked, found = finding.requirement, finding.outcome
    yield asked.level, f"{asked.id}: {found.state}"
    yield "", asked.text
    if found.reason:
        yield "", f"found: {found.reason}"
    if found.remedy:
        yield "", f"do: {found.remedy}"


def informative(finding: RequirementFinding) -> str:
    remedy = f"; do: {finding.outcome.remedy}" if finding.outcome.remedy else ""
    return f"{finding.requirement.id} {finding.outcome.state}: {finding.outcome.reason}{remedy}"


def missing_declarations(findings: Sequence[RequirementFinding]) -> list[str]:
    """All of them, as options for the next run."""
    undeclared = [finding.outcome.remedy for finding in findings if finding.outcome.state == UNDECLARED]
    keys = list(dict.fromkeys(key for remedy in undeclared for key in by_key() if f"{key}=" in remedy))
    texts = [f"{key}={by_key()[key].example}" for key in keys]
    return [f'--declare "{text}"' if " " in text else f"--declare {text}" for text in texts]


def row_of(finding: RequirementFinding) -> tuple[str, ...]:
    """*finding* in the table of all; what never enters a verdict has its level in lower case."""
    asked, found = finding.requirement, finding.outcome
    why = f"  ({found.reason})" if found.state == INAPPLICABLE else f"  {found.reason}" if found.reason else ""
    level = asked.level if asked.in_verdict else asked.level.lower()
    return asked.id, level, found.state, f"{asked.text}{why}"
