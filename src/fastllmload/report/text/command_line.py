"""The command line of a document as text that can be pasted into a shell."""

from __future__ import annotations

import shlex


def command_line(found: object) -> str | None:
    """Words quoted as a shell needs them; a text (one that was withheld) as it is; None where nothing was recorded."""
    if isinstance(found, (list, tuple)):
        return shlex.join(map(str, found)) or None
    return None if found is None else str(found)


def code_span(text: str) -> str:
    """*text* as Markdown's code, in which nothing is a mark: what is copied from the file is what is copied from a page."""
    longest, run = 0, 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence, room = "`" * (longest + 1), " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{' '.join(text.splitlines())}{room}{fence}"
