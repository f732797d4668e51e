"""`collect`: copies the files that hosts of a run have kept, and concludes the run with them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options.sources import from_command_line, parse_options


@click.command("collect")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--ray", metavar="ADDRESS", help="Address of the Ray cluster, if it is not that of the run.")
@click.option(
    "--keep", is_flag=True, help="Leaves the folders on the hosts; without it they are removed once all files are here."
)
def collect(folder: Path, ray: str | None, keep: bool) -> int:
    """Copy the files that hosts have kept to the run in folder RUN, and measure and judge it again.

    Hosts keep their files when the driver died or lost them, or when files could not be copied. Exit code 2 when a host
    cannot be reached; its files stay there, and the command may be repeated.
    """
    from fastllmload.engine.collect import collect as collected
    from fastllmload.report.terminal.view import make_ui

    address = parse_options(from_command_line({"ray": ray})).get("hosts.address") if ray is not None else None
    ui = make_ui("plain", sys.stdout, current_redactor())
    try:
        return collected(folder, None if address is None else str(address), keep, ui)
    finally:
        ui.close()
