"""The folder of a level: its name, whether it holds a finished run, and how an unfinished run is moved away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastllmload.errors import RunFolderError
from fastllmload.records.integrity import find_damage
from fastllmload.records.run import DONE, read_manifest


def slug(name: str) -> str:
    """*name* as part of a folder's name."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def finished(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """(run.json, None) of a finished run in *folder* with all its files intact; (None, reason) if it is damaged; (None,
    None) without a finished run.
    """
    if not (folder / "run.json").exists():
        return None, None
    try:
        document = read_manifest(folder)
    except RunFolderError as problem:
        return None, str(problem)
    if document.get("status") != DONE:
        return None, None
    damaged = find_damage(folder, document)
    return (None, "; ".join(damaged.values())) if damaged else (document, None)


def quarantine(folder: Path) -> Path | None:
    """Rename *folder* to the next free `.cut-N` and return the new path; None if it does not exist."""
    if not folder.exists():
        return None
    attempt = 1
    while (target := folder.with_name(f"{folder.name}.cut-{attempt}")).exists():
        attempt += 1
    return folder.rename(target)
