from fastllmload._ext.simserver.connection import Connections
from fastllmload._ext.simserver.truth import Truth
from fastllmload._ext.simserver.writer import Writer

KINDS: dict[str, int]

class Responder(Writer):
    tokens: int
    def __init__(
        self, connections: Connections, truth: Truth, forms: list[object], coalesce: int, early_head: bool
    ) -> None: ...
