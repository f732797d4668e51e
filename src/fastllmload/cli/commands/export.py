"""`export`: writes a run to a file, to a folder (Parquet) or to standard output, or sends it to another system."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from fastllmload import quantities
from fastllmload.cli.streams import discard_output, naming_output
from fastllmload.errors import InputError, RunFolderError, coded
from fastllmload.files import writing
from fastllmload.report.terminal.outlet import on_screen

if TYPE_CHECKING:
    from fastllmload.plan.plan import Plan
    from fastllmload.records.run import Run

FORMATS = ("jsonl", "csv", "parquet", "hlog", "vllm", "br0.2", "otel", "mlflow", "wandb")
SENT = ("otel", "mlflow", "wandb")  # formats that --to may send


@click.command("export")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="jsonl, csv: one row per request; parquet: tables of requests and events; hlog: HdrHistogram interval log; "
    "vllm: the file of vllm bench serve --save-result; br0.2: benchmark report of llm-d-benchmark; otel: a span per "
    "request; mlflow, wandb: a run there.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write (a folder for parquet); standard output when absent.",
)
@click.option(
    "--to",
    metavar="PLACE",
    help="otel: URL of a collector; mlflow: tracking URI; wandb: PROJECT or ENTITY/PROJECT, else offline into --output.",
)
@click.option(
    "--percentile-metrics",
    metavar="NAMES",
    help="vllm: metrics with figures: ttft,tpot,itl,e2el. Default those of the run's option, else the first three.",
)
@click.option(
    "--metric-percentiles",
    metavar="PERCENTILES",
    help="vllm: percentiles of each metric. Default those of the run's option, else 99.",
)
@click.option("--detailed", is_flag=True, help="vllm: adds lists with an item per request.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    help="otel: the file that --save-plan wrote for the run; adds prompts, as messages or ids of blocks.",
)
@click.option("--redact", is_flag=True, help="Leaves out host names, URLs and paths.")
def export(
    folder: Path, form: str, output: Path | None, redact: bool, to: str | None, percentile_metrics: str | None,
    metric_percentiles: str | None, detailed: bool, plan: Path | None,
) -> int:  # fmt: skip
    """Write the run in folder RUN for other programs."""
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
    if to is not None and form not in SENT:
        raise InputError("option-not-applicable", f"--to belongs to --format {', '.join(SENT)}; leave it out")
    if plan is not None and form != "otel":
        raise InputError("option-not-applicable", "--plan belongs to --format otel; leave it out")
    if plan is not None and redact:
        raise InputError("options-conflict", "--plan adds what was sent, and --redact leaves names out; give one")
    run = load(folder)
    if run.lost(ROWS) and not len(run.rows):
        raise RunFolderError("run-file-damaged", f"{run.lost(ROWS)}; no request of the run can be read")
    if redact:
        run = run.with_document(without_names(run.manifest))
    result = None
    if form == "vllm":
        result = _vllm(run, percentile_metrics, metric_percentiles, detailed)
    elif form == "br0.2":
        from fastllmload.export import benchmark_report

        result = benchmark_report.encode(benchmark_report.benchmark_report(run))
    sent, written = None, []
    with _plan_of(run, plan) as prompts:
        if to is not None or form in ("mlflow", "wandb"):
            sent = _send(run, form, to, output, redact, prompts)
        else:
            written = _export(run, form, output, result, prompts)
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
    if sent is not None:
        click.echo(on_screen(sent))
    return 0


@contextmanager
def _plan_of(run: Run, file: Path | None) -> Iterator[Plan | None]:
    """The saved plan in *file*. InputError where it is not that of the *run*."""
    from fastllmload.plan.archive import load_plan

    if file is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fastllmload-export-") as folder:
        plan = load_plan(file, Path(folder))
        if plan.digest != run.document.plan.digest:
            raise InputError(
                "plan-mismatch",
                f"--plan {file} is another plan, {plan.digest[:12]}, than the one of the run, "
                f"{str(run.document.plan.digest)[:12]}; name the file that --save-plan wrote for it",
            )
        yield plan


def _send(run: Run, form: str, to: str | None, output: Path | None, redact: bool, plan: Plan | None) -> str:
    """Send the run; where it is now. InputError for a file that such a format does not write."""
    from fastllmload.export import otlp, trackers

    if output is not None and (form != "wandb" or to is not None):
        raise InputError("options-conflict", f"--format {form} is sent and not written to a file; leave --output out")
    if form == "otel":
        return f"{otlp.send(run, to or '', plan)} messages sent to {to}"
    found = trackers.tracked(run, redact)
    return trackers.to_mlflow(found, to) if form == "mlflow" else trackers.to_wandb(found, to, output)


def _vllm(run: Run, metrics: str | None, percentiles: str | None, detailed: bool) -> bytes:
    from fastllmload.export.vllm_result import METRICS, OURS, USUAL, encode, vllm_result

    asked = run.document.config.output  # of the run: --percentile-metrics, --metric-percentiles
    of_run = [name for name in METRICS if OURS.get(name, name) in asked.percentile_metrics]
    names = (of_run or USUAL) if metrics is None else metrics.replace(" ", "").split(",")
    levels = asked.metric_percentiles or (99.0,) if percentiles is None else percentiles_of(percentiles)
    return encode(vllm_result(run, levels, names, detailed))


def percentiles_of(text: str) -> list[float]:
    """`50,90,99`: numbers from 0 to 100."""
    found = [quantities.number(part) for part in text.split(",")]
    if not all(each is not None and 0 <= each <= 100 for each in found):
        raise InputError(
            "value-invalid", f"--metric-percentiles {text!r} is not a list of percentiles; write for example 50,90,99"
        )
    return [each for each in found if each is not None]


def _export(run: Run, form: str, output: Path | None, result: bytes | None, plan: Plan | None) -> list[Path]:
    """*result*: what is written instead of the rows."""

    def write(file: BinaryIO) -> None:
        if result is None:
            _write(run, form, file, plan)
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


def _write(run: Run, form: str, file: BinaryIO, plan: Plan | None) -> None:
    from fastllmload.export import otlp
    from fastllmload.export.rows import export_csv, export_jsonl
    from fastllmload.report.documents.hlog import write_log

    if form == "jsonl":
        export_jsonl(run, file)
    elif form == "otel":
        file.writelines(otlp.messages(run, plan))
    else:
        _as_text(file, lambda text: (export_csv if form == "csv" else write_log)(run, text))


def _as_text(file: BinaryIO, write: Callable[[io.TextIOWrapper], None]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    try:
        write(text)
        text.flush()
    finally:
        text.detach()  # otherwise its destructor would close *file*
