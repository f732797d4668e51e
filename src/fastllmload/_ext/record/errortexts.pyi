from typing import final

@final
class ErrorTexts:
    """Texts of failed responses, and how many requests each came with. *versions* grows with every new text."""

    left_out: int
    versions: int
    def taken(self) -> list[tuple[int, int, bytes, int]]: ...
