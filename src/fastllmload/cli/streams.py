"""Standard output and error for whoever reads them: a reader may leave early, and a terminal may know few characters.

Neither changes what a command does or how it ends: `compare ... --fail-if ... | head -1` still fails its gate.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

LAST_STANDARD = 2  # standard error
PLAINLY = "plainly"  # the error handler
PLAIN = str.maketrans("▁▂▃▄▅▆▇█░─│└…·–—×µ≤≥→", ".:-=+*%#--|+.---xu<>>")  # noqa: RUF001 - they are meant


def plainly(error: UnicodeError) -> tuple[str, int]:
    """What the encoding lacks as something near in ASCII, else a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    near = error.object[error.start : error.end].translate(PLAIN)
    return "".join(letter if letter.isascii() else "?" for letter in near), error.end


class PatientStream(io.TextIOWrapper):
    """Writes to the same buffer as *stream*; when its reader has gone, or what it goes to is full, to nowhere.

    *refused*: why what was said could not be written (a full disk); a reader that leaves early is no such reason.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        codecs.register_error(PLAINLY, plainly)
        self._stream = stream  # as long as we live: it would close the buffer
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors=PLAINLY, line_buffering=stream.line_buffering
        )  # fmt: skip
        self.refused: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._nobody_reads(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._nobody_reads(error)

    def _nobody_reads(self, error: OSError) -> None:
        """What is still buffered goes nowhere too, also when Python flushes once more at exit."""
        if not isinstance(error, BrokenPipeError):
            self.refused = error
        to_nowhere(self)


def to_nowhere(stream: TextIO) -> None:
    """From now on what is written to *stream* is lost, what is still buffered too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed() -> None:
    """Where the caller closed standard input, output or error, nowhere takes its place: a file of the run would get its
    number, and what is said would go into that file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        os.set_inheritable(number, True)
        if number == 1:
            sys.stdout = open(number, "w", closefd=False)  # noqa: SIM115 - as long as we live
        elif number == LAST_STANDARD:
            sys.stderr = open(number, "w", closefd=False)  # noqa: SIM115
    os.close(number)


def said_in_vain() -> str | None:
    """Why standard output did not take all that was said; None where it did, or where its reader left."""
    sys.stdout.flush()
    if not isinstance(sys.stdout, PatientStream) or sys.stdout.refused is None:
        return None
    why = sys.stdout.refused.strerror or str(sys.stdout.refused)
    return f"standard output did not take all that was said: {why}; send it somewhere else, or make room"


def be_patient() -> None:
    """For the process's own standard output and error (`2>&1 | head`); what a caller has put in their place stays."""
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = PatientStream(sys.stdout)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = PatientStream(sys.stderr)
