from collections.abc import Sequence

from fastllmload._ext.receive.protocol import Protocol

class Transport:
    """Sockets of one worker: what goes over them. The Reactor is one."""

    protocol: Protocol
    def __init__(
        self, protocol: Protocol, kernel_stamps: bool, fresh_connections: bool, sources: Sequence[tuple[str, str]]
    ) -> None: ...
