"""Renders a judgement for a terminal: verdict, counts, unmet requirements with remedies, deviations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from fastllmload.compliance.outcome import DECLARED, FALSE, INAPPLICABLE, STATES, UNCHECKED, UNDECLARED
from fastllmload.compliance.verdict import ComplianceJudgement, RequirementFinding, document, scope
from fastllmload.declarations import by_key

LABEL = 13
NOT_VERIFIED = "declared: stated by the user and not verified"


def lines(judgement: ComplianceJudgement, everything: bool = False, width: int = 100) -> Iterator[str]:
    """The report; *everything* appends one line per requirement."""
    yield labelled("verdict", judgement.verdict.upper())
    yield from paragraph("of", scope(judgement.evidence), width)
    yield from counted(judgement, width)
    for finding in judgement.unmet:
        yield ""
        yield from unmet(finding, width)
    yield from together(judgement.unmet, width)
    if judgement.informative:
        yield ""
        yield from paragraph("other", "without a key word in the draft, so without effect on the verdict:", width)
    for finding in judgement.informative:
        remedy = f"; do: {finding.outcome.remedy}" if finding.outcome.remedy else ""
        text = f"{finding.requirement.id} {finding.outcome.state}: {finding.outcome.reason}{remedy}"
        yield from paragraph("", text, width)
    deviations = document(judgement).deviations
    if deviations:
        yield ""
    for text in deviations:
        yield from paragraph("deviation", text, width)
    if everything:
        yield ""
        yield from (one_line(finding) for finding in judgement.findings)


def labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def counted(judgement: ComplianceJudgement, width: int) -> Iterator[str]:
    """How many requirements hold, of those that enter the verdict and of all, by state."""
    found, counts = document(judgement), Counter(each.outcome.state for each in judgement.findings)
    for label, tally in (("MUST", found.must), ("SHOULD", found.should)):
        broken = ((FALSE, tally.false), (UNDECLARED, tally.undeclared), (UNCHECKED, tally.unchecked))
        unmet = [f"{len(ids)} {state}" for state, ids in broken if ids]
        suffix = f"; {', '.join(unmet)}" if unmet else ""
        yield from paragraph(label, f"{tally.hold} of {tally.of} hold{suffix}", width)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    yield from paragraph("all", f"{counts.total()} statements: {', '.join(parts)}", width)
    if counts[DECLARED]:
        yield labelled("", NOT_VERIFIED)


def unmet(finding: RequirementFinding, width: int) -> Iterator[str]:
    asked, found = finding.requirement, finding.outcome
    yield labelled(asked.level, f"{asked.id}: {found.state}")
    yield from paragraph("", asked.text, width)
    if found.reason:
        yield from paragraph("", f"found: {found.reason}", width)
    if found.remedy:
        yield from paragraph("", f"do: {found.remedy}", width)


def paragraph(label: str, text: str, width: int) -> Iterator[str]:
    """*text* wrapped in the column after the label; words are not broken, so that options can be copied."""
    parts = wrap(text, max(30, width - LABEL), break_long_words=False, break_on_hyphens=False) or [""]
    yield labelled(label, parts[0])
    yield from (labelled("", part) for part in parts[1:])


def together(findings: Sequence[RequirementFinding], width: int) -> Iterator[str]:
    """All missing declarations, as options for the next run."""
    undeclared = [finding.outcome.remedy for finding in findings if finding.outcome.state == UNDECLARED]
    keys = list(dict.fromkeys(key for remedy in undeclared for key in by_key() if f"{key}=" in remedy))
    if len(keys) < 2:
        return
    yield ""
    yield from paragraph("declare", "with values of your own, for the next run:", width)
    for key in keys:
        text = f"{key}={by_key()[key].example}"
        yield labelled("", f'--declare "{text}"' if " " in text else f"--declare {text}")


def one_line(finding: RequirementFinding) -> str:
    asked, found = finding.requirement, finding.outcome
    reason = " ".join(found.reason.split())  # a declared value may have line ends
    why = f"  ({reason})" if found.state == INAPPLICABLE else f"  {reason}" if reason else ""
    level = asked.level if asked.in_verdict else asked.level.lower()  # what never enters a verdict
    return f"{asked.id:<20}{level:<13}{found.state:<16}{asked.text}{why}"
