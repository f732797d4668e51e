"""Checks the files of a run folder against run.json, which lists each file that is evidence with its size and CRC-32.

The folder of a run that did not finish has no such list; then only the headers of its files can be checked.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fastllmload.documents.run import FileFacts, RunDocument
from fastllmload.errors import coded
from fastllmload.files import NOT_REGULAR, checksum
from fastllmload.records.npy import read_head, size_text

WORK, OWNER = ".work", "owner"  # folder of working files of a running run; the file in it that its supervisor locks
ROWS, EVENTS, TEXT = "requests.npy", "tokens.npy", "text.bin"
SERVER_INFO = "server-info.json"
FILES = (
    ROWS, EVENTS, TEXT, "event_totals.npy", "samples.npy", "hiccup.npy", "hiccup_intervals.npy", "stalls.npy",
    "histograms.npy", "worker_stalls.npy", "telemetry.npy", "telemetry.json", SERVER_INFO, "plan/plan.json",
    "plan/schedule.npy",
)  # fmt: skip


def inventory(folder: Path) -> dict[str, FileFacts]:
    """`files` of run.json: of each of FILES that *folder* has, and of what its hosts recorded."""
    of_hosts = sorted(
        str(path.relative_to(folder))
        for pattern in ("hosts/*/*.npy", "hosts/*/summary/*.json")
        for path in folder.glob(pattern)
    )
    there = [name for name in (*FILES, *of_hosts) if (folder / name).is_file()]
    return {name: FileFacts(bytes=(folder / name).stat().st_size, crc32=checksum(folder / name)) for name in there}


def missing_checksums(document: RunDocument) -> str | None:
    """What cannot be checked in a folder whose run.json has no list of its files; None where it has one."""
    if document.files:
        return None
    return coded(
        "checksums-missing",
        "run.json has no checksums of the run's files (it did not finish, or an earlier version wrote it): files that "
        "were cut are found, bytes that were changed are not",
    )


def find_damage(folder: Path, document: RunDocument, contents: bool = True) -> dict[str, str]:
    """By name, a sentence for each file that differs from run.json, or from its own header. *contents*: checksums too."""
    listed = document.files or {}
    found = {}
    for name in dict.fromkeys((*listed, *FILES)):
        entry = listed.get(name)
        problem = broken(folder / name) if entry is None else differs(folder / name, entry, contents)
        if problem is not None:
            found[name] = f"{folder / name} {problem}"
    return found


def differs(path: Path, entry: FileFacts, contents: bool) -> str | None:
    """How the file differs from *entry*; None if it does not."""
    expected = int(entry.bytes)
    if path.exists() and not path.is_file():
        return f"cannot be read: {NOT_REGULAR}"
    if not path.is_file():
        return f"is missing: the run wrote {expected:,} bytes"
    size = path.stat().st_size
    if size != expected:
        return f"is {'cut' if size < expected else 'too long'}: {size_text(size, expected)}"
    if contents and checksum(path) != entry.crc32:
        return (
            f"was changed: its {size:,} bytes are not those that the run wrote (CRC-32); take it out of `files` in "
            "run.json to read it all the same"
        )
    return None


def broken(path: Path) -> str | None:
    """How a .npy file differs from its own header; None if it does not, or does not exist."""
    if path.exists() and not path.is_file():
        return f"cannot be read: {NOT_REGULAR}"
    if path.suffix != ".npy" or not path.is_file():
        return None
    head, size = read_head(path), path.stat().st_size
    if head is None:
        return f"cannot be read as a .npy file: its {size:,} bytes do not begin like one; it may be truncated"
    return f"is cut: {size_text(size, head.expected_bytes)}" if size < head.expected_bytes else None


def abandoned(folder: Path) -> bool:
    """Whether *folder* has working files without a living supervisor."""
    try:
        descriptor = os.open(folder / WORK / OWNER, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # the run ended normally, or did not begin
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked by a supervisor, or a file system without locks
        return False
    finally:
        os.close(descriptor)
    return True


def before_first_request(folder: Path) -> str:
    return (
        f"the run of {folder} was killed before its first request; nothing was measured, and the folder can be removed"
    )
