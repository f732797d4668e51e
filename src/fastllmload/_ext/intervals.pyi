import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

def record_values(t_ns: Numbers, values: Numbers, begin_ns: int, width_ns: int, words: Numbers) -> int: ...
def record_gaps(
    t_ns: Numbers, first: Numbers, chosen: npt.NDArray[np.uint8], begin_ns: int, width_ns: int, words: Numbers
) -> int: ...
