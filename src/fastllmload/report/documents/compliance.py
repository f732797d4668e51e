"""Renders section 5 of the full report (IETF C.2): verdict, unmet requirements, deviations, limitations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastllmload.documents.run import Compliance, Requirement, Requirements
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.numbers import count
from fastllmload.report.text.tables import Cell, Table, escaped, markdown

SHOWN_IDS = 40


def section(subject: Subject) -> Iterator[str]:
    """Markdown lines of the section, without its heading."""
    found = subject.document.compliance
    yield ""
    if found is None:
        yield "Methodology compliance: **not evaluated**. `fastllmload compliance` judges the folder."
    else:
        yield from verdict(found)
    yield from ("", "### Deviations")
    sentences = deviations(subject)
    yield ""
    yield from [f"* {escaped(text)}" for text in sentences] if sentences else ["None is known."]
    yield from ("", "### Limitations", "")
    yield from (f"* {text}" for text in limitations(subject))


def verdict(found: Compliance) -> Iterator[str]:
    scope = f" ({escaped(found.scope)})" if found.scope else ""
    yield f"Verdict: **{escaped(found.verdict or 'not evaluated')}**{scope}"
    rows: list[list[Cell]] = [
        [label, count(tally.hold), count(tally.of), *(count(len(ids)) for ids in open_ids(tally).values())]
        for label, tally in tallies(found).items()
    ]
    yield from markdown(Table("", ["Key words", "Hold", "Of", "False", "Undeclared", "Unchecked"], rows))
    yield from unmet(found)
    without_key_word = found.beside  # prose: allow, a key of run.json
    if without_key_word:
        yield from listed("Unmet, but without a key word in the draft: no effect on the verdict", without_key_word)


def tallies(found: Compliance) -> dict[str, Requirements]:
    """By the key words of the draft."""
    return {"MUST, MUST NOT, REQUIRED": found.must, "SHOULD, RECOMMENDED": found.should}


def open_ids(tally: Requirements) -> dict[str, tuple[str, ...]]:
    """Requirements that do not hold, by state."""
    return {"false": tally.false, "undeclared": tally.undeclared, "unchecked": tally.unchecked}


def listed(title: str, entries: Sequence[Requirement]) -> Iterator[str]:
    rows = [[text or "-" for text in (one.id, one.level, one.state, one.reason, one.remedy)] for one in entries]
    yield from markdown(Table(title, ["Requirement", "Level", "State", "Why", "What to do"], rows))


def unmet(found: Compliance) -> Iterator[str]:
    """Unmet requirements with remedies where the document has them, else their ids."""
    if found.unmet:
        yield from listed("Unmet requirements", found.unmet)
        return
    for label, tally in tallies(found).items():
        for state, ids in open_ids(tally).items():
            if ids:
                more = f" and {len(ids) - SHOWN_IDS} more (`fastllmload compliance`)" if len(ids) > SHOWN_IDS else ""
                yield from ("", f"{label}, {state}: {escaped(', '.join(ids[:SHOWN_IDS]))}{more}")


def limitations(subject: Subject) -> Iterator[str]:
    """What the figures do not show, whatever was declared."""
    yield "Facts that only the tester knows are declared, not verified."
    yield "Only the server knows queue wait, prefill time, batch size and preemptions; see its figures."
    if not subject.is_procedure:
        yield "One run at one load level does not show capacity, knee or saturation point."
