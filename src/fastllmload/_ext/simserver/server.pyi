from collections.abc import Callable
from typing import Any

from fastllmload._ext.sim.cadence import Cadence
from fastllmload._ext.sim.fault import Faults
from fastllmload._ext.simserver.http2 import Http2Sessions
from fastllmload._ext.simserver.intake import Intake
from fastllmload._ext.simserver.responder import Responder
from fastllmload._ext.simserver.streams import Streams
from fastllmload._ext.simserver.truth import Truth

class Server(Http2Sessions):
    def __init__(
        self,
        listener: int,
        cadence: Cadence,
        truth: Truth,
        intake: Intake,
        responder: Responder,
        connections: Streams,
        pages: Callable[[str, Callable[[], dict[str, float]], bytes], tuple[str, str, bytes] | None],
        api_key: str | None,
        connection_faults: Faults,
        visits: Callable[[bytes, bytes], tuple[bytes, bytes | None]] | None = None,
        controls: Callable[[str, str, Any], tuple[int, bytes] | None] | None = None,
    ) -> None: ...
    def run(self) -> None: ...
    def finish(self) -> None: ...
    def counters(self) -> dict[str, float]: ...
    def drop_cached(self) -> int: ...
