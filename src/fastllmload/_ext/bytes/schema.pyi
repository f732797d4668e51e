from enum import IntEnum
from typing import Any, final

import numpy as np
import numpy.typing as npt

class Kind(IntEnum):
    BOOL = 0
    INTEGER = 1
    FLOAT = 2
    DOUBLE = 3
    TEXT = 4
    MESSAGE = 5
    MAP = 6

@final
class Schema:
    """A protobuf message as data. ``encode`` writes one from JSON, ``decode`` reads it; ValueError names what it lacks."""

    def __init__(self, tree: dict[str, Any]) -> None: ...
    @property
    def tree(self) -> dict[str, Any]: ...
    def encode(self, json: bytes) -> bytes: ...
    def decode(self, message: bytes) -> bytes: ...
    def encode_all(
        self, bodies: bytes | bytearray | memoryview | npt.NDArray[np.uint8], ends: npt.NDArray[np.uint64]
    ) -> tuple[bytes, bytearray]: ...

def with_prefix(message: bytes) -> bytes: ...
def text_field(number: int, text: bytes) -> bytes: ...
