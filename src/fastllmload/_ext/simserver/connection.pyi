from fastllmload._ext.tls.session import TlsContext

class Connections:
    open_count: int
    accepted: int
    def __init__(self, context: TlsContext | None = None) -> None: ...
