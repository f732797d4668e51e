"""Files that people read, each whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastllmload.experiment.report.page import page
from fastllmload.experiment.report.text import MARKDOWN, PAGE, markdown
from fastllmload.files import replace_with


def write_whole(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Put every text of name → text into *folder*, in place of one of that name; the names."""
    for name, text in texts.items():
        replace_with(folder / name, text)
    return tuple(texts)


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """procedure.md and procedure.html, each whole or not at all."""
    write_whole(folder, {MARKDOWN: markdown(document), PAGE: page(document)})
