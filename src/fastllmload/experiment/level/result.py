"""One level: the name and state of its folder, its run, the figures that decide, and its warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastllmload.errors import RunFolderError
from fastllmload.experiment.level.verdict import TOO_SHORT
from fastllmload.records.integrity import find_damage
from fastllmload.records.run import DONE, Run, load, read_manifest
from fastllmload.settings import RunSettings

Entry = Mapping[str, Any]


def level_warnings(levels: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """(code, sentence) for `warnings` from `criteria.warnings` of *levels*."""
    found: dict[str, list[tuple[Entry, str]]] = {}
    for level in levels:
        for text in (level.get("criteria") or {}).get("warnings") or ():
            found.setdefault(TOO_SHORT if str(text).endswith(TOO_SHORT) else str(text), []).append((level, str(text)))
    for kind, there in found.items():
        code = warning_code(kind)
        if len(there) == 1:
            [(level, text)] = there
            yield code, f"level {level.get('number')} ({level.get('name')}): {text}"
            continue
        numbers = ", ".join(str(level.get("number")) for level, _ in there)
        why = "the mean e2e latency is more than a tenth of each: " if kind == TOO_SHORT else ""
        yield code, f"levels {numbers}: {why}{kind}"


def warning_code(kind: str) -> str:
    """The code of a text of `criteria.warnings`."""
    return "level-too-short" if kind == TOO_SHORT else "nothing-measured"


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
        return None, problem.message
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


PERCENTILES = ("p50", "p75", "p90", "p95", "p99", "p999", "mean", "min", "max", "std")


@dataclass(frozen=True)
class Level:
    """A finished level. *resumed*: it was found in the folder and not measured again."""

    number: int
    name: str
    settings: RunSettings
    folder: Path
    document: dict[str, Any]  # its run.json
    resumed: bool = False

    @cached_property
    def run(self) -> Run:
        """Rows and events, mapped."""
        return load(self.folder)

    def figure(self, name: str, statistic: str = "value") -> float | None:
        """`metrics.<name>.<statistic>`; None if it is null or was not measured."""
        found = (self.document.get("metrics") or {}).get(name) or {}
        value = found.get(statistic)
        return None if value is None else float(value)

    @property
    def load(self) -> float:
        """Requests/s of an open loop, slots of a closed one."""
        settings = self.settings.load
        return float(settings.concurrency) if settings.concurrency is not None else float(settings.rate or 0.0)

    @property
    def output_tok_s(self) -> float:
        """Output tokens of the window over its length."""
        return self.figure("output_tok_s") or 0.0

    @property
    def req_s(self) -> float:
        return self.figure("req_s") or 0.0

    @property
    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.get("counts") or {}
        return found

    @property
    def success_rate(self) -> float | None:
        return self.figure("success_rate")

    @property
    def cascading(self) -> bool:
        """Sending was stopped because most of the last requests failed (IETF 7.4)."""
        return any(phase.get("cascading_failure") for phase in self.document.get("phases", ()))

    @property
    def generator_limited(self) -> bool:
        """The client was, or may have been, the limit."""
        return bool((self.document.get("certificate") or {}).get("generator_limited"))

    @property
    def folder_name(self) -> str:
        """Relative to the procedure's folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"
