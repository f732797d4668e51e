"""Checks report files: lines of the minimum report, sections of the full report (IETF C.1, C.2)."""

from __future__ import annotations

import re

from fastllmload.compliance.checks.registry import check
from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import RequirementOutcome, judged

HEADER = "=== LLM Benchmark Report (Minimum) ==="
TEXTS = ("*.md", "*.txt")
LARGEST = 4_000_000  # bytes; larger files are ignored
TITLES = (
    "System Identification", "Test Configuration", "Results", "Detailed Results", "Methodology Compliance",
    "Reproduction",
)  # fmt: skip


def texts(evidence: ComplianceEvidence) -> list[str]:
    """Texts of the Markdown and text files in the folder."""
    found = [path for pattern in TEXTS for path in sorted(evidence.folder.glob(pattern))]
    return [
        path.read_text(encoding="utf-8", errors="replace")
        for path in found
        if path.is_file() and path.stat().st_size <= LARGEST
    ]


def minimum(evidence: ComplianceEvidence) -> list[str]:
    """Lines of the minimum report; empty without one."""
    return next((text.splitlines() for text in texts(evidence) if HEADER in text), [])


def sections(evidence: ComplianceEvidence) -> list[str]:
    """Numbered headings of the full report, which has at least the first two titles; empty without one."""
    for text in texts(evidence):
        found = [line.strip("# ").strip() for line in text.splitlines() if re.match(r"#{0,3} *\d\.? +[A-Z]", line)]
        if all(any(title in line for line in found) for title in TITLES[:2]):
            return found
    return []


@check
def line(evidence: ComplianceEvidence, /, label: str) -> RequirementOutcome:
    """The minimum report has a line with this label and a value."""
    found = next((text for text in minimum(evidence) if text.strip().lstrip("- ").startswith(f"{label}:")), None)
    value = "" if found is None else found.partition(":")[2].strip()
    return judged(bool(value), f"{label}: {value or 'nothing'}", "write it again with `fastllmload report`")


@check
def note(evidence: ComplianceEvidence, /, words: list[str]) -> RequirementOutcome:
    """The notes of the minimum report contain one of *words*, or any text where *words* is empty."""
    lines = minimum(evidence)
    begin = next((k for k, text in enumerate(lines) if text.startswith("Notes:")), len(lines))
    notes = " ".join(line for line in lines[begin + 1 :] if not line.startswith("===")).casefold()
    found = any(word in notes for word in words) if words else bool(notes.strip())
    return judged(found, f"the notes {'say' if found else 'do not say'} it", "write it again with `fastllmload report`")


@check
def section(evidence: ComplianceEvidence, /, number: int) -> RequirementOutcome:
    """The full report has its section *number* with the title of the template."""
    found = [line for line in sections(evidence) if line.startswith(str(number)) and TITLES[number - 1] in line]
    return judged(
        bool(found), found[0] if found else f"no section {number}", "write it again with `fastllmload report`"
    )
