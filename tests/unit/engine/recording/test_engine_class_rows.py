"""Counts of the classes of a mix while it runs: from rows that come, change and end from one snapshot to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext.record import recorder
from fastllmload.engine.recording.class_rows import ClassLines, ClassRows
from fastllmload.records import layout

MS = 1_000_000


def rows_of(n: int, phase: int = layout.MEASURE) -> np.ndarray:
    """Requests under way of classes 0, 1, 0, 1 ..., sent at 1 ms, 2 ms ..."""
    rows = np.zeros(n, layout.REQUEST)
    rows["request_class"], rows["phase"] = np.arange(n) % 2, phase
    rows["status"], rows["t_dispatch"] = layout.STATUS_NAMES.index("in_flight"), np.arange(1, n + 1) * MS
    rows["t_submit"] = rows["t_dispatch"]
    return rows


def written(folder: Path, worker: int, rows: np.ndarray) -> None:
    place = folder / "workers" / str(worker)
    place.mkdir(parents=True, exist_ok=True)
    (place / "requests.npy").write_bytes(bytes(recorder.HEADER_BYTES) + rows.tobytes())


def lines_of(folder: Path, workers: list[int]) -> ClassLines:
    return ClassLines(["chat", "embed"], ClassRows(folder, workers, 2).counts)


def test_rows_are_counted_once_and_until_they_end(tmp_path: Path) -> None:
    found = lines_of(tmp_path, [0, 1])
    assert [(one.in_flight, one.ok, one.failed, one.p50_ms) for one in found.snapshots()] == [(0, 0, 0, None)] * 2
    first, second = rows_of(6), rows_of(2)
    written(tmp_path, 0, first)
    written(tmp_path, 1, second)
    assert [(one.name, one.in_flight, one.ok) for one in found.snapshots()] == [("chat", 4, 0), ("embed", 4, 0)]
    first["status"][:4], first["t_end"][:4] = layout.OK, first["t_submit"][:4] + 50 * MS
    first["t_last"][:4] = first["t_end"][:4]
    first["t_first"][[0, 2]] = first["t_submit"][[0, 2]] + 20 * MS
    second["status"][0], second["t_end"][0] = layout.STATUS_NAMES.index("timeout"), 99 * MS
    written(tmp_path, 0, np.concatenate([first, rows_of(1)]))
    written(tmp_path, 1, second)
    for _ in range(2):  # nothing is counted twice
        chat, embed = found.snapshots()
        assert (chat.in_flight, chat.ok, chat.failed) == (2, 2, 1)
        assert (embed.in_flight, embed.ok, embed.failed) == (2, 2, 0)
        assert (chat.latency, embed.latency) == ("ttft", "e2e")
        assert chat.p50_ms == pytest.approx(20, rel=0.001) and embed.p99_ms == pytest.approx(50, rel=0.001)


def test_users_who_left_and_other_phases_are_not_failures(tmp_path: Path) -> None:
    rows = rows_of(4)
    rows["phase"][3] = 0
    rows["t_end"][[0, 3]] = 5 * MS
    rows["status"][[0, 3]] = layout.STATUS_NAMES.index("cancelled")
    rows["error"][0] = layout.ERROR_NAMES.index("client_cancelled")
    written(tmp_path, 0, rows)
    chat, embed = lines_of(tmp_path, [0]).snapshots()
    assert (chat.in_flight, chat.ok, chat.failed) == (1, 0, 0) and (embed.in_flight, embed.failed) == (1, 0)
