"""The closing summary of a run as lines of a terminal."""

from __future__ import annotations

from fastllmload.documents.run import RunDocument
from fastllmload.report.render.terminal import SCREEN, ScreenLine, screen_lines
from fastllmload.report.terminal.summary import summary


def summary_lines(
    document: RunDocument, width: int = 80, folder: str | None = None, screen: int = SCREEN
) -> list[ScreenLine]:
    return screen_lines(summary(document, folder), width, screen)
