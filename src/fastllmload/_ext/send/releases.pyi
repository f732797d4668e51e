from typing import final

from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.send.share import Share
from fastllmload._ext.send.transport import Transport

@final
class Releases:
    """Which request is sent when; the Reactor makes and uses it."""

    def __init__(self, transport: Transport, pacer: Pacer, share: Share, timeout_ns: int) -> None: ...
