from typing import final

from fastllmload._ext.receive.framing import Framing

@final
class Http1(Framing):
    """HTTP/1.1."""
