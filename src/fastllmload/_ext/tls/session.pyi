from enum import IntEnum
from ssl import SSLContext
from typing import Any, Self, final

class TlsState(IntEnum):
    TLS_HANDSHAKE = 0
    TLS_OPEN = 1
    TLS_CLOSED = 2
    TLS_FAILED = 3

@final
class TlsContext:
    def __init__(
        self,
        *,
        server: bool = False,
        cert: str | None = None,
        key: str | None = None,
        cacert: str | None = None,
        verify: bool = True,
        protocols: tuple[str, ...] = (),
        resume: bool = False,
        options: int = 0,
        verify_flags: int = 0,
        versions: tuple[int, int] = (0, 0),
        ciphers: str = "",
    ) -> None: ...

class Channel:
    def __new__(cls, context: TlsContext, name: str | None = None, earlier: Channel | None = None) -> Self: ...
    @property
    def state(self) -> int: ...
    @property
    def complete(self) -> bool: ...
    @property
    def resumed(self) -> bool: ...
    @property
    def problem(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def cipher(self) -> str: ...
    def feed(self, data: bytes) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def taken(self) -> bytes: ...

def tls_library() -> str: ...
def is_address(name: str) -> bool: ...
def settings_of(context: SSLContext) -> dict[str, Any]: ...
