"""What the driver knows of events that stay on hosts (`--collect summary`): totals of requests, a summary of each host.

`event_totals.npy` has one record per row of `requests.npy`; `hosts/<h>/summary/event_summary.json` is a `HostSummary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fastllmload.arrays import Mask, Rows
from fastllmload.documents.event_summary import EventSummary, GapCounts, HostSummary, SecondCounts, StampCounts
from fastllmload.errors import RunFolderError
from fastllmload.records.npy import read_array, read_head
from fastllmload.statistics.hdr_sample import together

TOTALS, SUMMARY, PART = "event_totals.npy", "event_summary.json", "summary"
READERS = 8  # columns of lateness at most

TOTAL = np.dtype([
    ("t_any_least", "<i8"), ("t_first_least", "<i8"), ("t_last_least", "<i8"), ("least_deadline", "<i8"),
    ("late", "<i8", (READERS,)), ("chunk_gaps", "<i8"), ("token_gaps", "<i8"), ("chunk_jitter", "<f8"),
    ("token_jitter", "<f8"), ("chunk_pause", "<f8"), ("token_pause", "<f8"), ("in_window", "<f8"),
    ("missed", "<i8"), ("met", "<u4"), ("met_decode", "<u4"), ("chunks", "<u4"), ("tokens", "<u4"),
    ("single", "<u4"), ("bearing", "<u4"), ("empty", "<u4"), ("leading", "<u4"), ("reasoning", "<i4"),
    ("source", "u1"), ("reasons_again", "u1"), ("counted", "u1"), ("spare", "u1"),
])  # fmt: skip


@dataclass(frozen=True)
class EventsElsewhere:
    """*totals*: one per row of the run; *hosts*: summaries by number of the host; *readers*: of the columns of lateness."""

    totals: Rows
    hosts: Mapping[int, HostSummary]

    @property
    def readers(self) -> tuple[tuple[float, int], ...]:
        return next((each.readers for each in self.hosts.values()), ())

    @property
    def counted(self) -> Mask:
        """Rows of which the host has reported totals."""
        found: Mask = self.totals["counted"] > 0
        return found

    @cached_property
    def together(self) -> EventSummary:
        return added(each.events for each in self.hosts.values())

    def of(self, rows: Any, hosts: Iterable[int]) -> EventsElsewhere:
        """The same of the *rows* (a mask or positions) and *hosts* only."""
        kept = set(hosts)
        return replace(
            self, totals=self.totals[rows], hosts={host: one for host, one in self.hosts.items() if host in kept}
        )


def added(summaries: Iterable[EventSummary]) -> EventSummary:
    """The events of all hosts as those of one."""
    every = list(summaries)
    apart = any(one.token_gaps is not None for one in every)
    stamps, seconds = [one.stamps for one in every], [one.seconds for one in every]
    return EventSummary(
        chunk_gaps=gaps_together([one.chunk_gaps for one in every]),
        token_gaps=gaps_together([one.chunk_gaps if one.token_gaps is None else one.token_gaps for one in every])
        if apart
        else None,
        token_seconds=float(sum(one.token_seconds for one in every)),
        empty_stated=sum(one.empty_stated for one in every),
        stamps=StampCounts(
            classes=tuple(sums([one.classes for one in stamps])),
            batched=sum(one.batched for one in stamps),
            brackets=tuple(map(tuple, sums([one.brackets for one in stamps]))),
            gap_errors=together(one.gap_errors for one in stamps),
        ),
        seconds=seconds_together(seconds),
    )


def gaps_together(parts: Iterable[Mapping[int, GapCounts]]) -> dict[int, GapCounts]:
    every = list(parts)
    numbers = sorted({number for part in every for number in part})
    return {number: gaps_of_classes([part[number] for part in every if number in part]) for number in numbers}


def gaps_of_classes(parts: Iterable[GapCounts]) -> GapCounts:
    every = list(parts)
    return GapCounts(
        ns=together(one.ns for one in every),
        least=together(one.least for one in every),
        most=together(one.most for one in every),
    )


def sums(parts: Iterable[Any]) -> Any:
    """Item by item, as lists; of those parts that have any."""
    found = [np.array(part, np.int64) for part in parts if len(part)]
    return np.sum(found, axis=0).tolist() if found else []


def seconds_together(parts: Iterable[SecondCounts]) -> SecondCounts:
    every = [one for one in parts if one.n]
    if not every:
        return SecondCounts()
    counts: dict[int, int] = {}
    for one in every:
        for place, count in zip(one.places, one.counts, strict=True):
            counts[place] = counts.get(place, 0) + count
    places = sorted(counts)
    return SecondCounts(
        n=every[0].n,
        places=tuple(places),
        counts=tuple(counts[place] for place in places),
        coalesced=tuple(sums([one.coalesced for one in every])),
    )


def summary_path(folder: Path, host: int, name: str = SUMMARY) -> Path:
    return folder / "hosts" / str(host) / PART / name


def read_summary(path: Path) -> HostSummary:
    """RunFolderError when it is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=HostSummary)
    except (msgspec.DecodeError, OSError) as problem:
        raise RunFolderError("run-file-damaged", f"{path} cannot be read: {problem}") from problem


def map_records(path: Path, dtype: np.dtype[Any]) -> Rows | None:
    """The records of a .npy file, mapped; None where it is missing."""
    head = read_head(path) if path.exists() else None
    return read_array(path, dtype, (None,), mapped=head is not None and head.shape[:1] != (0,))


def read_elsewhere(folder: Path, hosts: Iterable[int], rows: int) -> EventsElsewhere | None:
    """What *folder* has of events on *hosts*, for as many *rows*; None of a run whose events are in the folder."""
    totals = map_records(folder / TOTALS, TOTAL)
    if totals is None:
        return None
    if len(totals) != rows:
        raise RunFolderError("run-file-damaged", f"{folder / TOTALS} has {len(totals)} records for {rows} requests")
    paths = {host: summary_path(folder, host) for host in hosts}
    return EventsElsewhere(totals, {host: read_summary(path) for host, path in paths.items() if path.exists()})
