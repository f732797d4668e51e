from typing import final

MOST: int
LONGEST: int
OTHER: int

@final
class Backends:
    """Names of the servers that answered, numbered from 1 in the order in which they came; *count* of them."""

    count: int
    def number_of(self, name: bytes) -> int: ...
    def taken(self, known: int = 0) -> list[bytes]: ...
