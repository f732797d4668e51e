"""Joins the packet ring's segments (`workers/tap.bin`, `workers/tap.json`) to merged rows and events.

Of a run over many hosts, each host has both files in `hosts/<h>/` until its segments are joined to the rows of its workers,
in its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload._ext.record import histogram
from fastllmload._ext.tap import join as tapjoin
from fastllmload._ext.tap.segment import segment_dtype
from fastllmload.arrays import Mask
from fastllmload.documents import fields
from fastllmload.documents.fields import Number, known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.hosts import Tap, TapError
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.hosts import HostEntries, host_folder, positions
from fastllmload.records.worker_files import Rows, as_bytes

SEGMENTS, WATCHED = "tap.bin", "tap.json"
NONE = -1
AT_ONCE = 1 << 20  # segments

SUMMED = (
    "ring_bytes", "segments", "payload_bytes", "drops", "freezes", "clock_steps", "unwritten", "foreign", "cpu_s",
    "events", "joined", "narrowed", "before_bracket", "requests_timed", "retransmitted", "out_of_order", "gaps",
    "other_connections",
)  # fmt: skip

Numbers = npt.NDArray[np.int64]
Taps = dict[int | None, Tap]  # what the join found: by host, and of all together as None


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """*remote*: for each target the number of its address and port, -1 for none; *tls*: whether it is encrypted."""

    remote: tuple[int, ...]
    tls: tuple[bool, ...]


def write_watched(folder: Path, watched: Watched) -> None:
    (folder / WATCHED).write_bytes(msgspec.json.encode(watched))


@dataclass(frozen=True)
class Joined:
    """A finished join, of how many *events*; *requests*: those with t_wire. *difference*: HDR histogram against the kernel's
    stamps.
    """

    join: tapjoin.Join
    events: int
    requests: int
    difference: Numbers


def join_tap(folder: Path, rows: Rows, events: Rows, first_event: Numbers, hosts: HostEntries = ()) -> Taps:
    """Set the times of *rows* and *events* from the segments in *folder*, `workers` of a run, or of its *hosts*; {} without
    a tap. RunFolderError for contradictions.
    """
    at = positions(hosts, rows["worker"])
    places: list[tuple[int | None, Path, Mask]] = [
        (host.host, host_folder(folder.parent, host), at == position) for position, host in enumerate(hosts)
    ] or [(None, folder, np.ones(len(rows), np.bool_))]
    found = {number: join_segments(place, rows, events, first_event, mine) for number, place, mine in places}
    parts = {number: part for number, part in found.items() if part is not None}
    each = {number: described([part]) for number, part in parts.items()}
    return {None: described([*parts.values()]), **each} if parts else {}


def with_taps(document: RunDocument, found: Taps) -> RunDocument:
    """*document* with `tap` of the run and of each of its hosts completed by what was *found* when segments were joined.
    Where those of only some hosts were, the others had been joined before.
    """
    hosts = tuple(
        replace(host, tap=fields.joined(host.tap or Tap(), found.get(host.host, Tap())))
        if host.tap is not None or host.host in found
        else host
        for host in document.hosts
    )
    taps = {host.host: host.tap for host in hosts if host.tap is not None}
    tap = seen([*taps.values()]) if taps else document.tap
    if tap is not None and taps.keys() <= found.keys():
        tap = fields.joined(tap, found.get(None, Tap()))
    return replace(document, hosts=hosts, tap=tap)


def seen(taps: Sequence[Tap]) -> Tap:
    """What several hosts have, together; how far stamps are apart cannot be added."""
    given = {name: numbers(getattr(tap, name) for tap in taps) for name in SUMMED}
    found = replace(
        Tap(
            other_frames=together([tap.other_frames for tap in taps]),
            unmatched=together([tap.unmatched for tap in taps]),
        ),
        **{name: sum(each) for name, each in given.items() if each},
    )
    events, matched = known(found.events), (known(found.joined) or 0) + (known(found.narrowed) or 0)
    return replace(found, matched_share=matched / events) if events else found


def together(counts: Sequence[Mapping[str, Number]]) -> dict[str, Number]:
    """The sum of each kind."""
    kinds = dict.fromkeys(kind for each in counts for kind in each)
    return {kind: sum(numbers(each.get(kind) for each in counts)) for kind in kinds}


def numbers(given: Iterable[Number]) -> list[int | float]:
    return [number for number in given if isinstance(number, int | float)]


def remove_segments(folder: Path, hosts: HostEntries) -> None:
    """Remove the segments of *hosts* in the run folder *folder*: they have been joined."""
    for place in (host_folder(folder, host) for host in hosts):
        for name in (SEGMENTS, WATCHED):
            (place / name).unlink(missing_ok=True)


def join_segments(folder: Path, rows: Rows, events: Rows, first_event: Numbers, mine: Mask) -> Joined | None:
    """The same with the segments in *folder*, for the rows *mine*."""
    if not (folder / WATCHED).exists() or not (folder / SEGMENTS).exists():
        return None
    watched = read_watched(folder / WATCHED)
    count = (folder / SEGMENTS).stat().st_size // segment_dtype().itemsize
    record = segment_dtype()
    segments = np.memmap(folder / SEGMENTS, record, "r", shape=(count,)) if count else np.empty(0, record)
    found = [each for part in blocks(segments) for each in tapjoin.losses(as_bytes(part))]
    lost = np.array(found, np.int64).reshape(-1, 2)
    order, chains, chain_key, tls, places = connections(rows, watched, mine)
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
    return Joined(join, int(np.diff(first_event)[mine].sum()), int(np.count_nonzero(times[:, 3])), difference)


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
    rows: Rows, watched: Watched, mine: Mask
) -> tuple[Numbers, Numbers, Numbers, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Arguments of `Join` for the rows *mine*. A connection is a row that did not reuse one, and the following rows that
    did.
    """
    remote = np.array([*watched.remote, NONE], np.int64)
    encrypted = np.array([*watched.tls, False], np.uint8)
    target = np.minimum(rows["url"].astype(np.int64), len(watched.remote))
    has_port = (rows["local_port"] > 0) & (rows["local_port"] < 1 << 16)
    known = np.flatnonzero(mine & has_port & (rows["t_submit_start"] > 0) & (remote[target] >= 0))
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


def described(parts: Sequence[Joined]) -> Tap:
    """What all *parts* of the join found together."""

    def total(name: str) -> int:
        return sum(getattr(part.join, name) for part in parts)

    events, matched = sum(part.events for part in parts), total("joined") + total("narrowed")
    difference = histogram.empty()
    for part in parts:
        histogram.add(difference, part.difference)
    unmatched: dict[str, Number] = {
        "lost": total("lost_events"),
        "gap": total("unsure"),
        "missing": total("missing"),
        "no_handshake": total("no_handshake"),
        "ambiguous_port": total("mixed"),
        "contradicted": total("late"),
        "no_segment": total("no_segment"),
    }
    unmatched["not_watched"] = events - matched - sum(numbers(unmatched.values()))
    return Tap(
        events=events,
        joined=total("joined"),
        narrowed=total("narrowed"),
        matched_share=matched / events if events else None,
        unmatched=unmatched,
        before_bracket=total("early"),
        requests_timed=sum(part.requests for part in parts),
        retransmitted=total("retransmitted"),
        out_of_order=total("reordered"),
        gaps=total("gaps"),
        other_connections=total("strays"),
        against_kernel_stamps_us=TapError(
            n=histogram.total(difference),
            p50=microseconds(histogram.percentile(difference, 0.5)),
            p99=microseconds(histogram.percentile(difference, 0.99)),
            max=microseconds(histogram.percentile(difference, 1.0)),
        ),
    )


def microseconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e3
