from typing import final

from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.send.pool import Pool
from fastllmload._ext.send.users import Users

@final
class Streams:
    """Requests onto connections of HTTP/2, for the transport."""

    def __init__(self, protocol: Protocol, pool: Pool, users: Users) -> None: ...
