class Connections:
    open_count: int
    accepted: int
    def __init__(self) -> None: ...
