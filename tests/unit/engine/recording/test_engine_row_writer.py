"""Texts of failures go from a worker to the row writer in memory, and from there to the worker's folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastllmload.engine.recording import row_writer
from fastllmload.engine.recording.row_writer import TextWriter
from fastllmload.records import error_texts


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = row_writer.new_texts_memory()
    yield descriptor
    os.close(descriptor)


def test_texts_are_taken_once_per_version(memory: int) -> None:
    assert row_writer.take_texts(memory, 0) is None
    row_writer.put_texts(memory, 1, b"first, and longer")
    assert row_writer.take_texts(memory, 0) == (1, b"first, and longer")
    assert row_writer.take_texts(memory, 1) is None
    row_writer.put_texts(memory, 2, b"second")
    assert row_writer.take_texts(memory, 1) == (2, b"second")


def test_texts_that_change_are_left_for_later(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker was killed within `put`; and it put others while the first were read."""
    row_writer.put_texts(memory, 1, b"whole")
    read, reads = os.pread, []

    def changed(descriptor: int, size: int, offset: int) -> bytes:
        reads.append(offset)
        if len(reads) == 2:
            row_writer.put_texts(memory, 2, b"other")
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", changed)
    assert row_writer.take_texts(memory, 0) is None
    os.pwrite(memory, row_writer.HEAD.pack(0, 0), 0)
    assert row_writer.take_texts(memory, 0) is None


def test_the_file_has_the_latest_texts_and_a_full_disk_is_tried_again(memory: int, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    writer = TextWriter(memory, str(folder))
    row_writer.put_texts(memory, 1, b"first")
    writer.write_out()  # no folder: as with a full disk
    folder.mkdir()
    writer.write_out()
    assert [path.name for path in folder.iterdir()] == [error_texts.NAME]
    assert (folder / error_texts.NAME).read_bytes() == b"first"
    row_writer.put_texts(memory, 2, b"2nd")
    writer.write_out()
    assert (folder / row_writer.TEXTS).read_bytes() == b"2nd"
