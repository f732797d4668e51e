from fastllmload._ext.simserver.streams import Streams
from fastllmload._ext.simserver.truth import Truth

REASONS: dict[int, str]

def page_head(status: int, content_type: str, size: int, extra: str = "") -> bytes: ...

class Writer:
    def __init__(self, connections: Streams, truth: Truth) -> None: ...
