"""The folder of an agent, as a later agent finds it: whose it is, which processes still write there, and its removal.

An agent keeps its folder when its driver does not have all of it. `RECORD` identifies the folder; `FINISHED`, which comes
with the other files of the host, says that the agent has completed them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from fastllmload.engine.hosts.link.messages import Finished
from fastllmload.errors import RunFolderError
from fastllmload.files import read_regular

RECORD, FINISHED = "host.json", "finished.json"
PREFIX = "fastllmload-host"
WRITING_S, AGAIN_S = 30.0, 0.2  # for processes of the run to end; between questions whether they have


class HostRecord(msgspec.Struct, frozen=True):
    """Whose folder it is."""

    run_id: str
    host: int


def write_record(folder: Path, record: HostRecord) -> BinaryIO:
    """Write *record*. Returns the open file: who has it open may still write to the folder."""
    file = open(folder / RECORD, "xb", buffering=0)  # noqa: SIM115 - lives as long as the agent
    file.write(msgspec.json.encode(record))
    return file


def write_finished(own: Path, finished: Finished) -> None:
    """Write the last report of an agent to *own*, its folder below `hosts`, unless there is one. A full disk leaves none."""
    if (own / FINISHED).exists():
        return
    part = own / f"{FINISHED}.part"
    with contextlib.suppress(OSError):
        part.write_bytes(msgspec.json.encode(finished))
        part.replace(own / FINISHED)


def read_finished(own: Path) -> Finished | None:
    """The last report of the agent whose files are in *own*; None of one that did not complete them. RunFolderError."""
    path = own / FINISHED
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_regular(path), type=Finished)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise RunFolderError("run-file-damaged", f"{path} cannot be read: {problem}") from problem


class KeptFolder:
    """A folder that an agent on this host has kept."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def check(self, wanted: HostRecord) -> None:
        """Wait until no process writes there. RunFolderError when it is gone, or is not the folder of *wanted*."""
        if not self.path.exists():
            raise RunFolderError("host-folder-gone", f"{self.path} does not exist there any more")
        if self._record() != wanted:
            raise RunFolderError("host-folder-other", f"{self.path} is not a folder of this run")
        until = time.monotonic() + WRITING_S
        while writers := users_of(self.path):
            if time.monotonic() > until:
                named = ", ".join(map(str, writers))
                raise RunFolderError("host-folder-in-use", f"processes of the run still use {self.path}: {named}")
            time.sleep(AGAIN_S)

    def _record(self) -> HostRecord | None:
        """None for a folder that no agent of this user has made."""
        if not self.path.is_absolute() or not self.path.name.startswith(PREFIX) or self.path.is_symlink():
            return None
        try:
            if self.path.stat().st_uid != os.geteuid():
                return None
            return msgspec.json.decode(read_regular(self.path / RECORD), type=HostRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def remove(self) -> str | None:
        """A clause if it cannot be removed, or not all of it."""
        try:
            shutil.rmtree(self.path)
        except OSError as problem:
            return f"it cannot be removed: {(problem.strerror or str(problem)).lower()}"
        return None


def users_of(folder: Path) -> list[int]:
    """Processes of this user that have a file below *folder* open."""
    inside = f"{folder.resolve()}/"
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and any(target.startswith(inside) for target in open_files(process)):
            found.append(int(process.name))
    return found


def open_files(process: Path) -> list[str]:
    """Files that *process*, a folder of /proc, has open; none of one that has ended, or belongs to another user."""
    found = []
    with contextlib.suppress(OSError):
        for each in (process / "fd").iterdir():
            found.append(os.readlink(each))
    return found
