"""Commands `run` and `calibrate`: each imports what does the work, calls it, returns an exit code."""

from __future__ import annotations

import os
import sys

import click

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import given_options
from fastllmload.cli.run_command import RunCommand
from fastllmload.settings import RunSettings, Secret


def resolve_parameters(parameters: dict[str, object]) -> tuple[RunSettings, Secret | None]:
    return read_settings(given_options(parameters), os.environ, current_redactor())


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


@click.command("calibrate")
def calibrate() -> int:
    """Measure how much this host's client can do, against the bundled null server, and remember it."""
    from fastllmload.certificate.calibration import calibrate as measure

    for line in measure():
        click.echo(line)
    return 0
