"""The stream that a view writes to: without secrets, and silent once its reader has gone."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Protocol

Redact = Callable[[str], str]


def on_screen(text: str) -> str:
    """*text* as a terminal may have it: of what a server or a folder says nothing moves its cursor, sets its title, or
    turns the direction of text. Ends of lines stay.
    """
    return (
        text if text.isprintable() else "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text)
    )


def one_screen_line(text: str) -> str:
    """The same for a text that is one line: an end of a line in it begins no other."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)


class Writable(Protocol):
    """What a view needs of a text stream."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...

    def fileno(self) -> int: ...


class Outlet(io.TextIOBase):
    """Passes text to *stream*. A reader that closes the pipe (`| head`) or a lost terminal must not end a
    run.
    """

    def __init__(self, stream: Writable, redact: Redact) -> None:
        self._stream = stream
        self._redact = redact
        self.gone = False

    def write(self, text: str) -> int:
        try:
            if not self.gone:
                self._stream.write(self._redact(text))
        except OSError:  # nobody reads any more; the run's files are what counts
            self.gone = True
        return len(text)

    def flush(self) -> None:
        try:
            if not self.gone:
                self._stream.flush()
        except OSError:
            self.gone = True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"
