"""Commands `run` and `calibrate`: each imports what does the work, calls it, returns an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import given_options
from fastllmload.cli.run_command import RunCommand
from fastllmload.settings import Hosts, RunSettings, Secret

if TYPE_CHECKING:
    from fastllmload.engine.hosts.placement.cluster import RayPlacement


def resolve_parameters(parameters: dict[str, object]) -> tuple[RunSettings, Secret | None]:
    return read_settings(given_options(parameters), os.environ, current_redactor())


def run_once(**parameters: object) -> int:
    settings, secret = resolve_parameters(parameters)
    placement = placement_of(settings.hosts)
    from fastllmload.engine.run import execute
    from fastllmload.report.terminal.view import make_ui

    ui = make_ui(settings.output.ui, sys.stdout, current_redactor())
    try:
        return int(execute(settings, secret, ui, placement=placement))
    finally:
        ui.close()


def placement_of(hosts: Hosts) -> RayPlacement | None:
    """With --ray: Ray looks for hosts while the rest of the program is imported."""
    if hosts.address is None:
        return None
    from fastllmload.engine.hosts.placement.cluster import RayPlacement

    return RayPlacement(hosts)


run = RunCommand("run", run_once, help="Run once: send the load, measure, judge the load generator, report.")


@click.command("calibrate")
def calibrate() -> int:
    """Measure how many events and requests per second one worker can take on this host, and store the result."""
    from fastllmload.certificate.calibration import calibrate as measure

    for line in measure():
        click.echo(line)
    return 0
