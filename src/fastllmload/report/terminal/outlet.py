"""The output stream of a view: redacts secrets, and drops text once nothing reads the stream."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Protocol

Redact = Callable[[str], str]


def on_screen(text: str) -> str:
    """*text* made safe for a terminal: no text from a server or a folder can move the cursor, set the title or change the
    direction of text. Line ends are kept.
    """
    return "\n".join(map(one_screen_line, text.split("\n")))


def one_screen_line(text: str) -> str:
    """The same for text of one line: line ends are replaced too."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)


class Writable(Protocol):
    """The part of a text stream that a view needs."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...

    def fileno(self) -> int: ...


class Outlet(io.TextIOBase):
    """Writes text to *stream*. A closed pipe (`| head`) or a lost terminal does not end the run."""

    def __init__(self, stream: Writable, redact: Redact) -> None:
        self._stream = stream
        self._redact = redact
        self.closed_by_reader = False

    def write(self, text: str) -> int:
        try:
            if not self.closed_by_reader:
                self._stream.write(self._redact(text))
        except OSError:  # the reader is gone; the files of the run are still written
            self.closed_by_reader = True
        return len(text)

    def flush(self) -> None:
        try:
            if not self.closed_by_reader:
                self._stream.flush()
        except OSError:
            self.closed_by_reader = True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"
