from typing import final

@final
class WebSocket:
    """How responses lie on a connection that was upgraded to WebSocket, for the protocol."""

    def __init__(self, limit: int) -> None: ...

class MessageReader:
    """Messages of one connection after its upgrade, without anything above or below."""

    error: int  # ErrorClass: no more can be read; 0: none
    code: int  # that the peer closed with; 0: it did not
    def __init__(self, limit: int = ...) -> None: ...
    def feed(self, data: bytes) -> list[bytes]: ...
    def out(self) -> bytes: ...
    def close(self, code: int = ...) -> None: ...
