from collections.abc import Callable
from typing import Any

from fastllmload._ext.sim.cadence import Cadence
from fastllmload._ext.simserver.intake import Intake
from fastllmload._ext.simserver.responder import Responder
from fastllmload._ext.simserver.streams import Streams
from fastllmload._ext.simserver.truth import Truth
from fastllmload._ext.simserver.writer import CALL_HEAD as CALL_HEAD

class Sessions:
    requests: int
    asleep: bool
    refused: int
    def __init__(
        self,
        cadence: Cadence,
        truth: Truth,
        intake: Intake,
        responder: Responder,
        connections: Streams,
        pages: Callable[[str, Callable[[], dict[str, float]], bytes], tuple[str, str, bytes] | None],
        api_key: str | None,
        visits: Callable[[bytes, bytes], tuple[bytes, bytes | None]] | None = None,
        controls: Callable[[str, str, Any], tuple[int, bytes] | None] | None = None,
    ) -> None: ...
    def counters(self) -> dict[str, float]: ...
