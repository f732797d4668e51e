"""The header of a .npy file is checked before numpy reads it, which takes minutes for some broken headers."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from refusals import raises_code

from fastllmload.records.npy import read_array, read_head


def saved(version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(5), version)
    return stream.getvalue()


BROKEN = {
    "an open quote": saved().replace(b"'descr'", b"'descr "),
    "bytes that are not text": saved()[:12] + bytes(range(128, 200)) + saved()[84:],
    "another magic": b"PK\x03\x04" + saved()[4:],
    "a version that there is not": saved()[:6] + b"\x07\x00" + saved()[8:],
    "a head of 4 GiB": saved((2, 0))[:8] + b"\xff\xff\xff\xff" + saved((2, 0))[12:],
    "a call": saved().replace(b"(5,)", b"f(5)"),
    "nothing": b"",
}


@pytest.mark.parametrize("how", BROKEN)
def test_numpy_does_not_read_an_invalid_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def seen(*_: object, **__: object) -> None:
        raise AssertionError("numpy was asked")

    for name in ("read_magic", "read_array_header_1_0", "read_array_header_2_0"):
        monkeypatch.setattr(np.lib.format, name, seen)
    monkeypatch.setattr(np, "load", seen)
    path = tmp_path / "broken.npy"
    path.write_bytes(BROKEN[how])
    assert read_head(path) is None
    with raises_code("run-file-damaged", "broken.npy", ".npy file"):
        read_array(path)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_each_version_is_read(tmp_path: Path, version: tuple[int, int]) -> None:
    path = tmp_path / "whole.npy"
    path.write_bytes(saved(version))
    found, head = read_array(path), read_head(path)
    assert found is not None and found.tolist() == [0, 1, 2, 3, 4]
    assert head is not None and (head.shape, head.expected_bytes) == ((5,), path.stat().st_size)
