"""The run folder during a run: created early, with a valid run.json at all times; `.work` is removed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fastllmload import __version__
from fastllmload.documents.run import Environment, RunDocument, Tool
from fastllmload.documents.write import encoded
from fastllmload.errors import HostLimitError, InputError, coded
from fastllmload.records.folder_lock import clean_up_killed, own
from fastllmload.records.integrity import WORK
from fastllmload.records.run import SCHEMA_VERSION, read_document
from fastllmload.settings import RunSettings

BALLAST, BALLAST_BYTES = "ballast", 4 << 20


class Folder:
    """A run's folder, owned until `clean`. *document* is what the next `save` writes to run.json."""

    def __init__(self, path: Path, named: bool = True, made: bool = True) -> None:
        self.path = path
        self.named = named
        self.made = made  # by this run
        self.work = path / WORK
        self.owner = own(path)  # descriptor
        self.document = RunDocument()

    @classmethod
    def create(cls, directory: str | None) -> Folder:
        """A new folder: *directory*, or one under runs/ whose name `set_name` completes."""
        path = Path(directory) if directory is not None else Path("runs") / f".new-{time.time_ns():x}"
        try:
            if path.exists() and any(path.iterdir()):
                raise InputError(
                    "output-not-empty", f"--output {str(path)!r} exists and is not empty; name a new folder"
                )
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            (path / WORK).mkdir(mode=0o700)  # it contains encoded bodies, with the fields of --extra-body
            return cls(path, directory is not None, made)
        except OSError as problem:
            raise HostLimitError(
                "output-not-writable",
                f"the run folder {str(path)!r} cannot be created: {problem.strerror}; choose another with --output",
            ) from problem

    @classmethod
    def open(cls, path: Path) -> Folder:
        """The folder of a run that has ended, or was killed. RunFolderError while it is in use, and without a request."""
        clean_up_killed(path)
        document = read_document(path)
        (path / WORK).mkdir(mode=0o700, exist_ok=True)
        folder = cls(path, made=False)
        folder.document = document
        return folder

    def set_name(self, digest: str) -> None:
        """Give an unnamed folder its name: time and plan digest."""
        if self.named:
            return
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            target = self.path.parent / (f"{stamp}-{digest[:8]}" + (f"-{attempt}" if attempt else ""))
            if not target.exists():
                self.path = self.path.rename(target)
                self.work = self.path / WORK
                return
        raise HostLimitError(
            "output-not-writable",
            f"{self.path.parent} has 100 runs of this second already; name a folder with --output",
        )

    @property
    def begun(self) -> bool:
        """Whether the folder has a run.json."""
        return self.document.status is not None

    def update(self, **fields: Any) -> None:
        """Change *fields* of the document; `save` writes it."""
        self.document = replace(self.document, **fields)

    def incident(self, code: str, sentence: str) -> None:
        """Add what happened to the document; *code* as in `codes.toml`."""
        self.update(incidents=(*self.document.incidents, coded(code, sentence)))

    def begin(self, settings: RunSettings, environment: Environment, **more: Any) -> None:
        """Write the first run.json, with the settings, before anything is sent."""
        with open(self.work / BALLAST, "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, BALLAST_BYTES)
        self.document = RunDocument(
            schema_version=SCHEMA_VERSION,
            tool=Tool(name="fastllmload", version=__version__),
            status="running",
            config=settings,
            environment=environment,
            declarations=dict(settings.output.declare),
            metadata=dict(settings.output.metadata),
            **more,
        )
        self.save()

    def release(self, bodies: Sequence[Path]) -> None:
        """Free disk space once sending has ended: on a full disk the following steps need some."""
        (self.work / BALLAST).unlink(missing_ok=True)
        for path in bodies:
            os.truncate(path, 0)  # a removed file would keep its blocks for as long as it is mapped

    def save(self) -> None:
        """Write run.json atomically."""
        part = self.path / "run.json.part"
        part.write_bytes(encoded(self.document))
        part.replace(self.path / "run.json")

    def mark_failed(self) -> None:
        """Set the status "failed" unless the run has been finalized."""
        if self.document.status == "running":
            self.update(status="failed")
            with contextlib.suppress(OSError):  # on a full disk it stays "running", which reads as incomplete too
                self.save()

    def clean(self) -> None:
        """Remove what only a running run needs; remove everything of a run that was rejected before it began."""
        shutil.rmtree(self.work, ignore_errors=True)
        if not self.document.phases:  # no request went out: the workers' files hold no row
            shutil.rmtree(self.path / "workers", ignore_errors=True)
        os.close(self.owner)
        if not self.begun:
            shutil.rmtree(self.path / "plan", ignore_errors=True)
            with contextlib.suppress(OSError):  # another process has put files there, or runs/ has other runs
                if self.made:
                    self.path.rmdir()
                if not self.named:
                    self.path.parent.rmdir()
