"""Reports as files: the minimum one with its lines, the full one with its sections (IETF C.1, C.2)."""

from __future__ import annotations

import re

from fastllmload.compliance.checks.registry import check
from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import RequirementOutcome, judged

HEADER = "=== LLM Benchmark Report (Minimum) ==="
TEXTS = ("*.md", "*.txt")
LARGEST = 4_000_000  # bytes of a text that is looked at
TITLES = (
    "System Identification", "Test Configuration", "Results", "Detailed Results", "Methodology Compliance",
    "Reproduction",
)  # fmt: skip


def texts(evidence: ComplianceEvidence) -> list[str]:
    """Texts of reports in the folder."""
    found = [path for pattern in TEXTS for path in sorted(evidence.folder.glob(pattern))]
    return [
        path.read_text(encoding="utf-8", errors="replace")
        for path in found
        if path.is_file() and path.stat().st_size <= LARGEST
    ]


def minimum(evidence: ComplianceEvidence) -> list[str]:
    """Lines of the minimum report; none where there is no such report."""
    return next((text.splitlines() for text in texts(evidence) if HEADER in text), [])


def sections(evidence: ComplianceEvidence) -> list[str]:
    """Headings of the full report: numbered, and at least the first two of its titles."""
    for text in texts(evidence):
        found = [line.strip("# ").strip() for line in text.splitlines() if re.match(r"#{0,3} *\d\.? +[A-Z]", line)]
        if all(any(title in line for line in found) for title in TITLES[:2]):
            return found
    return []


@check
def line(evidence: ComplianceEvidence, /, label: str) -> RequirementOutcome:
    """The minimum report has a line with this label and something behind it."""
    found = next((text for text in minimum(evidence) if text.strip().lstrip("- ").startswith(f"{label}:")), None)
    value = "" if found is None else found.partition(":")[2].strip()
    return judged(bool(value), f"{label}: {value or 'nothing'}", "write it again with `fastllmload report`")


@check
def note(evidence: ComplianceEvidence, /, words: list[str]) -> RequirementOutcome:
    """Behind "Notes:" the minimum report speaks of one of *words*, or of anything where there are none."""
    lines = minimum(evidence)
    begin = next((k for k, text in enumerate(lines) if text.startswith("Notes:")), len(lines))
    said = " ".join(line for line in lines[begin + 1 :] if not line.startswith("===")).casefold()
    there = any(word in said for word in words) if words else bool(said.strip())
    told = f"the notes {'say' if there else 'do not say'} it"
    return judged(there, told, "write it again with `fastllmload report`")


@check
def section(evidence: ComplianceEvidence, /, number: int) -> RequirementOutcome:
    """The full report has its section *number* with the title of the template."""
    found = [line for line in sections(evidence) if line.startswith(str(number)) and TITLES[number - 1] in line]
    return judged(
        bool(found), found[0] if found else f"no section {number}", "write it again with `fastllmload report`"
    )
