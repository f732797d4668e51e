"""procedure.json (search.json, sweep.json): parameters, steps and findings so far. Rewritten completely after every step."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from fastllmload import __version__
from fastllmload.documents.experiment import ExperimentDocument, LevelEntry
from fastllmload.documents.procedure import experiment_document, lacks, stored_parameters
from fastllmload.documents.read import read_file
from fastllmload.documents.run import Tool
from fastllmload.documents.write import changed, encoded, plain
from fastllmload.engine.document import command_line
from fastllmload.engine.public_settings import blank
from fastllmload.errors import HostLimitError, InputError, coded
from fastllmload.files import replace_with
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
NEEDED = ("procedure", "parameters", "started_utc", "levels", "steps")  # keys without which nothing can be continued
RUNNING, DONE, INTERRUPTED, FAILED = "running", "done", "interrupted", "failed"


D = TypeVar("D", bound=ExperimentDocument, covariant=True)


class Journal(Generic[D]):
    """The document of the procedure in *folder*, of type *kind*. A document that exists must be of the same procedure and
    parameters.

    As a context manager it locks the folder from the first `put` or `save` on: two processes in one folder would disturb
    each other's levels.

    Nothing is written before the first `put` or `save`. Secrets that *redact* knows are blanked: a hook or a server may
    have printed one. *declared*: declarations of an earlier start. *before*: its entries of levels.
    """

    document: D

    def __init__(
        self,
        folder: Path,
        kind: type[D],
        procedure: str,
        asked: dict[str, Any],
        file: str = FILE,
        redact: Redactor | None = None,
    ) -> None:
        self.path = folder / file
        self.redact = Redactor() if redact is None else redact
        self._kind = kind
        # In the form in which it is read again: tuples are lists, and secrets are blank
        self._asked = asked = blank(msgspec.json.decode(msgspec.json.encode(asked)), self.redact)
        stored, before = read_earlier(folder, file, kind) if self.path.exists() else (None, None)
        if before is not None and before.procedure != procedure:
            raise InputError(
                "experiment-changed",
                f"{folder} holds the procedure {before.procedure!r}, not {procedure!r}; name a new folder with --output",
            )
        given = None if stored is None else stored_parameters(stored)
        if given is not None and given != asked:
            raise InputError(
                "experiment-changed",
                f"{folder} holds the procedure {procedure!r} with other parameters "
                f"({differences(given, asked)}); start it again as it was, or name a new folder with --output",
            )
        with written(folder):
            there = list(folder.iterdir()) if folder.exists() else []
        links = [each for each in there if each.is_symlink() and each.is_dir()]
        if before is not None and links:
            raise InputError(
                "output-is-link",
                f"{links[0]} is a link to another folder, into which this start would write its measurements; replace the "
                "link by the folder itself, or name a new folder with --output",
            )
        if before is None and there:
            raise InputError(
                "output-not-empty",
                f"--output {str(folder)!r} exists and is not a folder of a {Path(file).stem}; name a new one",
            )
        self.resumed = before is not None
        self.declared: dict[str, str] = {} if before is None else before.manifest.declarations
        self.before: tuple[LevelEntry, ...] = () if before is None else before.levels
        self._shared = True
        self._held: int | None = None  # descriptor
        earlier = kind() if before is None else before
        measured = {entry.number for entry in earlier.levels}
        self.document = experiment_document({"procedure": procedure, "parameters": asked}, kind)
        self._set(
            schema_version=SCHEMA_VERSION,
            tool=Tool(name="fastllmload", version=__version__),
            status=RUNNING,
            command=None if (line := command_line()) is None else tuple(line),
            started_utc=earlier.started_utc or utc(),
            last_start_utc=utc(),
            starts=1 if before is None else before.starts + 1,
            warmup=earlier.warmup if earlier.levels else None,
            # Those after which a level was finished; the others are done again
            warmups=tuple(done for done in earlier.warmups if done.before_level in measured),
            steps=earlier.steps,
            server_log=earlier.server_log,
            levels=earlier.levels,  # each until this start reaches it
        )

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

    def _set(self, **entries: Any) -> None:
        self.document = msgspec.structs.replace(self.document, **entries)

    def put(self, **entries: Any) -> None:
        """Replace entries and save."""
        self._set(**entries)
        self.save()

    def warn(self, code: str, sentence: str, public: bool = False) -> None:
        """Add a sentence to `warnings`, once. *public*: it reveals nothing."""
        text = coded(code, sentence)
        if text not in self.document.warnings:
            self.put(warnings=(*self.document.warnings, text), public=self._public(text, public))

    def deviate(self, text: str, public: bool = False) -> None:
        """Add a sentence to `deviations`, once."""
        if text not in self.document.deviations:
            self.put(deviations=(*self.document.deviations, text), public=self._public(text, public))

    def _public(self, text: str, public: bool) -> tuple[str, ...]:
        known = self.document.public
        return (*known, text) if public and text not in known else known

    def save(self) -> None:
        found = changed(plain(self.document), parameters=self._asked)
        public = blank(found, self.redact)
        if public != found:
            self.document = experiment_document(public, self._kind)
        with written(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._held is None and not self._shared:
                self._held = hold(self.path.parent)
            replace_with(self.path, encoded(public))


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
    lacks = "not recorded"  # a setting that the version which wrote the folder did not have
    return "; ".join(f"{name} {old.get(name, lacks)}, now {new.get(name, lacks)}" for name in names) or "none"


def leaves(tree: dict[str, Any], above: str = "") -> dict[str, str]:
    """Every value below *tree* by its dotted name, as JSON."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = msgspec.json.encode(value).decode()
    return found


def read(folder: Path, kind: type[D], file: str = FILE) -> D:
    """*file* of *folder*. InputError if it is missing, unreadable, of another version, or has a part of another type."""
    return read_stored(folder, kind, file)[1]


def read_stored(folder: Path, kind: type[D], file: str) -> tuple[dict[str, Any], D]:
    """The same as it is stored, also with keys that this version does not know, and as a type."""
    try:
        return read_file(folder / file, SCHEMA_VERSION, lambda found: experiment_document(found, kind))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("not-a-run-folder", f"{folder} is not a procedure's folder: it has no {file}") from None


def read_earlier(folder: Path, file: str, kind: type[D]) -> tuple[dict[str, Any], D]:
    """*file*, to continue it. InputError if it was truncated or changed."""
    try:
        stored, document = read_stored(folder, kind, file)
        missing = lacks(stored, NEEDED)
        if missing is None:
            return stored, document
        why = f"{folder / file} was changed: it has no {missing}"
    except InputError as problem:
        why = problem.message
    raise InputError(
        "experiment-damaged",
        f"{why}; the procedure cannot be continued: name a new folder with --output (fastllmload report shows each "
        "finished run below the old one)",
    )


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
