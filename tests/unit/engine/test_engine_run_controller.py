"""Messages about the end of a run."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from fastllmload.engine.recording import row_process
from fastllmload.engine.run_controller import not_written


def test_a_disk_is_called_full_only_when_a_write_failed() -> None:
    """Answers that come faster than the disk can write do not mean that it is full."""
    assert not_written(True, "").startswith("the disk was full: sending stopped early")
    assert not_written(False, "7 texts").endswith("sending stopped early; not on the disk: 7 texts")


@pytest.mark.parametrize("number", [0, errno.ENOSPC])
def test_a_failed_write_is_distinguished_from_rows_without_memory(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(
        row_process, "new_memory", lambda create: row_process.os.open("/dev/null", row_process.os.O_RDONLY)
    )
    process = row_process.RowProcess([SimpleNamespace(rows_dir="", record_text=True)], {})  # type: ignore[list-item]
    memory = SimpleNamespace(error_number=number, missing={"rows": 0, "events": 0, "texts": 7})
    monkeypatch.setattr(row_process.rowmemory, "RowMemory", lambda _: memory)
    assert process.finish() == memory.missing
    assert process.write_failed is (number != 0)
