import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.int64]

def record_values(t_ns: _Numbers, values: _Numbers, begin_ns: int, width_ns: int, words: _Numbers) -> int: ...
def record_gaps(
    t_ns: _Numbers, first: _Numbers, chosen: npt.NDArray[np.uint8], begin_ns: int, width_ns: int, words: _Numbers
) -> int: ...
