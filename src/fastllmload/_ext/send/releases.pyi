from collections.abc import Sequence

from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.send.transport import Transport

class Releases(Transport):
    """Which request is sent when. The Reactor is one."""

    pacer: Pacer
    def __init__(
        self,
        protocol: Protocol,
        pacer: Pacer,
        *,
        run_id: bytes,
        worker: int,
        workers: int,
        timeout_ns: int,
        kernel_stamps: bool,
        fresh_connections: bool,
        sources: Sequence[tuple[str, str]] = (),
    ) -> None: ...
