"""`export`: writes a run's rows to a file, to a folder (Parquet) or to standard output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from fastllmload.cli.streams import discard_output, naming_output
from fastllmload.errors import InputError, RunFolderError, coded
from fastllmload.files import writing
from fastllmload.report.terminal.outlet import on_screen

if TYPE_CHECKING:
    from fastllmload.records.run import Run

FORMATS = ("jsonl", "csv", "parquet", "hlog")


@click.command("export")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="jsonl, csv: one row per request; parquet: tables of requests and events; hlog: HdrHistogram interval log.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write (a folder for parquet); standard output when absent.",
)
@click.option("--redact", is_flag=True, help="Leaves out host names, URLs and paths.")
def export(folder: Path, form: str, output: Path | None, redact: bool) -> int:
    """Write the rows of the run in folder RUN for other programs."""
    from fastllmload.documents.redaction import without_names
    from fastllmload.records.folder_lock import describe_leftover_files
    from fastllmload.records.integrity import EVENTS, ROWS, TEXT, missing_checksums
    from fastllmload.records.run import load

    run = load(folder)
    if run.lost(ROWS) and not len(run.rows):
        raise RunFolderError("run-file-damaged", f"{run.lost(ROWS)}; no request of the run can be read")
    if redact:
        run = run.with_document(without_names(run.manifest))
    written = _export(run, form, output)
    for name in (ROWS, EVENTS, TEXT, *(("hiccup_intervals.npy",) if form == "hlog" else ())):
        if name in run.damaged:
            damage = coded("run-file-damaged", f"{run.damaged[name]}{_left(run, name)}")
            click.echo(on_screen(f"note       {damage}"), err=True)
    if run.where_events_are is not None:
        away = coded("events-elsewhere", f"{run.where_events_are}; written is what requests have")
        click.echo(on_screen(f"note       {away}"), err=True)
    for text in (missing_checksums(run.document), describe_leftover_files(folder)):
        if text is not None:
            click.echo(on_screen(f"note       {text}"), err=True)
    for path in written:
        click.echo(path)
    return 0


def _export(run: Run, form: str, output: Path | None) -> list[Path]:
    if form == "parquet":
        return _parquet(run, output)
    if output is None:
        _to_standard_output(run, form)
        return []
    with naming_output(f"--output {output}"), writing(output) as file:
        _write(run, form, file)
    return []


def _left(run: Run, name: str) -> str:
    if name == "requests.npy":
        return f"; written are the {len(run.rows):,} requests before the cut"
    if name == "tokens.npy":
        return (
            f"; {int((~run.complete_rows).sum()):,} of {len(run.rows):,} requests have lost events: those are left out"
        )
    return ""


def _parquet(run: Run, output: Path | None) -> list[Path]:
    from fastllmload.export.parquet import export_parquet

    if output is None:
        raise InputError(
            "option-missing",
            "--format parquet writes requests.parquet and events.parquet: name a folder for them with -o",
        )
    if output.exists() and not output.is_dir():
        raise InputError(
            "output-not-writable",
            f"--output {output} is a file, and --format parquet writes into a folder; name another one",
        )
    with naming_output(f"--output {output}"):
        return export_parquet(run, output)


def _to_standard_output(run: Run, form: str) -> None:
    try:
        _write(run, form, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader (`| head`) closed the pipe. Python flushes standard output once more at exit: discard that too.
        discard_output(sys.stdout)
    except OSError as error:
        discard_output(sys.stdout)
        raise InputError(
            "output-not-writable", f"standard output cannot be written: {error.strerror}; choose a file with -o"
        ) from None


def _write(run: Run, form: str, file: BinaryIO) -> None:
    from fastllmload.export.rows import export_csv, export_jsonl
    from fastllmload.report.documents.hlog import write_log

    if form == "jsonl":
        export_jsonl(run, file)
    else:
        _as_text(file, lambda text: (export_csv if form == "csv" else write_log)(run, text))


def _as_text(file: BinaryIO, write: Callable[[io.TextIOWrapper], None]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    try:
        write(text)
        text.flush()
    finally:
        text.detach()  # otherwise its destructor would close *file*
