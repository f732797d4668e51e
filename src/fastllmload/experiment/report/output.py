"""Writes report files, each completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.experiment.report.page import page
from fastllmload.experiment.report.text import MARKDOWN, PAGE, markdown
from fastllmload.files import replace_with


def write_files(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Write each of *texts* (name → text) into *folder*, replacing older files. Returns the names."""
    for name, text in texts.items():
        replace_with(folder / name, text)
    return tuple(texts)


def write(folder: Path, document: ProcedureDocument) -> None:
    """Write procedure.md and procedure.html."""
    write_files(folder, {MARKDOWN: markdown(document), PAGE: page(document)})
