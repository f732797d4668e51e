from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int64]

WORDS: int
COUNTS: int
HIGHEST: int
DIGITS: int
TOTAL: int
MINIMUM: int
MAXIMUM: int
OVERFLOW: int

def empty() -> Words: ...
def record_many(words: Words, values: Words) -> None: ...
def total(words: Words) -> int: ...
def percentile(words: Words, q: float) -> int | None: ...
def add(into: Words, words: Words) -> None: ...
def to_hdrhistogram(words: Words) -> Any: ...
