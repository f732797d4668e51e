"""The files of a procedure that people read, from its procedure.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastllmload.procedure.outcome import MARKDOWN, PAGE, markdown
from fastllmload.procedure.page import page
from fastllmload.procedure.written import write_whole


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """procedure.md and procedure.html, each whole or not at all."""
    write_whole(folder, {MARKDOWN: markdown(document), PAGE: page(document)})
