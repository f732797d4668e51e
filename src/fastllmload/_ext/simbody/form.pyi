TOOL: str

def words() -> list[str]: ...

class Form:
    api: object
    model: str
    timed: bool
    token_room: int
    room: int
    growth: int
    text_room: int
    def __init__(self, api: object, model: str, chunk_bytes: int = 0) -> None: ...
    def error(self, status: int, kind: str = ..., message: str = ...) -> bytes: ...
    def compile_all(self, before: str, chunk_bytes: int) -> None: ...
