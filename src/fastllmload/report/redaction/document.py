"""Redacts a document for publication (IETF 7.1): capacity limits, knees and memory thresholds, and names of hosts, URLs
and paths.

A redacted value is `withheld`, in contrast to `n/a`: it was measured. Latencies are kept, and so is the throughput at a
declared rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.documents.procedure_redaction import redacted_procedure
from fastllmload.documents.redaction import redacted


def withheld(document: Mapping[str, Any], limit: bool = False) -> dict[str, Any]:
    """A copy of a run.json or procedure.json that may be published; its entry `withheld` lists what is missing. *limit*: the
    load of the run belongs to a search.
    """
    return redacted_procedure(document) if "procedure" in document else redacted(document, limit)


def notice(document: Mapping[str, Any]) -> str | None:
    """One line on what is withheld and why; None where nothing is."""
    names = document.get("withheld")
    return f"withheld (IETF 7.1): {names}" if isinstance(names, str) else None
