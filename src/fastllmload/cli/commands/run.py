"""Commands run, report, export, doctor and calibrate: each imports what does the work, calls it, returns an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from fastllmload.cli.commands.export import FORMATS
from fastllmload.cli.commands.report import FORMS
from fastllmload.cli.options.reading import read_parameters
from fastllmload.cli.run_command import RunCommand
from fastllmload.redact import Redactor
from fastllmload.settings import RunSettings, Secret


def current_redactor() -> Redactor:
    found = click.get_current_context().find_object(Redactor)
    assert found is not None  # main() gives it to the outermost context
    return found


def resolve_parameters(parameters: dict[str, object]) -> tuple[RunSettings, Secret | None]:
    return read_parameters(parameters, os.environ, current_redactor())


def run_once(**parameters: object) -> int:
    settings, secret = resolve_parameters(parameters)
    from fastllmload.engine.run import execute
    from fastllmload.report.terminal.view import make_ui

    ui = make_ui(settings.output.ui, sys.stdout, current_redactor())
    try:
        return int(execute(settings, secret, ui))
    finally:
        ui.close()


run = RunCommand("run", run_once, help="One run: offer the load, measure, judge the client, report.")


@click.command("report")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    default="terminal",
    show_default=True,
    help="minimum, full: the methodology's reports (IETF C.1, C.2); blog, asiai: the tables of these documents.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output when absent.")
@click.option(
    "--redact",
    is_flag=True,
    help="For publication (IETF 7.1): without capacity limits, knees, memory thresholds, host names, URLs and paths; of a "
    "closed loop, a test or a search also without loads, rates and counts. Kept: latencies, model, hardware, --declare, "
    "--price-per-hour.",
)
def report(run_folder: Path, form: str, output: Path | None, redact: bool) -> int:
    """Report again on the run, or the procedure, in folder RUN; also on one that did not finish."""
    from fastllmload.cli.commands.report import report_on

    report_on(run_folder, form, output, redact, current_redactor())
    return 0


@click.command("export")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="jsonl, csv: one row per request; parquet: tables of requests and events; hlog: HdrHistogram intervals.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write (a folder for parquet); standard output when absent.",
)
@click.option("--redact", is_flag=True, help="Leave out host names, URLs and paths.")
def export(run_folder: Path, form: str, output: Path | None, redact: bool) -> int:
    """Write the requests of the run in folder RUN, one per line with all their times."""
    from fastllmload.cli.commands.export import export_rows

    for path in export_rows(run_folder, form, output, redact):
        click.echo(path)
    return 0


@click.command("doctor")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder whose disk is checked.",
)
def doctor(runs: Path) -> int:
    """Check this host (limits, ports, clock, permissions) and say what to change. Exit code 1 if a check is bad."""
    from fastllmload.cli.commands.doctor import examine, print_findings

    return print_findings(examine(runs), sys.stdout)


@click.command("calibrate")
def calibrate() -> int:
    """Measure how much this host's client can do, against the bundled null server, and remember it."""
    from fastllmload.certificate.calibration import calibrate as measure

    for line in measure():
        click.echo(line)
    return 0
