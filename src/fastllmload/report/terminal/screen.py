"""Properties of an output stream (cursor movement, colour, columns), and writing the closing summary to it."""

from __future__ import annotations

import os
import shutil

from fastllmload.documents.run import RunDocument
from fastllmload.report.terminal.outlet import Outlet, Redact, Writable
from fastllmload.report.terminal.summary import SCREEN, summary_lines

WIDTH, HEIGHT, NARROWEST = 80, 24, 40


def can_move_cursor(stream: Writable) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def in_colour(stream: Writable) -> bool:
    """Whether it is a terminal and NO_COLOR is unset or empty (https://no-color.org)."""
    return can_move_cursor(stream) and os.environ.get("NO_COLOR", "") == ""


def width_of(stream: Writable) -> int:
    """Columns of the terminal; 80 for any other stream, so that output files do not depend on the terminal."""
    if not stream.isatty():
        return WIDTH
    return max(NARROWEST, shutil.get_terminal_size((WIDTH, HEIGHT)).columns)


def lines_of(stream: Writable) -> int:
    """Lines available to a summary: those of the terminal less one for the prompt, at least SCREEN."""
    if not stream.isatty():
        return SCREEN
    return max(SCREEN, shutil.get_terminal_size((WIDTH, HEIGHT)).lines - 1)


def write_summary(outlet: Outlet, document: RunDocument, redact: Redact, folder: str | None = None) -> None:
    """Write the closing summary, in colour where the stream supports it."""
    colour = in_colour(outlet)
    for line in summary_lines(document, width_of(outlet), folder, lines_of(outlet)):
        outlet.write(line.render(redact, colour) + "\n")
    outlet.flush()
