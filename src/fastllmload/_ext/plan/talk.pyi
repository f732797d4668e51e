import numpy as np
import numpy.typing as npt

from fastllmload._ext.events.calls import CallList
from fastllmload._ext.plan.bodies import Bodies
from fastllmload._ext.plan.toolturn import ToolTurns

def turn_dtype() -> np.dtype[np.void]: ...
def leaving_dtype() -> np.dtype[np.void]: ...
def edge_dtype() -> np.dtype[np.void]: ...
def piece_dtype() -> np.dtype[np.void]: ...
def in_order(instants: list[int]) -> list[tuple[int, int]]: ...

class Talks:
    """The conversations of a phase, from a plan's arrays; *joints*: what is before and after a reply, and between
    messages, by class; *tools*: how each class repeats tool calls.
    """

    alive: int
    def __init__(
        self,
        turns: npt.NDArray[np.void],
        body_offset: npt.NDArray[np.uint64],
        bodies: npt.NDArray[np.uint8],
        joints: list[tuple[bytes, bytes, bytes]],
        sessions: int,
        request_class: npt.NDArray[np.uint16] | None = None,
        near: Bodies | None = None,
        tools: list[ToolTurns | None] | None = None,
        edges: npt.NDArray[np.void] | None = None,
        first_edge: npt.NDArray[np.uint32] | None = None,
        first_request: npt.NDArray[np.uint32] | None = None,
        pieces: npt.NDArray[np.void] | None = None,
    ) -> None: ...
    def joined(self, first: int, replies: list[bytes], called: list[CallList | None] | None = None) -> list[bytes]: ...
