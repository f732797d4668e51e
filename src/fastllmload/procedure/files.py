"""The files of a procedure that people read, from its procedure.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastllmload.procedure.outcome import MARKDOWN, PAGE, markdown
from fastllmload.procedure.page import page


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """procedure.md and procedure.html, each whole or not at all."""
    for name, text in ((MARKDOWN, markdown(document)), (PAGE, page(document))):
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)
