"""Reads the truth log: what the server wrote and when, as numpy arrays.

Version 7, little-endian: `FLLTRUTH`, uint32 version, uint32 0; then blocks of uint32 kind (1 events, 2 requests, 3 notes,
4 a call), uint32 count, records; notes are bytes: for each request uint32 serial, uint32 size, text; a call is int64 t_ns,
uint32 status, text. A log cut off by a kill is read
up to its last complete record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastllmload.errors import RunFolderError

VERSION = 7
NO_KEY = 0xFFFFFFFF
QUEUED = 0x80
_EVENT = np.dtype([("t_ns", "<i8"), ("serial", "<u4"), ("index_kind", "<u4"), ("took_ns", "<u4")])
EVENT = np.dtype(
    [
        ("t_ns", "<i8"), ("took_ns", "<u4"), ("serial", "<u4"), ("key", "<u4"), ("phase", "<u4"), ("index", "<u4"),
        ("kind", "u1"), ("queued", "?"),
    ]
)  # fmt: skip
REQUEST = np.dtype(
    [
        ("serial", "<u4"), ("key", "<u4"), ("phase", "<u4"), ("connection", "<u4"),
        ("prompt_tokens", "<i4"), ("output_tokens", "<i4"), ("cached_tokens", "<i4"),
        ("status", "<u2"), ("flags", "u1"), ("fault", "u1"),
        ("t_accept", "<i8"), ("t_recv_first", "<i8"), ("t_recv_first_kernel", "<i8"), ("t_recv_last", "<i8"),
        ("t_recv_last_kernel", "<i8"), ("t_admitted", "<i8"), ("t_first", "<i8"), ("t_end", "<i8"),
        ("total_ns", "<i8"), ("load_ns", "<i8"), ("prompt_eval_ns", "<i8"), ("eval_ns", "<i8"),
        ("t_tls", "<i8"), ("call_status", "<i4"),
    ]
)  # fmt: skip
FLAGS = {"stream": 1, "aborted": 2, "reused": 4, "preempted": 8, "length": 16, "resumed": 32}


@dataclass(frozen=True)
class LoggedCall:
    """A request of a route that controls the engine, such as `POST /reset_prefix_cache`; CLOCK_MONOTONIC ns."""

    t_ns: int
    status: int
    text: str  # method and target


@dataclass(frozen=True)
class Truth:
    """*requests*: one REQUEST row each, by serial (arrival order). *events*: EVENT rows, by serial, then index.

    Times are CLOCK_MONOTONIC ns; 0 means that it did not happen. An event's `t_ns` is taken just before the send() that
    carries it, which took `took_ns`; where `queued` is set the socket did not take it whole at that instant and it left
    later. `kind` is the EventKind of `delta.pxd`. `key` and `phase` are the last two numbers of X-Fastllmload-Request, else
    of X-Request-Id, NO_KEY when absent. `total_ns`, `load_ns`, `prompt_eval_ns`, `eval_ns` are the durations that an Ollama
    reply says of itself. *notes*: by serial, lines of `name: value` for what --log, --session-token and --backends name.
    *calls*: of control routes, by time.
    """

    requests: NDArray[np.void]
    events: NDArray[np.void]
    notes: dict[int, str]
    calls: tuple[LoggedCall, ...] = ()

    def of(self, key: int, phase: int | None = None) -> NDArray[np.void]:
        """Events of the request with this key (and phase)."""
        chosen = self.events["key"] == key
        if phase is not None:
            chosen &= self.events["phase"] == phase
        found: NDArray[np.void] = self.events[chosen]
        return found

    def content(self) -> NDArray[np.void]:
        """Events that carry what was generated: whitespace, content, reasoning and pieces of tool calls."""
        chosen: NDArray[np.void] = self.events[np.isin(self.events["kind"], (2, 3, 4, 5))]
        return chosen


def load(path: str | Path) -> Truth:
    """The log at *path*, with those of the other processes (PATH.1, PATH.2 ...; serials are made unique)."""
    first = Path(path)
    requests: list[NDArray[np.void]] = []
    events: list[NDArray[np.void]] = []
    notes: dict[int, str] = {}
    calls: list[LoggedCall] = []
    offset = 0
    for part in [first, *sorted(first.parent.glob(first.name + ".[0-9]*"))]:
        some_requests, some_events, some_notes, some_calls = _read(part)
        calls += some_calls
        some_requests["serial"] += offset
        some_events["serial"] += offset
        requests.append(some_requests)
        events.append(some_events)
        notes.update((serial + offset, text) for serial, text in _notes(some_notes))
        offset = int(max(some_requests["serial"].max(initial=offset), some_events["serial"].max(initial=offset))) + 1
    calls.sort(key=lambda call: call.t_ns)
    return replace(_join(np.concatenate(requests), np.concatenate(events), notes), calls=tuple(calls))


def _notes(data: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while at + 8 <= len(data):
        serial, size = np.frombuffer(data, "<u4", 2, at).tolist()
        yield serial, data[at + 8 : at + 8 + size].decode()
        at += 8 + size


def _read(path: Path) -> tuple[NDArray[np.void], NDArray[np.void], bytes, list[LoggedCall]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunFolderError("file-unreadable", f"the truth log {path} cannot be read: {error.strerror}") from None
    if len(data) < 16 or data[:8] != b"FLLTRUTH" or int.from_bytes(data[8:12], "little") != VERSION:
        raise RunFolderError("truth-log-damaged", f"{path} is not a truth log of version {VERSION}")
    found: dict[int, list[NDArray[np.void]]] = {1: [], 2: [], 3: [], 4: []}
    dtypes = {1: _EVENT, 2: REQUEST, 3: np.dtype("u1"), 4: np.dtype("u1")}
    at = 16
    while at + 8 <= len(data):
        kind, count = np.frombuffer(data, "<u4", 2, at).tolist()
        if kind not in found:
            raise RunFolderError("truth-log-damaged", f"{path} has a block of unknown kind {kind} at byte {at}")
        dtype = dtypes[kind]
        whole = min(count, (len(data) - at - 8) // dtype.itemsize)
        found[kind].append(np.frombuffer(data, dtype, whole, at + 8))
        at += 8 + count * dtype.itemsize
    calls = [_call(each.tobytes()) for each in found[4] if len(each) >= 12]
    requests, events = ([np.empty(0, dtypes[kind]), *found[kind]] for kind in (2, 1))
    return np.concatenate(requests), np.concatenate(events), b"".join(each.tobytes() for each in found[3]), calls


def _call(data: bytes) -> LoggedCall:
    return LoggedCall(int.from_bytes(data[:8], "little"), int.from_bytes(data[8:12], "little"), data[12:].decode())


def _join(requests: NDArray[np.void], raw: NDArray[np.void], notes: dict[int, str]) -> Truth:
    requests = requests[np.argsort(requests["serial"], kind="stable")]
    events = np.zeros(len(raw), EVENT)
    for name in ("t_ns", "took_ns", "serial"):
        events[name] = raw[name]
    events["index"] = raw["index_kind"] >> 8
    events["kind"] = raw["index_kind"] & 0x7F
    events["queued"] = raw["index_kind"] & QUEUED != 0
    events["key"] = events["phase"] = NO_KEY
    if len(requests):
        place = np.searchsorted(requests["serial"], events["serial"])
        known = place < len(requests)
        known[known] = requests["serial"][place[known]] == events["serial"][known]
        events["key"][known] = requests["key"][place[known]]
        events["phase"][known] = requests["phase"][place[known]]
    return Truth(requests, events[np.lexsort((events["index"], events["serial"]))], notes)
