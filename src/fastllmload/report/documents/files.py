"""The report files of a run folder. Each is written by its own part of this package; one that fails costs no other."""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from fastllmload.errors import RunFolderError
from fastllmload.records.run import Run

# Module of `report` -> what it writes; each has `write(run, document) -> None` and writes into run.directory.
WRITERS: dict[str, str] = {
    "html": "report.html",
    "documents.markdown": "report.md",
    "documents.hlog": "latency.hlog",
}


def write_reports(run: Run, document: Mapping[str, Any], writers: Mapping[str, str] = WRITERS) -> list[str]:
    """Write all report files of a measured run, or those of *writers*; *document* is its run.json.

    Returns a sentence for each file that could not be written; what was measured is in run.json already.
    """
    problems = []
    for module, what in writers.items():
        try:
            importlib.import_module(f"fastllmload.report.{module}").write(run, document)
        except OSError as problem:
            way = "move it away" if problem.errno == errno.EINVAL else "make room"
            problems.append(f"{what} could not be written: {problem.strerror}; {way} and run `fastllmload report`")
        except RunFolderError as problem:
            problems.append(f"{what} could not be written: {problem}")
    return problems


def write_again(load: Callable[[], Run], document: Mapping[str, Any]) -> list[str]:
    """The same for a folder from before, whose rows *load* reads: they may be damaged, and the folder closed to us."""
    try:
        run = load()
    except RunFolderError as problem:
        return [f"{' and '.join(WRITERS.values())} could not be written: {problem}"]
    if not os.access(run.directory, os.W_OK):
        return [f"{' and '.join(WRITERS.values())} were left as they are: {run.directory} cannot be written to"]
    if run.damaged:
        return write_missing(run, document)
    return write_reports(run, document)


def write_missing(run: Run, document: Mapping[str, Any]) -> list[str]:
    """Of a folder that was damaged after the run: what is there was written when it was whole, and stays."""
    missing = {module: what for module, what in WRITERS.items() if not (run.directory / what).is_file()}
    kept = [what for what in WRITERS.values() if what not in missing.values()]
    told = [f"{' and '.join(kept)} were left as they are, from before"] if kept else []
    damage = [f"{problem}; the rest of the run is shown" for problem in run.damage]
    return [*damage, *told, *write_reports(run, document, missing)]
