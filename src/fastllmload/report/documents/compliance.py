"""Section 5 of the full report (IETF C.2): verdict, unmet requirements, deviations, limitations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastllmload.documents.run_parts.compliance import Compliance, Requirement, Requirements
from fastllmload.report.blocks import Block, Cell, Code, Heading, Items, Paragraph, Strong, Table
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.numbers import count

SHOWN_IDS = 40
UNMET = ("Requirement", "Level", "State", "Why", "What to do")


def section(subject: Subject) -> Iterator[Block]:
    """The section without its heading."""
    found = subject.document.compliance
    if found is None:
        command = Code("fastllmload compliance")
        yield Paragraph(("Methodology compliance: ", Strong("not evaluated"), ". ", command, " judges the folder."))
    else:
        yield from verdict(found)
    yield Heading("Deviations", 3)
    sentences = deviations(subject)
    yield Items(sentences) if sentences else Paragraph("None is known.")
    yield Heading("Limitations", 3)
    yield Items(list(limitations(subject)))


def verdict(found: Compliance) -> Iterator[Block]:
    yield Paragraph(("Verdict: ", Strong(found.verdict or "not evaluated"), f" ({found.scope})" if found.scope else ""))
    rows: list[list[Cell]] = [
        [label, count(tally.hold), count(tally.of), *(count(len(ids)) for ids in open_ids(tally).values())]
        for label, tally in tallies(found).items()
    ]
    yield Table("", ["Key words", "Hold", "Of", "False", "Undeclared", "Unchecked"], rows)
    yield from unmet(found)
    without_key_word = found.beside  # prose: allow, a key of run.json
    if without_key_word:
        yield listed("Unmet, but without a key word in the draft: no effect on the verdict", without_key_word)


def tallies(found: Compliance) -> dict[str, Requirements]:
    """By the key words of the draft."""
    return {"MUST, MUST NOT, REQUIRED": found.must, "SHOULD, RECOMMENDED": found.should}


def open_ids(tally: Requirements) -> dict[str, tuple[str, ...]]:
    """Requirements that do not hold, by state."""
    return {"false": tally.false, "undeclared": tally.undeclared, "unchecked": tally.unchecked}


def listed(title: str, entries: Sequence[Requirement]) -> Table:
    rows = [[text or "-" for text in (one.id, one.level, one.state, one.reason, one.remedy)] for one in entries]
    return Table(title, UNMET, rows)


def unmet(found: Compliance) -> Iterator[Block]:
    """Unmet requirements with remedies where the document has them, else their ids."""
    if found.unmet:
        yield listed("Unmet requirements", found.unmet)
        return
    for label, tally in tallies(found).items():
        for state, ids in open_ids(tally).items():
            shown, more = f"{label}, {state}: {', '.join(ids[:SHOWN_IDS])}", len(ids) - SHOWN_IDS
            if more > 0:
                yield Paragraph((f"{shown} and {more} more (", Code("fastllmload compliance"), ")"))
            elif ids:
                yield Paragraph(shown)


def limitations(subject: Subject) -> Iterator[str]:
    """What the figures do not show, whatever was declared."""
    yield "Facts that only the tester knows are declared, not verified."
    yield "Only the server knows queue wait, prefill time, batch size and preemptions; see its figures."
    if not subject.is_procedure:
        yield "One run at one load level does not show capacity, knee or saturation point."
