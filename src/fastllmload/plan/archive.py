"""Save a plan to one file and load it: an uncompressed zip of its members, deterministic, verified when loaded."""

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
from fastllmload.plan.plan import ARRAYS, BODIES, DOCUMENT, OPTIONAL, REQUIRED, SEEN, Plan, plan_error, read_document

BLOCK = 1 << 20
SAVE = "--save-plan"
ENCRYPTED = 0x1  # flag of a zip entry
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of the zip format: a plan file contains no time of day


def save_plan(plan: Plan, file: Path) -> None:
    """Write *plan* to *file* atomically, or to a stream. HostLimitError when it cannot be written."""
    with disk_errors(file, SAVE):
        if is_stream(file):
            with tempfile.TemporaryFile() as archive, writing(file) as stream:  # zip needs a seekable file
                _pack(plan, archive)
                archive.seek(0)
                shutil.copyfileobj(archive, stream, BLOCK)
            return
    part = _temporary(file)
    try:
        with disk_errors(file, SAVE):
            with open(part, "wb") as archive:
                _pack(plan, archive)
            os.replace(part, os.path.realpath(file))
    finally:
        with contextlib.suppress(OSError):  # of an unwritable folder, which has been reported
            part.unlink(missing_ok=True)


def check_writable(file: Path) -> None:
    """HostLimitError when a plan cannot be written to *file*; called before anything is sent."""
    with disk_errors(file, SAVE):
        if is_stream(file):
            return
        part = _temporary(file)
        open(part, "xb").close()
        part.unlink()


def _temporary(file: Path) -> Path:
    """Temporary name of *file*, in the folder of a symbolic link's target, so that the link is kept."""
    return Path(f"{os.path.realpath(file)}.{os.getpid()}.part")


def _pack(plan: Plan, target_file: IO[bytes]) -> None:
    with zipfile.ZipFile(target_file, "w", zipfile.ZIP_STORED) as archive:
        for folder in ("", f"{SEEN}/") if (plan.directory / SEEN / DOCUMENT).exists() else ("",):
            known = read_document(plan.directory / folder).members
            for name in (DOCUMENT, *(name for name in ARRAYS if name in known), BODIES):
                entry, file = zipfile.ZipInfo(folder + name, EPOCH), plan.directory / folder / name
                with open(file, "rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, BLOCK)


def load_plan(file: Path, directory: Path) -> Plan:
    """Unpack the plan *file* to *directory*, verify every digest and open it. RunFolderError when it is damaged."""
    try:
        regular(file)
        with zipfile.ZipFile(file) as archive:
            _check_entries(file, archive)
            with disk_errors(directory / DOCUMENT):
                directory.mkdir(parents=True, exist_ok=True)
                for name in OPTIONAL:
                    (directory / name).unlink(missing_ok=True)
                if (directory / SEEN).exists():
                    shutil.rmtree(directory / SEEN)
                _unpack(archive, directory)
    except (zipfile.BadZipFile, EOFError) as error:
        raise plan_error(f"{file} is not a complete plan file: {str(error) or 'it ends too early'}") from error
    except FileNotFoundError as error:
        raise plan_error(f"the plan file {file} does not exist") from error
    except OSError as error:
        raise plan_error(
            f"the plan file {file} cannot be read: {error.strerror}; give the file that --save-plan or plan save wrote"
        ) from error
    try:
        plan = Plan.open(directory)
        plan.verify()
        if (directory / SEEN).exists():
            Plan.open(directory / SEEN).verify()
    except RunFolderError as problem:  # the folder is ours, the file the user's
        raise RunFolderError(problem.code, problem.message.replace(str(directory), str(file))) from problem
    return plan


def _check_entries(file: Path, archive: zipfile.ZipFile) -> None:
    """RunFolderError unless the archive has exactly a plan's members, once each and uncompressed: unpacking is then safe."""
    names = [entry.filename for entry in archive.infolist()]
    required = REQUIRED | {DOCUMENT}
    seen = {name.removeprefix(f"{SEEN}/") for name in names if name.startswith(f"{SEEN}/")}
    parts = [{name for name in names if not name.startswith(f"{SEEN}/")}, *([seen] if seen else [])]
    if len(set(names)) != len(names) or not all(required <= part <= required | OPTIONAL for part in parts):
        raise plan_error(f"{file} is not a plan file: its members are {', '.join(sorted(names)) or 'none'}")
    if any(entry.flag_bits & ENCRYPTED for entry in archive.infolist()):
        raise plan_error(f"{file} is not a plan file of this program: its members are encrypted")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
        raise plan_error(f"{file} is not a plan file of this program: its members are compressed")


def _unpack(archive: zipfile.ZipFile, directory: Path) -> None:
    for entry in archive.infolist():
        (directory / entry.filename).parent.mkdir(exist_ok=True)
        with archive.open(entry) as source, open(directory / entry.filename, "wb") as target:
            shutil.copyfileobj(source, target, BLOCK)
