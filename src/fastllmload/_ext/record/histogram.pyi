from typing import Any

import numpy as np
import numpy.typing as npt

_Words = npt.NDArray[np.int64]

WORDS: int
COUNTS: int
HIGHEST: int
DIGITS: int
TOTAL: int
MINIMUM: int
MAXIMUM: int
OVERFLOW: int

def empty() -> _Words: ...
def record_many(words: _Words, values: _Words) -> None: ...
def total(words: _Words) -> int: ...
def percentile(words: _Words, q: float) -> int | None: ...
def add(into: _Words, words: _Words) -> None: ...
def to_hdrhistogram(words: _Words) -> Any: ...
