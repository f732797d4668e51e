"""Who owns a run folder: the supervisor holds a lock under `.work` while it lives, whatever ends it.

What it leaves when it is killed is found by the next `report`: run.json then says `killed`, and `.work` goes. Commands that
only read (`export`, `compliance`) say that it is there (decision 094).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from pathlib import Path

import msgspec

from fastllmload.errors import RunFolderError
from fastllmload.files import replace_with
from fastllmload.records.integrity import OWNER, WORK, abandoned, before_first_request
from fastllmload.records.run import read_manifest

RUNNING, KILLED = "running", "killed"  # run.json "status"


def own(folder: Path) -> int:
    """Take *folder*, whose `.work` exists. The descriptor is the ownership: it ends with close(), or with the
    process.
    """
    descriptor = os.open(folder / WORK / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: then what a killed run leaves stays there
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def tidy(folder: Path) -> str | None:
    """Mark an abandoned run as killed and remove its working files. One sentence about it, None when there is nothing
    to do.

    RunFolderError when the run was killed before there was anything to measure.
    """
    if not abandoned(folder):
        return None
    begun = began(folder)
    size = size_of(folder / WORK)
    try:
        if begun:
            mark_killed(folder)
        shutil.rmtree(folder / WORK)
    except OSError as problem:
        if not begun:
            raise RunFolderError(before_first_request(folder)) from None
        return f"the run was killed; its working files in {folder / WORK} cannot be removed: {problem.strerror}"
    if not begun:
        raise RunFolderError(before_first_request(folder))
    return f"the run was killed; its working files ({size} in {folder / WORK}) were removed"


def began(folder: Path) -> bool:
    """Whether the clock of a phase was started in the run of *folder*."""
    return (folder / "run.json").exists() and bool(read_manifest(folder).get("phases"))


def left_over(folder: Path) -> str | None:
    """One sentence about working files that nobody owns, for who does not remove them; None where there are none."""
    if not abandoned(folder):
        return None
    return (
        f"the run was killed; its working files, request bodies among them ({size_of(folder / WORK)} in {folder / WORK}), "
        f"are still there: fastllmload report {folder} removes them"
    )


def size_of(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20:,.1f} MiB"


def mark_killed(folder: Path) -> None:
    """run.json says `killed` in place of `running`."""
    manifest = read_manifest(folder)
    if manifest.get("status") != RUNNING:
        return
    data = msgspec.json.format(msgspec.json.encode({**manifest, "status": KILLED}), indent=2) + b"\n"
    replace_with(folder / "run.json", data)


ASIDE = re.compile(r"\.cut-\d+$")


def runs_below(folder: Path) -> list[Path]:
    """Folders in *folder* by name, without those that were put aside; empty where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(place for place in folder.iterdir() if place.is_dir() and not ASIDE.search(place.name))
