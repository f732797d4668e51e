import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.int64]

NEVER: int
MISS_SHARE: int

def fluidity(t_ns: _Numbers, first: _Numbers, origin: _Numbers, d_p: _Numbers, d_d: int, tallies: _Numbers) -> None: ...
def least_deadline(t_ns: _Numbers, first: _Numbers, step: int, into: _Numbers) -> None: ...
def lateness(
    t_ns: _Numbers,
    first: _Numbers,
    origin: _Numbers,
    waited_until: _Numbers,
    d_1: int,
    per_token: int,
    into: _Numbers,
) -> None: ...
