"""The reasons of a certificate as a Markdown list, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report import results
from fastllmload.report.tables import escaped


def codes(document: Mapping[str, Any]) -> set[object]:
    """Codes of the certificate's reasons."""
    found = (document.get("certificate") or {}).get("reasons") or ()
    return {each.get("code") for each in found if isinstance(each, Mapping)}


def reason_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The certificate's reasons as a list."""
    found = list(results.reasons(document))
    if found:
        yield ""
    for severity, text in found:
        yield f"* {'note: ' if severity == 'note' else ''}{escaped(text)}"
