from fastllmload._ext.http.block import FORBIDDEN as FORBIDDEN
from fastllmload._ext.simserver.session import Sessions

class Http2Sessions(Sessions): ...
