"""Section 6 of the full report (IETF C.2), and the command line of a document as a shell takes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fastllmload.report.blocks import Block
from fastllmload.report.documents import identity
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.numbers import NOT_KNOWN


def command_line(found: object) -> str | None:
    """The arguments quoted for a shell; a string (`withheld`) unchanged; None where nothing was recorded."""
    if isinstance(found, (list, tuple)):
        return shlex.join(map(str, found)) or None
    return None if found is None else str(found)


def reproduction(subject: Subject) -> Iterator[Block]:
    """Everything needed to reproduce the test."""
    document, tool = identity.run_document(subject), subject.document.tool
    environment, started = document.environment, "" if subject.procedure is None else subject.procedure.started_utc
    versions = [f"{name} {version}" for name, version in environment.libraries.items() if version]
    yield identity.pairs(
        [
            ("Tool", f"{tool.name or 'fastllmload'} {tool.version or NOT_KNOWN}"),
            ("Command", command_line(subject.document.command) or "not recorded"),
            ("Started", environment.time_utc or started or NOT_KNOWN),
            ("Folder", "[path]" if subject.redacted else str(subject.folder)),
            ("Plan (SHA-256)", document.plan.digest or NOT_KNOWN),
            ("Raw records", "requests.npy, tokens.npy; fastllmload export writes them as JSONL, CSV or Parquet"),
            ("Configuration", "config of run.json; its declarations are the manifest"),
            ("Client", identity.joined((environment.cpu, environment.cores, environment.kernel))),
            ("Python", ", ".join([environment.python or NOT_KNOWN, *versions])),
        ]
    )
