"""Locks a run folder: the supervisor holds a lock under `.work` while it lives, however it ends.

After a kill the next `report` sets the status `killed` in run.json and removes `.work`. Commands that only read (`export`,
`compliance`) report that it exists (docs/decisions/16-run-folder-is-evidence.md).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

from fastllmload.documents.write import changed, encoded
from fastllmload.errors import RunFolderError, coded
from fastllmload.files import replace_with
from fastllmload.records.integrity import OWNER, WORK, abandoned, before_first_request
from fastllmload.records.run import read_document, read_stored

RUNNING, KILLED = "running", "killed"  # run.json "status"


def own(folder: Path) -> int:
    """Lock *folder*, whose `.work` exists. The lock ends when the descriptor is closed, or with the process. RunFolderError
    when another process has locked it.
    """
    descriptor = os.open(folder / WORK / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunFolderError(
            "folder-in-use",
            f"{folder} is in use: a run continues there, or its files are being collected; wait until it ends",
        ) from None
    except OSError:  # on a file system without locks, files of a killed run stay there
        pass
    return descriptor


def clean_up_killed(folder: Path) -> str | None:
    """Mark an abandoned run as killed and remove its working files. Returns a message, or None.

    RunFolderError when the run was killed before its first request.
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
            raise RunFolderError("run-not-begun", before_first_request(folder)) from None
        left = f"the run was killed; its working files in {folder / WORK} cannot be removed: {problem.strerror}"
        return coded("run-killed", left)
    if not begun:
        raise RunFolderError("run-not-begun", before_first_request(folder))
    return coded("run-killed", f"the run was killed; its working files ({size} in {folder / WORK}) were removed")


def began(folder: Path) -> bool:
    return (folder / "run.json").exists() and bool(read_document(folder).phases)


def describe_leftover_files(folder: Path) -> str | None:
    """A message about working files of a killed run, for commands that do not remove them; None without such files."""
    if not abandoned(folder):
        return None
    return coded(
        "run-killed",
        f"the run was killed; its working files, request bodies among them ({size_of(folder / WORK)} in {folder / WORK}), "
        f"are still there: fastllmload report {folder} removes them",
    )


def size_of(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20:,.1f} MiB"


def mark_killed(folder: Path) -> None:
    stored, document = read_stored(folder)
    if document.status == RUNNING:
        replace_with(folder / "run.json", encoded(changed(stored, status=KILLED)))


ASIDE = re.compile(r"\.cut-\d+$")


def runs_below(folder: Path) -> list[Path]:
    """Folders in *folder* by name, without quarantined ones; empty where *folder* does not exist."""
    if not folder.is_dir():
        return []
    return sorted(place for place in folder.iterdir() if place.is_dir() and not ASIDE.search(place.name))
