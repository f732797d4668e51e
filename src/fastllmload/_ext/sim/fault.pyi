CATALOGUE: dict[str, tuple[int, int, str]]
TLS_FAULTS: list[str]
CONNECTION_FAULTS: list[str]
NAMES: dict[int, str]

def parse(text: str) -> tuple[int, int]: ...
def parse_chance(text: str) -> tuple[float, int, int]: ...

class Faults:
    def __init__(self, seed: int, chances: tuple[str, ...]) -> None: ...
