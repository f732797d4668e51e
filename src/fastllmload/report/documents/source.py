"""What a report of a folder is made from: its run.json; of a killed run, measured now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import DONE, load, read_manifest


def document_of(folder: Path) -> dict[str, Any]:
    """run.json; when the run did not come to its end, with what its rows still tell."""
    document = read_manifest(folder)
    if document.get("status") == DONE or document.get("metrics") is not None:
        return document
    from fastllmload.certificate.judge import judge
    from fastllmload.metrics.run.measure import measure
    from fastllmload.telemetry.summary import added

    run = load(folder)
    measured = measure(run)
    # What the certificate would rest on is gone with rows or events: then nobody judges.
    judged = {} if run.lost(EVENTS) else {"certificate": judge(run)}
    return {**document, **measured, **added(run.whole, measured), **judged}
