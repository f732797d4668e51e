from fastllmload._ext.simserver.connection import Connections
from fastllmload._ext.tls.session import TlsContext

class Streams(Connections):
    def __init__(self, context: TlsContext | None = None, most: int = 128, window: int = ...) -> None: ...
