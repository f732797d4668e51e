import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

NEVER: int
MISS_SHARE: int

def fluidity(
    t_ns: Numbers, first: Numbers, origin: Numbers, d_p: Numbers, d_d: int, tallies: Numbers
) -> None: ...
def least_deadline(t_ns: Numbers, first: Numbers, step: int, into: Numbers) -> None: ...
def lateness(
    t_ns: Numbers,
    first: Numbers,
    origin: Numbers,
    waited_until: Numbers,
    d_1: int,
    per_token: int,
    into: Numbers,
) -> None: ...
