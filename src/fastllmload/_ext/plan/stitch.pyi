from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

class Stitcher:
    fixed: int
    longest: int
    def __init__(
        self,
        blob: npt.NDArray[np.uint8],
        words: npt.NDArray[np.uint32],
        first: npt.NDArray[np.uint32],
        before: bytes,
        pieces: Sequence[bytes],
    ) -> None: ...
    def room(self, words: int, bodies: int) -> int: ...
    def stitch(
        self,
        drawn: npt.NDArray[np.uint32],
        prompt: npt.NDArray[np.int32],
        output: npt.NDArray[np.int32],
        out: npt.NDArray[np.uint8],
        ends: npt.NDArray[np.uint64],
    ) -> int: ...
