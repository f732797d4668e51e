from collections.abc import Callable

from fastllmload._ext.sim.cadence import Cadence
from fastllmload._ext.simserver.connection import Connections
from fastllmload._ext.simserver.fault import Faults
from fastllmload._ext.simserver.intake import Intake
from fastllmload._ext.simserver.responder import Responder
from fastllmload._ext.simserver.session import Sessions
from fastllmload._ext.simserver.truth import Truth

class Server(Sessions):
    def __init__(
        self,
        listener: int,
        cadence: Cadence,
        truth: Truth,
        intake: Intake,
        responder: Responder,
        connections: Connections,
        pages: Callable[[str, Callable[[], dict[str, float]]], tuple[str, str, bytes] | None],
        api_key: str | None,
        handshake_faults: Faults,
    ) -> None: ...
    def run(self) -> None: ...
    def finish(self) -> None: ...
    def counters(self) -> dict[str, float]: ...
