"""The numpy dtypes and names equal the compiled structs and enumerations, field for field."""

import re
from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext.record import recorder
from fastllmload.records import layout, worker_files
from fastllmload.records.worker_files import open_rows

PXD = Path(__file__).parents[3] / "ext/fastllmload/_ext"


def described(dtype: np.dtype) -> list[tuple[str, str, int]]:
    return [(name, dtype.fields[name][0].str, dtype.fields[name][1]) for name in dtype.names]


def members(file: str, enum: str, prefix: str) -> list[str]:
    """Names of an enum in the order of their numbers, without prefix, in lower case."""
    body = (PXD / file).read_text().split(f"enum {enum}:", 1)[1].split("\n\n", 1)[0]
    pairs = re.findall(rf"^    {prefix}(\w+) = (\d+)", body, re.M)
    assert [int(number) for _, number in pairs] == list(range(len(pairs)))
    return [name.lower() for name, _ in pairs]


def test_dtypes_are_those_of_the_compiled_structs() -> None:
    assert described(layout.REQUEST) == described(recorder.request_dtype())
    assert described(layout.EVENT) == described(recorder.event_dtype())
    assert layout.REQUEST.itemsize == recorder.request_dtype().itemsize == 256
    assert layout.EVENT.itemsize == recorder.event_dtype().itemsize == 24


@pytest.mark.parametrize(
    ("names", "file", "enum", "prefix"),
    [
        (layout.STATUS_NAMES, "record/recorder.pxd", "Status", "STATUS_"),
        (layout.ERROR_NAMES, "record/recorder.pxd", "ErrorClass", "ERROR_"),
        (layout.PHASE_NAMES, "record/recorder.pxd", "Phase", "PHASE_"),
        (layout.STAMP_NAMES, "record/recorder.pxd", "StampClass", "STAMP_"),
        (layout.EVENT_NAMES, "events/delta.pxd", "EventKind", "EVENT_"),
        (layout.FINISH_NAMES, "events/dialect.pxd", "FinishReason", "FINISH_"),
    ],
)
def test_names_are_those_of_the_compiled_enumerations(
    names: tuple[str, ...], file: str, enum: str, prefix: str
) -> None:
    assert list(names) == members(file, enum, prefix)


def test_flags_are_those_of_the_compiled_enumeration() -> None:
    body = (PXD / "record/recorder.pxd").read_text().split("cdef enum RowFlag:", 1)[1].split("\n\n", 1)[0]
    declared = {name: int(number) for name, number in re.findall(r"^    (FLAG_\w+) = (\d+)", body, re.M)}
    assert declared == {name: getattr(layout, name) for name in dir(layout) if name.startswith("FLAG_")}


@pytest.mark.parametrize("client", ["client", "spare"])
def test_files_of_the_layout_before_backends_are_read(tmp_path: Path, client: str) -> None:
    """`client`, or before it a spare field, had the two bytes as well; no request has a backend."""
    old = np.dtype(
        [
            (client, "<u4") if name == "client" else (name, code)
            for name, code in layout.REQUEST.descr
            if name != "backend"
        ]
    )
    rows = np.zeros(2, old)
    rows["t_submit"], rows[client], rows["t_wire"] = [5, 6], [4, 1], [7, 8]
    np.save(tmp_path / "requests.npy", rows)
    found = open_rows(tmp_path / "requests.npy", layout.REQUEST)
    assert found.dtype == layout.REQUEST and found["backend"].tolist() == [0, 0]
    assert [found[name].tolist() for name in ("t_submit", "t_wire")] == [[5, 6], [7, 8]]
    assert found["client"].tolist() == ([4, 1] if client == "client" else [0, 0])


def test_files_of_the_layout_before_brackets_are_read(tmp_path: Path) -> None:
    """Event rows of 16 bytes get the bracket that follows from the reads; `t_first_floor` is dropped."""
    old_request = np.dtype(
        [("t_first_floor", "<i8") if name == "stream_begin" else (name, "<u4" if name == "client" else code)
         for name, code in layout.REQUEST.descr if name not in ("head_end", "backend")]
    )  # fmt: skip
    rows = np.zeros(2, old_request)
    rows["t_submit"], rows["t_first_floor"] = [5, 6], [7, 8]
    events = np.array(
        [(10, 0, 3, 1, 2), (20, 1, 3, 0, 0), (20, 0, 3, 2, 0), (20, 0, 3, 5, 0), (40, 0, 3, 1, 0), (45, 1, 3, 0, 0)],
        worker_files.EVENT,
    )
    np.save(tmp_path / "requests.npy", rows)
    np.save(tmp_path / "tokens.npy", events)
    found = open_rows(tmp_path / "requests.npy", layout.REQUEST)
    assert found["t_submit"].tolist() == [5, 6] and found["stream_begin"].tolist() == [0, 0]
    read = open_rows(tmp_path / "tokens.npy", layout.EVENT)
    assert read["t_ns"].tolist() == events["t_ns"].tolist() and read["tokens"].tolist() == [2, 0, 0, 0, 0, 0]
    assert read["bracket_ns"].tolist() == [0, layout.BRACKET_OPEN, 10, 0, 0, 25]
