"""`export`: writes a run's rows to a file, to a folder (Parquet) or to standard output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from fastllmload import quantities
from fastllmload.cli.streams import discard_output, naming_output
from fastllmload.errors import InputError, RunFolderError, coded
from fastllmload.files import writing
from fastllmload.report.terminal.outlet import on_screen

if TYPE_CHECKING:
    from fastllmload.records.run import Run

FORMATS = ("jsonl", "csv", "parquet", "hlog", "vllm")


@click.command("export")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="jsonl, csv: one row per request; parquet: tables of requests and events; hlog: HdrHistogram interval log; "
    "vllm: the file of vllm bench serve --save-result.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write (a folder for parquet); standard output when absent.",
)
@click.option(
    "--percentile-metrics", metavar="NAMES", help="vllm: metrics with figures. Default ttft,tpot,itl; also e2el."
)
@click.option("--metric-percentiles", metavar="PERCENTILES", help="vllm: percentiles of each metric. Default 99.")
@click.option("--detailed", is_flag=True, help="vllm: adds lists with an item per request.")
@click.option("--redact", is_flag=True, help="Leaves out host names, URLs and paths.")
def export(
    folder: Path, form: str, output: Path | None, redact: bool, percentile_metrics: str | None,
    metric_percentiles: str | None, detailed: bool,
) -> int:  # fmt: skip
    """Write the rows of the run in folder RUN for other programs."""
    from fastllmload.documents.redaction import without_names
    from fastllmload.records.folder_lock import describe_leftover_files
    from fastllmload.records.integrity import EVENTS, ROWS, TEXT, missing_checksums
    from fastllmload.records.run import load

    of_vllm = {
        "--percentile-metrics": percentile_metrics, "--metric-percentiles": metric_percentiles, "--detailed": detailed
    }  # fmt: skip
    for flag, given in of_vllm.items():
        if given and form != "vllm":
            raise InputError("option-not-applicable", f"{flag} belongs to --format vllm; leave it out")
    run = load(folder)
    if run.lost(ROWS) and not len(run.rows):
        raise RunFolderError("run-file-damaged", f"{run.lost(ROWS)}; no request of the run can be read")
    if redact:
        run = run.with_document(without_names(run.manifest))
    result = _vllm(run, percentile_metrics, metric_percentiles, detailed) if form == "vllm" else None
    written = _export(run, form, output, result)
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


def _vllm(run: Run, metrics: str | None, percentiles: str | None, detailed: bool) -> bytes:
    from fastllmload.export.vllm_result import USUAL, encode, vllm_result

    names = USUAL if metrics is None else metrics.replace(" ", "").split(",")
    return encode(vllm_result(run, percentiles_of(percentiles or "99"), names, detailed))


def percentiles_of(text: str) -> list[float]:
    """`50,90,99`: numbers from 0 to 100."""
    found = [quantities.number(part) for part in text.split(",")]
    if not all(each is not None and 0 <= each <= 100 for each in found):
        raise InputError(
            "value-invalid", f"--metric-percentiles {text!r} is not a list of percentiles; write for example 50,90,99"
        )
    return [each for each in found if each is not None]


def _export(run: Run, form: str, output: Path | None, result: bytes | None) -> list[Path]:
    """*result*: what is written instead of the rows."""

    def write(file: BinaryIO) -> None:
        if result is None:
            _write(run, form, file)
        else:
            file.write(result)

    if form == "parquet":
        return _parquet(run, output)
    if output is None:
        _to_standard_output(write)
        return []
    with naming_output(f"--output {output}"), writing(output) as file:
        write(file)
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


def _to_standard_output(write: Callable[[BinaryIO], None]) -> None:
    try:
        write(sys.stdout.buffer)
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
