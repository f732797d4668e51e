"""Formats a recorded command line so that it can be pasted into a shell."""

from __future__ import annotations

import shlex


def command_line(found: object) -> str | None:
    """The arguments quoted for a shell; a string (`withheld`) unchanged; None where nothing was recorded."""
    if isinstance(found, (list, tuple)):
        return shlex.join(map(str, found)) or None
    return None if found is None else str(found)


def code_span(text: str) -> str:
    """*text* as a Markdown code span: no character is escaped, so it can be copied from the file as from the page."""
    longest, run = 0, 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence, room = "`" * (longest + 1), " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{' '.join(text.splitlines())}{room}{fence}"
