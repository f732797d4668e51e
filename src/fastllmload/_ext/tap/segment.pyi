from typing import Any, final

import numpy as np

@final
class Peers:
    count: int
    def watch(self, address: str, port: int) -> int: ...

def segment_dtype() -> np.dtype[Any]: ...
def read_frame(data: Any, size: int) -> dict[str, Any] | str: ...
