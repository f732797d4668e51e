from os import PathLike
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record.rowmemory import RowMemory
from fastllmload._ext.record.rowwriter import RowWriter

HEADER_BYTES: int
ROWS: str
EVENTS: str
TEXT: str

def request_dtype() -> np.dtype[np.void]: ...
def event_dtype() -> np.dtype[np.void]: ...
def npy_header(dtype: np.dtype[Any], records: int) -> bytes: ...
def text_index(
    data: Any,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.uint32]]: ...
def make_files(directory: str | PathLike[str], text: bool) -> None: ...

@final
class EventCount:
    lost: int

@final
class Recorder:
    memory: RowMemory
    writer: RowWriter | None
    events: EventCount
    text_on: bool
    closed: bool
    def __init__(
        self, directory: str | PathLike[str] | None = None, text: bool = False, memory: int | None = None
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def add_row(self, **fields: int) -> int | None: ...
    def set_row(self, number: int, **fields: int) -> None: ...
    def finish_row(self, number: int, **fields: int) -> None: ...
    def add_event(
        self,
        t_ns: int,
        row: int,
        kind: int,
        stamp: int = 0,
        tokens: int = 0,
        bracket_ns: int = 0,
        offset: int = 0,
    ) -> bool: ...
    def change_event(self, back: int, stamp: int, bracket_ns: int) -> None: ...
    def add_text(self, row: int, text: bytes | bytearray | memoryview) -> bool: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
