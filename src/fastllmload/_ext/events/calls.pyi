from fastllmload._ext.events.dialect import Dialect

class CallReader:
    """Reads events for the tool calls in them; for compiled callers."""

class CallList:
    """Tool calls of one reply: of the events of *dialect*, or of its *whole* answers."""

    def __init__(self, dialect: Dialect, whole: bool = False) -> None: ...
    def read(self, event: bytes) -> None: ...
    def clear(self) -> None: ...
