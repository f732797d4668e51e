"""The reasons of a certificate as a Markdown list, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report import results
from fastllmload.report.tables import escaped


def reason_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The certificate's reasons as a list."""
    found = list(results.reasons(document))
    if found:
        yield ""
    for severity, text in found:
        yield f"* {'note: ' if severity == 'note' else ''}{escaped(text)}"
