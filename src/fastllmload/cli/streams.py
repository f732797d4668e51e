"""Standard output and error that survive a closed pipe, a full disk and a terminal with a small character set.

None of these changes the exit code: `compare ... --fail-if ... | head -1` still fails its gate.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from fastllmload.errors import InputError, coded

LAST_STANDARD = 2  # standard error
FALLBACK = "plainly"  # the error handler
ASCII_FOR = str.maketrans("▁▂▃▄▅▆▇█░─│└…·–—×µ≤≥→", ".:-=+*%#--|+.---xu<>>")  # noqa: RUF001 - they are meant


def ascii_fallback(error: UnicodeError) -> tuple[str, int]:
    """Error handler that replaces what the encoding lacks by a similar ASCII character, or by a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    similar = error.object[error.start : error.end].translate(ASCII_FOR)
    return "".join(letter if letter.isascii() else "?" for letter in similar), error.end


class TolerantStream(io.TextIOWrapper):
    """Writes to *stream*'s buffer, and discards output once that is closed or (*failure*) the disk is full."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        codecs.register_error(FALLBACK, ascii_fallback)
        self._stream = stream  # a reference, since its destructor would close the buffer
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors=FALLBACK, line_buffering=stream.line_buffering
        )  # fmt: skip
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._discard_rest(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._discard_rest(error)

    def _discard_rest(self, error: OSError) -> None:
        """Discard all further output, including what is buffered and what Python flushes at exit."""
        if not isinstance(error, BrokenPipeError):
            self.failure = error
        discard_output(self)


@contextlib.contextmanager
def naming_output(name: str) -> Iterator[None]:
    """Raise InputError, which names the output, when it cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise InputError(
            "output-not-writable", f"{name} cannot be written: {error.strerror}; choose another file"
        ) from None


def discard_output(stream: TextIO) -> None:
    """Redirect *stream* to the null device, including what is still buffered."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def reopen_closed_streams() -> None:
    """Open the null device in place of standard streams that the caller closed, so that no file gets their number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        os.set_inheritable(number, True)
        if number == 1:
            sys.stdout = open(number, "w", closefd=False)  # noqa: SIM115 - for the life of the process
        elif number == LAST_STANDARD:
            sys.stderr = open(number, "w", closefd=False)  # noqa: SIM115
    os.close(number)


def output_failure() -> str | None:
    """Message for output that could not be written; None where all was, or where the reader closed the pipe."""
    sys.stdout.flush()
    if not isinstance(sys.stdout, TolerantStream) or sys.stdout.failure is None:
        return None
    why = sys.stdout.failure.strerror or str(sys.stdout.failure)
    return coded(
        "output-not-writable",
        f"standard output could not be written completely: {why}; redirect it elsewhere, or free space",
    )


def install_tolerant_streams() -> None:
    """Replace the process's own standard output and error (`2>&1 | head`), but not streams that a caller has set."""
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = TolerantStream(sys.stdout)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = TolerantStream(sys.stderr)
