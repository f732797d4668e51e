"""A driver as a process: `driver_of_local_hosts.py FOLDER URL RATE SECONDS [WARMUP]` runs a load from two agents of this
machine.
"""

import sys

from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.engine.run import execute
from fastllmload.report.terminal.view import make_ui
from fastllmload.settings import Client, Load, Output, RunSettings, Target, Workload

if __name__ == "__main__":
    folder, url, rate, seconds, *warmup = sys.argv[1:]
    settings = RunSettings(
        target=Target(urls=(url,)),
        load=Load(rate=float(rate), duration=float(seconds), warmup_requests=int(*warmup or ("3",))),
        workload=Workload(isl="16", osl="8"),
        client=Client(workers=1),
        output=Output(directory=folder, ui="none"),
    )
    sys.exit(execute(settings, None, make_ui("none", sys.stdout), placement=LocalPlacement(2)))
