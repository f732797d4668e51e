"""Renders section 5 of the full report (IETF C.2): verdict, unmet requirements, deviations, limitations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.numbers import count
from fastllmload.report.text.tables import Table, escaped, markdown

CLASSES = {"must": "MUST, MUST NOT, REQUIRED", "should": "SHOULD, RECOMMENDED"}
STATES = ("false", "undeclared", "unchecked")
SHOWN_IDS = 40


def section(subject: Subject) -> Iterator[str]:
    """Markdown lines of the section, without its heading."""
    found = subject.document.get("compliance")
    yield ""
    if not isinstance(found, Mapping):
        yield "Methodology compliance: **not evaluated**. `fastllmload compliance` judges the folder."
    else:
        yield from verdict(found)
    yield from ("", "### Deviations")
    sentences = deviations(subject)
    yield ""
    yield from [f"* {escaped(text)}" for text in sentences] if sentences else ["None is known."]
    yield from ("", "### Limitations", "")
    yield from (f"* {text}" for text in limitations(subject))


def verdict(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"Verdict: **{escaped(found.get('verdict') or 'not evaluated')}**" + (
        f" ({escaped(found['scope'])})" if found.get("scope") else ""
    )
    rows = []
    for key, label in CLASSES.items():
        tally = found.get(key)
        if isinstance(tally, Mapping):
            open_ = [count(len(tally.get(state) or ())) for state in STATES]
            rows.append([label, count(tally.get("hold")), count(tally.get("of")), *open_])
    if rows:
        yield from markdown(Table("", ["Key words", "Hold", "Of", "False", "Undeclared", "Unchecked"], rows))
    yield from unmet(found)
    without_key_word = found.get("beside")  # prose: allow, a key of run.json
    if isinstance(without_key_word, Sequence) and without_key_word:
        yield from listed("Unmet, but without a key word in the draft: no effect on the verdict", without_key_word)


def listed(title: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [[str(each.get(name) or "-") for name in ("id", "level", "state", "reason", "remedy")] for each in entries]
    yield from markdown(Table(title, ["Requirement", "Level", "State", "Why", "What to do"], rows))


def unmet(found: Mapping[str, Any]) -> Iterator[str]:
    """Unmet requirements with remedies where the document has them, else their ids."""
    entries = found.get("unmet")
    if isinstance(entries, Sequence) and entries:
        yield from listed("Unmet requirements", entries)
        return
    for key, label in CLASSES.items():
        tally = found.get(key)
        for state in STATES:
            ids = list(tally.get(state) or ()) if isinstance(tally, Mapping) else []
            if ids:
                more = f" and {len(ids) - SHOWN_IDS} more (`fastllmload compliance`)" if len(ids) > SHOWN_IDS else ""
                yield from ("", f"{label}, {state}: {escaped(', '.join(ids[:SHOWN_IDS]))}{more}")


def limitations(subject: Subject) -> Iterator[str]:
    """What the figures do not show, whatever was declared."""
    yield "Facts that only the tester knows are declared, not verified."
    yield "Only the server knows queue wait, prefill time, batch size and preemptions; see its figures."
    if not subject.is_procedure:
        yield "One run at one load level does not show capacity, knee or saturation point."
