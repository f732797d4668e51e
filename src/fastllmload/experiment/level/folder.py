"""The folder of a level: its name, whether it holds a finished run, and where what it holds goes when it does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastllmload.errors import RunFolderError
from fastllmload.records.integrity import not_whole
from fastllmload.records.run import DONE, read_manifest


def slug(name: str) -> str:
    """*name* as part of a folder's name."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def finished(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """run.json of the finished run in *folder*, every file of which is as it was left. None where there is none, and
    what is wrong with it where it is damaged.
    """
    if not (folder / "run.json").exists():
        return None, None
    try:
        document = read_manifest(folder)
    except RunFolderError as problem:
        return None, str(problem)
    if document.get("status") != DONE:
        return None, None
    damaged = not_whole(folder, document)
    return (None, "; ".join(damaged.values())) if damaged else (document, None)


def put_aside(folder: Path) -> Path | None:
    """A run that was cut off is kept beside, as evidence, under the name returned; its own name is free again."""
    if not folder.exists():
        return None
    attempt = 1
    while (target := folder.with_name(f"{folder.name}.cut-{attempt}")).exists():
        attempt += 1
    return folder.rename(target)
