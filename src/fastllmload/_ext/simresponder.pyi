from fastllmload._ext.simconnection import Connections
from fastllmload._ext.simtruth import Truth
from fastllmload._ext.simwriter import Writer

KINDS: dict[str, int]

class Responder(Writer):
    tokens: int
    def __init__(
        self, connections: Connections, truth: Truth, forms: list[object], coalesce: int, early_head: bool
    ) -> None: ...
