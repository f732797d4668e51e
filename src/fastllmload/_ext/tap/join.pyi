from typing import Any

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[np.int64]

class Join:
    joined: int
    narrowed: int
    lost_events: int
    unsure: int
    late: int
    early: int
    no_segment: int
    missing: int
    no_handshake: int
    mixed: int
    retransmitted: int
    reordered: int
    gaps: int
    strays: int
    sent_again: int
    def __init__(
        self,
        rows: _Bytes,
        events: _Bytes,
        first: _Numbers,
        order: _Numbers,
        chains: _Numbers,
        chain_key: _Numbers,
        tls: _Bytes,
        places: npt.NDArray[np.int32],
        lost: _Numbers,
        times: _Numbers,
        difference: _Numbers,
    ) -> None: ...
    def read(self, segments: Any) -> None: ...
    def finish(self) -> None: ...

def losses(segments: Any) -> list[tuple[int, int]]: ...
