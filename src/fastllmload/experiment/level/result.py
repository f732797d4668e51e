"""One level: the name and state of its folder, its run, the figures that decide, and its warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from fastllmload.arrays import Rows
from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.errors import RunFolderError
from fastllmload.experiment.level.verdict import TOO_SHORT
from fastllmload.records import layout
from fastllmload.records.integrity import find_damage
from fastllmload.records.run import DONE, Run, load, read_document
from fastllmload.settings import RunSettings


def level_warnings(levels: Sequence[LevelEntry]) -> Iterator[tuple[str, str]]:
    """(code, sentence) for `warnings` from `criteria.warnings` of *levels*."""
    found: dict[str, list[tuple[LevelEntry, str]]] = {}
    for level in levels:
        for text in level.criteria.warnings if level.criteria is not None else ():
            found.setdefault(TOO_SHORT if text.endswith(TOO_SHORT) else text, []).append((level, text))
    for kind, there in found.items():
        code = warning_code(kind)
        if len(there) == 1:
            [(level, text)] = there
            yield code, f"level {level.number} ({level.name}): {text}"
            continue
        numbers = ", ".join(str(level.number) for level, _ in there)
        why = "the mean e2e latency is more than a tenth of each: " if kind == TOO_SHORT else ""
        yield code, f"levels {numbers}: {why}{kind}"


def warning_code(kind: str) -> str:
    return "level-too-short" if kind == TOO_SHORT else "nothing-measured"


def slug(name: str) -> str:
    """*name* as part of a folder's name."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def finished(folder: Path) -> tuple[RunDocument | None, str | None]:
    """(run.json, None) of a finished run in *folder* with all its files intact; (None, reason) if it is damaged; (None,
    None) without a finished run.
    """
    if not (folder / "run.json").exists():
        return None, None
    try:
        document = read_document(folder)
    except RunFolderError as problem:
        return None, problem.message
    if document.status != DONE:
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


class Measured(Protocol):
    """A level, or what contains one."""

    def figure(self, name: str, statistic: str = "value") -> float | None: ...


@dataclass(frozen=True)
class Level:
    """A finished level. *resumed*: it was found in the folder and not measured again."""

    number: int
    name: str
    settings: RunSettings
    folder: Path
    document: RunDocument
    resumed: bool = False

    @cached_property
    def run(self) -> Run:
        """Rows and events, mapped."""
        return load(self.folder)

    @property
    def answered(self) -> Rows:
        """Rows of the measured requests that succeeded and had a first token."""
        rows = self.run.rows
        answered: Rows = rows[(rows["phase"] == layout.MEASURE) & (rows["status"] == layout.OK) & (rows["t_first"] > 0)]
        return answered

    def figure(self, name: str, statistic: str = "value") -> float | None:
        """`metrics.<name>.<statistic>`, or its lower bound where requests did not end; None if it was not measured."""
        return self.document.metric(name).least(statistic)

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
    def completed(self) -> int:
        return int(known(self.document.completed) or 0)

    @property
    def failed(self) -> int:
        return int(known(self.document.failed) or 0)

    @property
    def verdict(self) -> str | None:
        """The verdict of its certificate; None: not judged."""
        return None if self.document.certificate is None else self.document.certificate.verdict

    @property
    def success_rate(self) -> float | None:
        return self.figure("success_rate")

    @property
    def cascading(self) -> bool:
        """Sending was stopped because most of the last requests failed (IETF 7.4)."""
        return any(phase.cascading_failure for phase in self.document.phases)

    @property
    def generator_limited(self) -> bool:
        """The client was, or may have been, the limit."""
        certificate = self.document.certificate
        return certificate is not None and bool(certificate.generator_limited)

    @property
    def folder_name(self) -> str:
        """Relative to the procedure's folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"


@dataclass(frozen=True)
class LevelFinding:
    """A level with what a test or a search adds to it."""

    level: Level

    def figure(self, name: str, statistic: str = "value") -> float | None:
        return self.level.figure(name, statistic)
