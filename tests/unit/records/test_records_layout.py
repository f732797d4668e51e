"""The numpy dtypes and names equal the compiled structs and enumerations, field for field."""

import re
from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext import recorder
from fastllmload.records import layout

PXD = Path(__file__).parents[3] / "ext/fastllmload/_ext"


def described(dtype: np.dtype) -> list[tuple[str, str, int]]:
    return [(name, dtype.fields[name][0].str, dtype.fields[name][1]) for name in dtype.names]


def members(file: str, enum: str, prefix: str) -> list[str]:
    """Names of a cdef enum in the order of their numbers, without prefix, in lower case."""
    body = (PXD / file).read_text().split(f"cdef enum {enum}:", 1)[1].split("\n\n", 1)[0]
    pairs = re.findall(rf"^    {prefix}(\w+) = (\d+)", body, re.M)
    assert [int(number) for _, number in pairs] == list(range(len(pairs)))
    return [name.lower() for name, _ in pairs]


def test_dtypes_are_those_of_the_compiled_structs() -> None:
    assert described(layout.REQUEST) == described(recorder.request_dtype())
    assert described(layout.EVENT) == described(recorder.event_dtype())
    assert layout.REQUEST.itemsize == recorder.request_dtype().itemsize == 256
    assert layout.EVENT.itemsize == recorder.event_dtype().itemsize == 16


@pytest.mark.parametrize(
    ("names", "file", "enum", "prefix"),
    [
        (layout.STATUS_NAMES, "recorder.pxd", "Status", "STATUS_"),
        (layout.ERROR_NAMES, "recorder.pxd", "ErrorClass", "ERROR_"),
        (layout.PHASE_NAMES, "recorder.pxd", "Phase", "PHASE_"),
        (layout.STAMP_NAMES, "recorder.pxd", "StampClass", "STAMP_"),
        (layout.EVENT_NAMES, "delta.pxd", "EventKind", "EVENT_"),
        (layout.FINISH_NAMES, "delta.pxd", "FinishReason", "FINISH_"),
    ],
)
def test_names_are_those_of_the_compiled_enumerations(
    names: tuple[str, ...], file: str, enum: str, prefix: str
) -> None:
    assert list(names) == members(file, enum, prefix)


def test_flags_are_those_of_the_compiled_enumeration() -> None:
    body = (PXD / "recorder.pxd").read_text().split("cdef enum RowFlag:", 1)[1].split("\n\n", 1)[0]
    declared = {name: int(number) for name, number in re.findall(r"^    (FLAG_\w+) = (\d+)", body, re.M)}
    assert declared == {name: getattr(layout, name) for name in dir(layout) if name.startswith("FLAG_")}
