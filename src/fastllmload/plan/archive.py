"""A plan as one file: an uncompressed zip of its members, the same bytes for the same plan, verified when it
is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from fastllmload.errors import RunFolderError
from fastllmload.files import is_stream, regular, writing
from fastllmload.plan.bodies import disk_errors
from fastllmload.plan.plan import ARRAYS, BODIES, DOCUMENT, OPTIONAL, REQUIRED, Plan

BLOCK = 1 << 20
SAVE = "--save-plan"
ENCRYPTED = 0x1  # flag of a zip entry
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date that zip knows: no time of day in a plan file


def save_plan(plan: Plan, file: Path) -> None:
    """Write *plan* to *file*, whole or not at all; into a stream (a pipe, /dev/null) as it comes. HostLimitError when the
    disk is full or *file* cannot be written.
    """
    with disk_errors(file, SAVE):
        if is_stream(file):
            with tempfile.TemporaryFile() as whole, writing(file) as stream:  # a zip goes back to its heads
                _pack(plan, whole)
                whole.seek(0)
                shutil.copyfileobj(whole, stream, BLOCK)
            return
    part = _beside(file)
    try:
        with disk_errors(file, SAVE):
            with open(part, "wb") as whole:
                _pack(plan, whole)
            os.replace(part, os.path.realpath(file))
    finally:
        with contextlib.suppress(OSError):  # of a folder that cannot be written, which has been said
            part.unlink(missing_ok=True)


def refuse_unwritable(file: Path) -> None:
    """HostLimitError when a plan could not be written to *file*: better before anything is sent than after it."""
    with disk_errors(file, SAVE):
        if is_stream(file):
            return
        part = _beside(file)
        open(part, "xb").close()
        part.unlink()


def _beside(file: Path) -> Path:
    """Where *file* is made: in the folder of what a link leads to, so that the link stays one."""
    return Path(f"{os.path.realpath(file)}.{os.getpid()}.part")


def _pack(plan: Plan, whole: IO[bytes]) -> None:
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name in _members(plan):
            entry = zipfile.ZipInfo(name, EPOCH)
            with open(plan.directory / name, "rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, BLOCK)


def load_plan(file: Path, directory: Path) -> Plan:
    """Unpack the plan *file* to *directory*, verify every digest and open it. RunFolderError when it is not
    whole.
    """
    try:
        regular(file)
        with zipfile.ZipFile(file) as archive:
            _check_entries(file, archive)
            with disk_errors(directory / DOCUMENT):
                directory.mkdir(parents=True, exist_ok=True)
                for name in OPTIONAL:
                    (directory / name).unlink(missing_ok=True)
                _unpack(archive, directory)
    except (zipfile.BadZipFile, EOFError) as error:
        raise RunFolderError(f"{file} is not a whole plan file: {str(error) or 'it ends too early'}") from error
    except FileNotFoundError as error:
        raise RunFolderError(f"there is no plan file {file}") from error
    except OSError as error:
        raise RunFolderError(
            f"the plan file {file} cannot be read: {error.strerror}; give the file that --save-plan or plan save wrote"
        ) from error
    try:
        plan = Plan.open(directory)
        plan.verify()
    except RunFolderError as problem:  # the folder is ours, the file the user's
        raise RunFolderError(str(problem).replace(str(directory), str(file))) from problem
    return plan


def _members(plan: Plan) -> list[str]:
    known = plan.document["members"]
    return [DOCUMENT, *(name for name in ARRAYS if name in known), BODIES]


def _check_entries(file: Path, archive: zipfile.ZipFile) -> None:
    """Only a plan's own members, each once and uncompressed: nothing is written outside of the folder,
    nothing swells.
    """
    names = [entry.filename for entry in archive.infolist()]
    required = REQUIRED | {DOCUMENT}
    if len(set(names)) != len(names) or not required <= set(names) <= required | OPTIONAL:
        raise RunFolderError(f"{file} is not a plan file: its members are {', '.join(sorted(names)) or 'none'}")
    if any(entry.flag_bits & ENCRYPTED for entry in archive.infolist()):
        raise RunFolderError(f"{file} is not a plan file of this program: its members are encrypted")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
        raise RunFolderError(f"{file} is not a plan file of this program: its members are compressed")


def _unpack(archive: zipfile.ZipFile, directory: Path) -> None:
    for entry in archive.infolist():
        with archive.open(entry) as source, open(directory / entry.filename, "wb") as target:
            shutil.copyfileobj(source, target, BLOCK)
