import os

import numpy as np
import numpy.typing as npt

class Bodies:
    def __init__(
        self, mapped: npt.NDArray[np.uint8] | None = None, path: str | os.PathLike[str] | None = None
    ) -> None: ...
    def read(self, offset: int, size: int) -> bytes: ...
