"""Large arrays are in unnamed files in the run folder; small ones, and those that do not fit there, in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fastllmload.records import scratch
from fastllmload.records.scratch import room


def mapped(values: np.ndarray) -> bool:
    """Whether they are in a mapped file of this test's folder."""
    at = values.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(edge, 16) for edge in line.split()[0].split("-"))
        if begin <= at < end:
            return "deleted" in line
    return False


def test_a_large_array_takes_the_file_and_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LARGE", 4096)
    large, small = room(1000, np.int64, tmp_path), room(10, np.int64, tmp_path)
    large[:] = np.arange(1000)
    assert mapped(large) and not mapped(small) and not mapped(room(1000, np.int64, None))
    assert large.dtype == np.int64 and large.sum() == 499_500
    assert not room(1000, np.int64, tmp_path).any() and not room(1000, np.int64, None).any()
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_a_file_memory_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LARGE", 4096)
    assert not mapped(room(1000, np.uint16, tmp_path / "missing" / "folder"))
    before = set(os.listdir("/proc/self/fd"))

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    found = room(1000, np.int64, tmp_path)
    found[:] = 1
    assert not mapped(found) and found.sum() == 1000
    assert set(os.listdir("/proc/self/fd")) == before and list(tmp_path.iterdir()) == []
