"""Joins the packet ring's segments (`workers/tap.bin`, `workers/tap.json`) to merged rows and events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import histogram
from fastllmload._ext.tap import join as tapjoin
from fastllmload._ext.tap.segment import segment_dtype
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.worker_files import Rows, as_bytes

SEGMENTS, WATCHED = "tap.bin", "tap.json"
NONE = -1
AT_ONCE = 1 << 20  # segments

Numbers = npt.NDArray[np.int64]


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """*remote*: for each target the number of its address and port, -1 for none; *tls*: whether it is encrypted."""

    remote: tuple[int, ...]
    tls: tuple[bool, ...]


def write_watched(folder: Path, watched: Watched) -> None:
    (folder / WATCHED).write_bytes(msgspec.json.encode(watched))


def join_tap(folder: Path, rows: Rows, events: Rows, first_event: Numbers) -> dict[str, Any] | None:
    """Set the times of *rows* and *events* from the segments; None without a tap. RunFolderError for contradictions."""
    if not (folder / WATCHED).exists() or not (folder / SEGMENTS).exists():
        return None
    watched = read_watched(folder / WATCHED)
    count = (folder / SEGMENTS).stat().st_size // segment_dtype().itemsize
    record = segment_dtype()
    segments = np.memmap(folder / SEGMENTS, record, "r", shape=(count,)) if count else np.empty(0, record)
    found = [each for part in blocks(segments) for each in tapjoin.losses(as_bytes(part))]
    lost = np.array(found, np.int64).reshape(-1, 2)
    order, chains, chain_key, tls, places = connections(rows, watched)
    times = np.zeros((len(rows), 4), np.int64)
    difference = histogram.empty()
    try:
        join = tapjoin.Join(
            as_bytes(rows),
            as_bytes(events),
            first_event,
            order,
            chains,
            chain_key,
            tls,
            places,
            lost,
            times,
            difference,
        )
    except (IndexError, ValueError) as problem:
        raise RunFolderError(
            "run-file-damaged", f"{folder / SEGMENTS} does not belong to the rows in the same folder: {problem}"
        ) from problem
    for part in blocks(segments):
        join.read(as_bytes(part))
    join.finish()
    return joined(join, len(events), int(np.count_nonzero(times[:, 3])), difference)


def read_watched(path: Path) -> Watched:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Watched)
    except (msgspec.DecodeError, OSError) as problem:
        raise RunFolderError("run-file-damaged", f"{path} cannot be read: {problem}") from problem
    if len(found.remote) != len(found.tls) or not all(NONE <= each < len(found.remote) for each in found.remote):
        raise RunFolderError("run-file-damaged", f"{path} cannot be read: it does not number the targets of a run")
    return found


def blocks(segments: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
    return [segments[at : at + AT_ONCE] for at in range(0, len(segments), AT_ONCE)]


def connections(
    rows: Rows, watched: Watched
) -> tuple[Numbers, Numbers, Numbers, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Arguments of `Join`. A connection is a row that did not reuse one, and the following rows that did."""
    remote = np.array([*watched.remote, NONE], np.int64)
    encrypted = np.array([*watched.tls, False], np.uint8)
    target = np.minimum(rows["url"].astype(np.int64), len(watched.remote))
    known = np.flatnonzero(
        (rows["local_port"] > 0) & (rows["local_port"] < 1 << 16) & (rows["t_submit_start"] > 0) & (remote[target] >= 0)
    )
    place = remote[target[known]] << 16 | rows["local_port"][known].astype(np.int64)
    sorted_ = np.lexsort((rows["t_submit_start"][known], place))
    order, place = known[sorted_], place[sorted_]
    new_key = np.ones(len(order), np.bool_)
    new_key[1:] = place[1:] != place[:-1]
    begins = np.flatnonzero(new_key | (rows["flags"][order] & layout.FLAG_REUSED == 0))
    key = np.cumsum(new_key) - 1
    keys = place[new_key]
    places = np.full((int(remote.max(initial=0)) + 1) << 16, NONE, np.int32)
    places[keys] = np.arange(len(keys))
    chains = np.append(begins, len(order)).astype(np.int64)
    return order, chains, key[begins].astype(np.int64), encrypted[target[order[new_key]]], places


def joined(join: tapjoin.Join, events: int, wires: int, difference: Numbers) -> dict[str, Any]:
    """The join's part of `tap` in run.json, `documents.run.Tap`."""
    unmatched = {
        "lost": join.lost_events,
        "gap": join.unsure,
        "missing": join.missing,
        "no_handshake": join.no_handshake,
        "ambiguous_port": join.mixed,
        "contradicted": join.late,
        "no_segment": join.no_segment,
    }
    unmatched["not_watched"] = events - join.joined - join.narrowed - sum(unmatched.values())
    return {
        "events": events,
        "joined": join.joined,
        "narrowed": join.narrowed,
        "matched_share": (join.joined + join.narrowed) / events if events else None,
        "unmatched": unmatched,
        "before_bracket": join.early,
        "requests_timed": wires,
        "retransmitted": join.retransmitted,
        "out_of_order": join.reordered,
        "gaps": join.gaps,
        "other_connections": join.strays,
        "against_kernel_stamps_us": {
            "n": histogram.total(difference),
            "p50": microseconds(histogram.percentile(difference, 0.5)),
            "p99": microseconds(histogram.percentile(difference, 0.99)),
            "max": microseconds(histogram.percentile(difference, 1.0)),
        },
    }


def microseconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e3
