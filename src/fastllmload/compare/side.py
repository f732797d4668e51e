"""Reads the runs of each side: run folders, folders of them, result files of other tools. Lists how their set-up differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fastllmload.compare.foreign.read import IN_FOLDERS, read_result, result_file
from fastllmload.compare.foreign.result import ForeignResult
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import values
from fastllmload.endpoint import told_apart
from fastllmload.errors import InputError, RunFolderError
from fastllmload.metrics.run.measure import measure
from fastllmload.plan.pace import FIXED
from fastllmload.records.folder_lock import runs_below
from fastllmload.records.run import DONE, load, read_document
from fastllmload.records.server_info import flat, read

SECTIONS = ("tool", "config", "target", "environment", "declarations", "metadata")
PER_RUN = {  # entries that differ between any two runs
    "config.output.directory",
    "config.output.ui",
    "config.output.save_plan",
    "config.load.repetition",
    "environment.time_utc",
    "environment.clock_offset_ns",
    "target.connect_ms",
    "target.connect_after_ms",
    "target.probe_s",
    "target.addresses",
}


FOREIGN_ENTRIES = ("tool.name", "tool.version", "target.model")  # that a result file of another tool has


@dataclass(frozen=True)
class RunRecord:
    """A finished run: its folder, and its run.json. Of another tool (*foreign*): its file, and the figures in it."""

    folder: Path
    document: RunDocument
    foreign: ForeignResult | None = None

    @property
    def complete(self) -> bool:
        return self.document.status == DONE

    @property
    def verdict(self) -> str:
        """The client's certificate: valid, suspect, invalid, or "not judged"."""
        certificate = self.document.certificate
        return (None if certificate is None else certificate.verdict) or "not judged"

    @property
    def digest(self) -> str | None:
        """SHA-256 of the plan that was sent."""
        return self.document.plan.digest

    def same_as(self, other: RunRecord) -> bool:
        """Whether both are the same measurement, such as a copied folder: same start instants and same figures."""
        mine, theirs = self.document, other.document
        begun = [[phase.start_ns for phase in each.phases] for each in (mine, theirs)]
        same_time = mine.environment.time_utc == theirs.environment.time_utc
        if self.foreign is not None and other.foreign is not None:
            return self.foreign.tool == other.foreign.tool and mine.metrics == theirs.metrics
        return bool(begun[0]) and begun[0] == begun[1] and same_time and mine.metrics == theirs.metrics

    @property
    def drawn(self) -> bool:
        """Whether its arrivals are random, from a seed."""
        arrivals = self.document.plan.description.load.arrivals
        return arrivals is not None and arrivals.stream is not None and arrivals.name not in FIXED


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a configuration, a version, a system."""

    name: str
    runs: tuple[RunRecord, ...]

    @property
    def first(self) -> RunRecord:
        return self.runs[0]

    @property
    def independent(self) -> int:
        """Number of independent runs: runs with the same random arrivals count once."""
        if not all(run.drawn for run in self.runs):
            return len(self.runs)
        return len({run.digest for run in self.runs})

    @property
    def documents(self) -> list[RunDocument]:
        return [run.document for run in self.runs]

    @property
    def foreign(self) -> ForeignResult | None:
        """The first result of another tool among the runs."""
        return next((run.foreign for run in self.runs if run.foreign is not None), None)


def read_side(paths: list[str]) -> Side:
    """The side of the runs at *paths*; `NAME=FOLDER` names it. RunFolderError for a folder without runs."""
    name, folders = "", []
    for path in paths:
        label, split, rest = path.partition("=")
        named = split == "=" and not Path(path).exists()
        name = name or (label if named else "")
        folders += runs_in(Path(rest if named else path))
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise InputError("run-repeated", f"{sorted(twice)[0]} is given twice on one side; give each run once")
    side = Side(
        name or Path(paths[0]).name or Path(paths[0]).resolve().name, tuple(read_run(folder) for folder in folders)
    )
    for k, run in enumerate(side.runs):
        copy = next((each for each in side.runs[:k] if run.same_as(each)), None)
        if copy is not None:
            raise InputError("run-repeated", f"{run.folder} is a copy of {copy.folder}; give each run once")
    return side


def runs_in(folder: Path) -> list[Path]:
    """*folder* itself if it is a run's or a result file of another tool, else the run folders in it, by name."""
    file = None if (folder / "run.json").exists() else result_file(folder)
    if file is not None:
        return [file]
    if not folder.is_dir():
        raise RunFolderError(
            "not-a-run-folder",
            f"{folder} does not exist; give a run folder, one that contains runs, or a result file of another tool",
        )
    if (folder / "run.json").exists():
        return [folder]
    found = [each for each in runs_below(folder) if (each / "run.json").exists()]
    if not found and (folder / "levels").is_dir():
        raise RunFolderError("not-a-run-folder", f"{folder} is not a run: {levels_words(folder / 'levels')}")
    if not found:
        raise RunFolderError(
            "not-a-run-folder",
            f"{folder} is not a run folder and contains none: run.json is missing, there and one level below, and so is "
            f"{' or '.join(IN_FOLDERS)} of another tool",
        )
    return found


def levels_words(place: Path) -> str:
    """Advice which runs in *place*, the levels of a test, search or sweep, to give instead."""
    levels = [each for each in runs_below(place) if (each / "run.json").exists()]
    if len(levels) == 1:
        return f"it contains one level; give that, {levels[0]}"
    return f"it contains {len(levels) or 'no'} levels{f'; give single ones of {place}' if levels else ''}"


def read_run(folder: Path) -> RunRecord:
    """The run.json of *folder*; figures are computed where the run ended before they were written. Or a result file."""
    if not folder.is_dir():
        foreign = read_result(folder)
        return RunRecord(folder, foreign.document(), foreign)
    document = read_document(folder)
    return RunRecord(folder, document if document.metrics else measure(load(folder)))


def distinct_names(sides: list[Side]) -> list[Side]:
    """The sides with distinct names: equal names get a number."""
    names = [side.name for side in sides]
    return [
        Side(f"{side.name}#{k + 1}", side.runs) if names.count(side.name) > 1 else side for k, side in enumerate(sides)
    ]


def manifest_diff(sides: list[Side]) -> dict[str, tuple[str, ...]]:
    """Differences between the sides other than the workload: of each entry of run.json its values by side, as text."""
    if any(side.foreign is not None for side in sides):
        flat = [[dict(_entries(document)) for document in side.documents] for side in sides]
        keys = list(FOREIGN_ENTRIES)
    else:
        said = {run.folder: server_entries(run) for side in sides for run in side.runs}
        common = set.intersection(*map(set, said.values()))  # pages that the servers of all runs have
        flat = [
            [
                dict(_entries(run.document))
                | {key: text for page in common for key, text in said[run.folder][page].items()}
                for run in side.runs
            ]
            for side in sides
        ]
        keys = sorted({key for runs in flat for run in runs for key in run} - PER_RUN)
    found = {key: tuple(" or ".join(sorted({run.get(key, "-") for run in runs})) for runs in flat) for key in keys}
    return {key: by_side for key, by_side in found.items() if len(set(by_side)) > 1}


def server_entries(run: RunRecord) -> dict[str, dict[str, str]]:
    """What the servers of *run* said of themselves before it, by page and key; values of several servers are joined."""
    info = read(run.folder)
    found: dict[str, dict[str, set[str]]] = {}
    for pages in {} if info is None else info.steady(info.before).values():
        for page, content in pages.items():
            for key, text in flat(content):
                found.setdefault(page, {}).setdefault(f"server{page.partition('?')[0]}.{key}", set()).add(text)
    return {page: {key: " or ".join(sorted(texts)) for key, texts in keys.items()} for page, keys in found.items()}


def _entries(document: RunDocument) -> Iterator[tuple[str, str]]:
    target = document.target
    if target.simulated:  # on any free port
        target = replace(target, urls=(), classes=tuple(replace(one, urls=()) for one in target.classes))
    for section in SECTIONS:
        part = target if section == "target" else getattr(document, section)
        yield from _flat(section, told_apart(values(part)))


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    elif isinstance(value, list) and len(value) == 1:
        yield key, str(value[0])
    elif value is not None and value != [] and value != {}:
        yield key, str(value)
