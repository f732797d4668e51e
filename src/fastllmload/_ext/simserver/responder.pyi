from fastllmload._ext.simserver.streams import Streams
from fastllmload._ext.simserver.truth import Truth
from fastllmload._ext.simserver.writer import FAILURE as FAILURE
from fastllmload._ext.simserver.writer import Writer

KINDS: dict[str, int]

class Responder(Writer):
    tokens: int
    def __init__(
        self,
        connections: Streams,
        truth: Truth,
        forms: list[object],
        coalesce: int,
        early_head: bool,
    ) -> None: ...
