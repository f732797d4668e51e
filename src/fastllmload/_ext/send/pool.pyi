from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

class Pool:
    """The connections of a worker; the Transport makes and uses it."""

    def __init__(
        self,
        epfd: int,
        shared: npt.NDArray[np.int64],
        max_event: int,
        stamps: bool,
        fresh: bool,
        sources: Sequence[tuple[str, str]],
    ) -> None: ...
