from typing import final

from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.send.pool import Pool
from fastllmload._ext.send.users import Users

@final
class Transport:
    """What goes over the sockets of one worker; the Reactor makes and uses it."""

    def __init__(self, protocol: Protocol, pool: Pool, users: Users) -> None: ...
