"""A judgement for a terminal: verdict, counts, what does not hold and what to do about it, deviations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from fastllmload.compliance.outcome import DECLARED, INAPPLICABLE, STATES, UNDECLARED
from fastllmload.compliance.requirement import Requirement
from fastllmload.compliance.verdict import ComplianceJudgement, RequirementFinding, scope, summary
from fastllmload.declarations import by_key

LABEL = 13
LEVELS = (("MUST", "must"), ("SHOULD", "should"))
NO_PROOF = "what is declared was said by the tester and is no proof"


def lines(judgement: ComplianceJudgement, everything: bool = False, width: int = 100) -> Iterator[str]:
    """The report; *everything*: every requirement in one line each, behind it."""
    yield labelled("verdict", judgement.verdict.upper())
    yield from paragraph("of", scope(judgement.evidence), width)
    yield from counted(judgement, width)
    for finding in judgement.unmet:
        yield ""
        yield from unmet(finding, width)
    yield from together(judgement.unmet, width)
    if judgement.beside:
        yield ""
        yield from paragraph("beside", "without a key word in the draft, so they decide nothing:", width)
    for finding in judgement.beside:
        remedy = f"; do: {finding.outcome.remedy}" if finding.outcome.remedy else ""
        said = f"{finding.requirement.id} {finding.outcome.state}: {finding.outcome.reason}{remedy}"
        yield from paragraph("", said, width)
    told = summary(judgement)["deviations"]
    if told:
        yield ""
    for text in told:
        yield from paragraph("deviation", text, width)
    if everything:
        yield ""
        yield from (one_line(finding) for finding in judgement.findings)


def labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def counted(judgement: ComplianceJudgement, width: int) -> Iterator[str]:
    """How many hold, by what, of those that enter the verdict and of all."""
    told = summary(judgement)
    for label, key in LEVELS:
        tally = told[key]
        open_ = [f"{len(tally[state])} {state}" for state in STATES if tally.get(state)]
        told_open = f"; {', '.join(open_)}" if open_ else ""
        yield from paragraph(label, f"{tally['hold']} of {tally['of']} hold{told_open}", width)
    parts = [f"{number} {state}" for state, number in told["counts"].items() if number]
    yield from paragraph("all", f"{sum(told['counts'].values())} statements: {', '.join(parts)}", width)
    if told["counts"][DECLARED]:
        yield labelled("", NO_PROOF)


def unmet(finding: RequirementFinding, width: int) -> Iterator[str]:
    asked, found = finding.requirement, finding.outcome
    yield labelled(asked.level, f"{asked.id}: {found.state}")
    yield from paragraph("", asked.statement, width)
    if found.reason:
        yield from paragraph("", f"found: {found.reason}", width)
    if found.remedy:
        yield from paragraph("", f"do: {found.remedy}", width)


def paragraph(label: str, text: str, width: int) -> Iterator[str]:
    """*text* wrapped behind the label's column; words are never cut, so that options can be copied."""
    parts = wrap(text, max(30, width - LABEL), break_long_words=False, break_on_hyphens=False) or [""]
    yield labelled(label, parts[0])
    yield from (labelled("", part) for part in parts[1:])


def together(findings: Sequence[RequirementFinding], width: int) -> Iterator[str]:
    """All declarations that are missing, as options of the next run."""
    keys = list(dict.fromkeys(key for finding in findings for key in missing_keys(finding)))
    if len(keys) < 2:
        return
    yield ""
    yield from paragraph("declare", "with values of your own, for the next run:", width)
    for key in keys:
        yield labelled("", f"--declare {quoted(f'{key}={by_key()[key].example}')}")


def missing_keys(finding: RequirementFinding) -> list[str]:
    """Keys of declarations in the remedy of an undeclared requirement."""
    if finding.outcome.state != UNDECLARED:
        return []
    return [key for key in by_key() if f"{key}=" in finding.outcome.remedy]


def quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text


def one_line(finding: RequirementFinding) -> str:
    asked, found = finding.requirement, finding.outcome
    reason = f"  {found.reason}" if found.reason and found.state != INAPPLICABLE else ""
    why = f"  ({found.reason})" if found.state == INAPPLICABLE else reason
    return f"{asked.id:<20}{short(asked):<13}{found.state:<16}{asked.statement}{why}"


def short(asked: Requirement) -> str:
    """The level; a statement that never enters a verdict in small letters."""
    return asked.level if asked.in_verdict else asked.level.lower()
