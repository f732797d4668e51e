"""A run folder, read: rows, events by row, manifest, samples. Works while the run goes on and after a kill."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext import regroup
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.error_texts import read_texts
from fastllmload.records.merge import Merged, merge_in_memory
from fastllmload.records.npy import read_array
from fastllmload.records.shape import misshapen
from fastllmload.records.worker_files import Bytes, Rows, as_bytes, open_rows, open_text

SCHEMA_VERSION = 1
DONE = "done"  # run.json "status" of a run that ended as planned; anything else is incomplete


@dataclass(frozen=True)
class PhaseTimes:
    """One entry of run.json "phases". *end_ns* is when sending stopped, None while unknown.

    *bound* is "duration" or "count"; *ramp_share* is the part of the phase before its window begins.
    """

    name: str
    start_ns: int
    end_ns: int | None
    bound: str
    ramp_share: float


@dataclass(frozen=True)
class Run:
    """Rows by (phase, request); row r has the events `first_event[r]:first_event[r + 1]`, in time order.

    *incomplete*: the run was killed, was interrupted, or still goes on; rows then may have status in_flight. *damage*:
    what of the folder could not be read and is missing here, one sentence each.
    """

    directory: Path
    manifest: dict[str, Any]
    rows: Rows
    events: Rows
    first_event: npt.NDArray[np.int64]
    samples: npt.NDArray[Any] | None = None
    incomplete: bool = False
    text: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    damage: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line: where, how it ended, whether it can be believed."""
        counts = self.manifest.get("counts") or {}
        state = "incomplete" if self.incomplete else "complete"
        verdict = (self.manifest.get("certificate") or {}).get("verdict", "not judged")
        ok, planned = counts.get("ok", 0), counts.get("planned", len(self.rows))
        return f"<Run {self.directory} {state}, {verdict}, {ok:,} of {planned:,} requests ok>"

    @property
    def metrics(self) -> dict[str, Any]:
        """run.json "metrics": by name, a distribution or a single value with its unit; empty when not measured."""
        found: dict[str, Any] = self.manifest.get("metrics") or {}
        return found

    @property
    def verdict(self) -> str | None:
        """valid, suspect or invalid; None when the run was not judged."""
        found: str | None = (self.manifest.get("certificate") or {}).get("verdict")
        return found

    @property
    def event_t(self) -> npt.NDArray[np.int64]:
        """CLOCK_MONOTONIC ns of each event."""
        return self.events["t_ns"]

    @property
    def event_kind(self) -> npt.NDArray[np.uint8]:
        """Position in `layout.EVENT_NAMES`."""
        return self.events["kind"]

    @property
    def event_stamp(self) -> npt.NDArray[np.uint8]:
        """Stamp class in the low bits (`layout.STAMP_CLASS_MASK`), and `layout.STAMP_SAME_READ`."""
        return self.events["stamp"]

    @property
    def event_tokens(self) -> npt.NDArray[np.uint16]:
        """Tokens that the server said the event carries; 0 = it did not say."""
        return self.events["tokens"]

    def phase(self, name: str) -> PhaseTimes | None:
        """Times of a phase, None when the manifest has none of that name."""
        for entry in self.manifest.get("phases", ()):
            if entry["name"] == name:
                return PhaseTimes(**{key: entry[key] for key in PhaseTimes.__dataclass_fields__})
        return None


def read_manifest(directory: Path) -> dict[str, Any]:
    """run.json as a dict. RunFolderError when it is missing, no JSON object, or of another schema version."""
    path = directory / "run.json"
    try:
        manifest = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        why = "it has no run.json" if directory.exists() else "it does not exist"
        raise RunFolderError(
            f"{directory} is no run folder: {why}; give the folder that a run named at its end"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RunFolderError(f"{path} is not JSON, it may be truncated: {problem}") from problem
    if not isinstance(manifest, dict):
        raise RunFolderError(f"{path} is not a JSON object")
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RunFolderError(
            f"{path} has schema_version {version!r}, this version reads {SCHEMA_VERSION}: read the folder with the "
            "version that wrote it"
        )
    wrong = misshapen(manifest)
    if wrong is not None:
        raise RunFolderError(f"{path} is damaged: {wrong}; it was changed since fastllmload wrote it")
    return manifest


def read_merged(directory: Path) -> Merged:
    """The merged files of a run. RunFolderError when their events are not those of their rows."""
    rows = open_rows(directory / "requests.npy", layout.REQUEST)
    events = open_rows(directory / "tokens.npy", layout.EVENT)
    first_event = np.zeros(len(rows) + 1, np.int64)
    try:
        grouped = regroup.count_rows(as_bytes(events), first_event[1:])
    except IndexError as problem:
        raise RunFolderError(f"{directory}/tokens.npy does not belong to requests.npy: {problem}") from problem
    if not grouped:
        raise RunFolderError(f"{directory}/tokens.npy is not grouped by row: it was changed, or never merged")
    np.cumsum(first_event, out=first_event)
    return Merged(rows, events, first_event, open_text(directory / "text.bin"))


def load(directory: str | os.PathLike[str]) -> Run:
    """Read a run folder. RunFolderError says what is missing, truncated or of another version."""
    folder = Path(directory)
    if not folder.is_dir():
        raise RunFolderError(f"{folder} does not exist or is no folder")
    manifest = read_manifest(folder)
    merged_before = (folder / "requests.npy").exists()
    if not merged_before and not (folder / "workers").is_dir():
        raise RunFolderError(f"{folder} has neither requests.npy nor worker files: nothing was measured")
    merged = read_merged(folder) if merged_before else merge_in_memory(folder)
    samples, damage = what_is_left(folder / "samples.npy")
    if not merged_before:
        try:
            manifest.setdefault("error_texts", read_texts(folder))
        except RunFolderError as problem:
            damage = (*damage, f"{problem}; the rest of the run is shown")
    return Run(
        directory=folder,
        manifest=manifest,
        rows=merged.rows,
        events=merged.events,
        first_event=merged.first_event,
        samples=samples,
        incomplete=not merged_before or manifest.get("status") != DONE,
        text=merged.text,
        damage=damage,
    )


def what_is_left(path: Path) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
    """A file that a run can be understood without: its records, or None and why it cannot be read."""
    try:
        return read_array(path, shape=(None,)), ()
    except RunFolderError as problem:
        return None, (f"{problem}; the rest of the run is shown",)
