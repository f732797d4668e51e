"""Standard output for whoever reads it: a reader may leave early, and a terminal may know few characters.

Neither changes what a command does or how it ends: `compare ... --fail-if ... | head -1` still fails its gate.
"""

from __future__ import annotations

import codecs
import io
import os
import sys

LAST_STANDARD = 2  # standard error
PLAINLY = "plainly"  # the error handler
PLAIN = str.maketrans("▁▂▃▄▅▆▇█░─│└…·–—×µ≤≥→", ".:-=+*%#--|+.---xu<>>")  # noqa: RUF001 - they are meant


def plainly(error: UnicodeError) -> tuple[str, int]:
    """What the encoding lacks as something near in ASCII, else a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    near = error.object[error.start : error.end].translate(PLAIN)
    return "".join(letter if letter.isascii() else "?" for letter in near), error.end


class PatientStdout(io.TextIOWrapper):
    """Writes to the same buffer as *stream*; when its reader has gone, to nowhere."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        codecs.register_error(PLAINLY, plainly)
        self._stream = stream  # as long as we live: it would close the buffer
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors=PLAINLY, line_buffering=stream.line_buffering
        )  # fmt: skip

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._nobody_reads()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._nobody_reads()

    def _nobody_reads(self) -> None:
        """What is still buffered goes nowhere too, also when Python flushes once more at exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
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


def be_patient() -> None:
    """For the process's own standard output; one that a caller has put in its place stays as it is."""
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = PatientStdout(sys.stdout)
