"""procedure.json (search.json, sweep.json): parameters, steps and findings so far. Rewritten completely after every step."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from fastllmload import __version__
from fastllmload.engine.manifest import command_line
from fastllmload.engine.public_settings import blank
from fastllmload.errors import HostLimitError, InputError
from fastllmload.files import parse_json, read_regular, replace_with
from fastllmload.records.samples import DISK_FULL
from fastllmload.redact import Redactor


def hold(folder: Path) -> int:
    """Lock *folder*, which exists. Returns the descriptor that owns the lock: close() releases it; children do not inherit
    it. InputError if another process holds the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            "folder-in-use",
            f"{folder} is in use: another fastllmload works in it; wait until it ends, or name a new folder with --output",
        ) from None
    except OSError:  # a file system without locks: work without one
        pass
    return descriptor


SCHEMA_VERSION = 1
FILE = "procedure.json"
RUNNING, DONE, INTERRUPTED, FAILED = "running", "done", "interrupted", "failed"


class EarlierJournal(msgspec.Struct):
    """Entries that are taken over from the document of an earlier start."""

    procedure: str
    parameters: dict[str, Any]
    started_utc: str
    levels: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    starts: int = 1
    warmup: dict[str, Any] | None = None
    warmups: list[dict[str, Any]] = []
    server_log: dict[str, Any] = {}
    manifest: dict[str, Any] = {}

    @property
    def used_warmups(self) -> list[dict[str, Any]]:
        """Warm-ups after which a level was finished; the others are done again."""
        finished = {level.get("number") for level in self.levels}
        return [done for done in self.warmups if done.get("before_level") in finished]

    @property
    def declared(self) -> dict[str, str]:
        found = self.manifest.get("declarations")
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


class Journal:
    """The document of the procedure in *folder*. A document that exists must be of the same procedure and parameters.

    As a context manager it locks the folder from the first `put` or `save` on: two processes in one folder would disturb
    each other's levels.

    Nothing is written before the first `put` or `save`. Secrets that *redact* knows are blanked: a hook or a server may
    have printed one. *declared*: declarations of an earlier start. *before*: its entries of levels.
    """

    def __init__(
        self, folder: Path, procedure: str, asked: dict[str, Any], file: str = FILE, redact: Redactor | None = None
    ) -> None:
        self.path = folder / file
        self.redact = Redactor() if redact is None else redact
        # In the form in which it is read again: tuples are lists, and secrets are blank
        asked = blank(msgspec.json.decode(msgspec.json.encode(asked)), self.redact)
        before = read_earlier(folder, file) if self.path.exists() else None
        if before is not None and before.procedure != procedure:
            raise InputError(
                "experiment-changed",
                f"{folder} holds the procedure {before.procedure!r}, not {procedure!r}; name a new folder with --output",
            )
        if before is not None and before.parameters != asked:
            raise InputError(
                "experiment-changed",
                f"{folder} holds the procedure {before.procedure!r} with other parameters "
                f"({differences(before.parameters, asked)}); start it again as it was, or name a new folder with --output",
            )
        with written(folder):
            foreign = before is None and folder.exists() and any(folder.iterdir())
            links = (
                [each for each in folder.iterdir() if each.is_symlink() and each.is_dir()] if before is not None else []
            )
        if links:
            raise InputError(
                "output-is-link",
                f"{links[0]} is a link to another folder, into which this start would write its measurements; replace the "
                "link by the folder itself, or name a new folder with --output",
            )
        if foreign:
            raise InputError(
                "output-not-empty",
                f"--output {str(folder)!r} exists and is not a folder of a {Path(file).stem}; name a new one",
            )
        self.resumed = before is not None
        self.declared: dict[str, str] = {} if before is None else before.declared
        self.before: list[dict[str, Any]] = [] if before is None else before.levels
        self._shared = True
        self._held: int | None = None  # descriptor
        self.document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "fastllmload", "version": __version__},
            "procedure": procedure,
            "status": RUNNING,
            "command": command_line(),
            "started_utc": utc() if before is None else before.started_utc,
            "last_start_utc": utc(),
            "starts": 1 if before is None else before.starts + 1,
            "quick": False,
            "manifest": {},
            "parameters": asked,
            "warmup": None if before is None or not before.levels else before.warmup,
            "warmups": [] if before is None else before.used_warmups,
            "steps": [] if before is None else before.steps,
            "server_log": {} if before is None else before.server_log,
            "levels": [] if before is None else before.levels,  # each until this start reaches it
            "findings": {},
            "tables": [],
            "plots": [],
            "deviations": [],
            "warnings": [],
        }

    def __enter__(self) -> Self:
        self._shared = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shared = True
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def put(self, **entries: Any) -> None:
        """Replace entries and save."""
        self.document.update(entries)
        self.save()

    def note(self, kind: str, text: str) -> None:
        """Add a sentence to `warnings` or `deviations`, once."""
        if text not in self.document[kind]:
            self.document[kind].append(text)
            self.save()

    def save(self) -> None:
        self.document = blank(self.document, self.redact)
        with written(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._held is None and not self._shared:
                self._held = hold(self.path.parent)
            replace_with(self.path, msgspec.json.format(msgspec.json.encode(self.document), indent=2) + b"\n")


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Turn a full disk, or a folder that cannot be made or written, into a HostLimitError."""
    try:
        yield
    except OSError as problem:
        full = problem.errno in DISK_FULL
        what = "free some space and start it again as it was" if full else "choose another with --output"
        raise HostLimitError(
            "output-not-writable", f"the folder {str(folder)!r} cannot be written: {problem.strerror}; {what}"
        ) from problem


def differences(before: dict[str, Any], asked: dict[str, Any]) -> str:
    """Values that differ, each as it was and as it is now: `run.load.rate 5.0, now 7.0`."""
    old, new = leaves(before), leaves(asked)
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return "; ".join(f"{name} {old.get(name)}, now {new.get(name)}" for name in names) or "none"


def leaves(tree: dict[str, Any], above: str = "") -> dict[str, str]:
    """Every value below *tree* by its dotted name, as JSON."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = msgspec.json.encode(value).decode()
    return found


def read(folder: Path, file: str = FILE) -> dict[str, Any]:
    """*file* of *folder*. InputError if it is missing, unreadable or of another version."""
    path = folder / file
    try:
        found = parse_json(read_regular(path))
    except FileNotFoundError:
        raise InputError("not-a-run-folder", f"{folder} is not a procedure's folder: it has no {file}") from None
    except (OSError, msgspec.DecodeError) as problem:
        raise InputError("run-file-damaged", f"{path} cannot be read: {problem}") from None
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        raise InputError("schema-version", f"{path} is of another schema version; this version reads {SCHEMA_VERSION}")
    return found


def read_earlier(folder: Path, file: str) -> EarlierJournal:
    """*file* of *folder*, to continue it. InputError if it was truncated or changed."""
    try:
        return msgspec.convert(read(folder, file), EarlierJournal)
    except InputError as problem:
        why = problem.message
    except msgspec.ValidationError as problem:
        why = f"{folder / file} was changed: {problem}"
    raise InputError(
        "experiment-damaged",
        f"{why}; the procedure cannot be continued: name a new folder with --output (fastllmload report shows "
        "each finished run below the old one)",
    )


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
