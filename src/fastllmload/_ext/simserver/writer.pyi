from fastllmload._ext.simserver.streams import Streams
from fastllmload._ext.simserver.truth import Truth

REASONS: dict[int, str]
CALL_STATUS: dict[int, int]
UNKNOWN: int
CALL_HEAD: bytes
FAILURE: str
MESSAGE_MOST: int
SAID_MOST: int  # bytes of lines that a head has more

def page_head(status: int, content_type: str, size: int, extra: str = "") -> bytes: ...
def status_fields(status: int, message: str = "") -> dict[str, str]: ...
def trailers(status: int, message: str = "") -> bytes: ...

class Writer:
    def __init__(self, connections: Streams, truth: Truth) -> None: ...
