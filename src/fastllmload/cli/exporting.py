"""`export`: a run's rows to a file or to standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fastllmload.errors import InputError

if TYPE_CHECKING:
    from fastllmload.records.run import Run


def export_rows(folder: Path, form: str, output: Path | None) -> None:
    """*form* is `jsonl` or `csv`; None as *output* is standard output, whose reader may leave early."""
    from fastllmload.records.run import load

    run = load(folder)
    if output is None:
        _to_standard_output(run, form)
        return
    try:
        with open(output, "wb") as file:
            _write(run, form, file)
    except OSError as error:
        raise InputError(
            f"--output {output} cannot be written: {error.strerror}; choose another file"
        ) from None


def _to_standard_output(run: Run, form: str) -> None:
    try:
        _write(run, form, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # `| head` has seen enough. Python flushes standard output once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(run: Run, form: str, file: BinaryIO) -> None:
    from fastllmload.records.export import export_csv, export_jsonl

    if form == "jsonl":
        export_jsonl(run, file)
        return
    import io

    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    export_csv(run, text)
    text.flush()
    text.detach()
