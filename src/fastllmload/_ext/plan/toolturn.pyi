from fastllmload._ext.events.calls import CallList

_Part = tuple[str, str, str, tuple[str, ...], str, tuple[str, ...]]

class ToolTurns:
    """Tool turns of a protocol: the fields of `ToolTurn` in endpoint/turns.py. ValueError for an unknown slot."""

    def __init__(
        self,
        turn: str,
        said: str,
        silent: str,
        call: _Part,
        answer: _Part,
        alone: str = "",
        thought: str = "",
        sealed: str = "",
        stored: str = "",
    ) -> None: ...
    def written(self, calls: CallList, turn: int = 0) -> bytes: ...
