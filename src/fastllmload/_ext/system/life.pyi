from enum import IntEnum

class Life(IntEnum):
    LIFE_CONNECTION = 0
    LIFE_REQUEST = 1
    LIFE_IN_FLIGHT = 2
    LIFE_CONVERSATION = 3
    LIFE_BUFFER = 4
    LIVES = 5

def lives() -> dict[str, tuple[int, int]]:
    """Name -> how many were begun and how many have ended, since the process began."""
