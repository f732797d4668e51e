"""`calibrate`: measures this host's ceiling against the null server and stores it for the headroom of later runs."""

from __future__ import annotations

import click


@click.command("calibrate")
def calibrate() -> int:
    """Measure how much this host's client can do, against the bundled null server, and remember it."""
    from fastllmload.certificate.calibration import calibrate as measure

    for line in measure():
        click.echo(line)
    return 0
