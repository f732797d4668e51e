import numpy as np
import numpy.typing as npt

class Beat:
    """A timerfd that the reactor sets again after each beat."""

    @property
    def fd(self) -> int: ...

class Pacer:
    """Walks one phase's schedule: an absolute timerfd armed early, the rest spun within *budget* (share of a core)."""

    fd: int
    next: int
    start: int
    def __init__(self, budget: float = 0.15, lead_ns: int = 90_000) -> None: ...
    def load(self, schedule: npt.NDArray[np.int64]) -> None: ...
    def start_at(self, start: int) -> None: ...
    @property
    def lead_ns(self) -> int: ...
    def after_wakes(self, late_ns: list[int]) -> int: ...
