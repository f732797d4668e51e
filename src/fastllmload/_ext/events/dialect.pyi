from enum import IntEnum
from typing import Any, final

class Field(IntEnum):
    ANY = 0
    OBJECT = 1
    TABLE = 2
    CHOICES = 3
    CALLS = 4
    INDEX = 5
    ERROR = 6
    ERROR_WORD = 7
    ROLE = 8
    CONTENT = 9
    REASONING_CONTENT = 10
    REASONING = 11
    REFUSAL = 12
    NAME = 13
    ARGUMENTS = 14
    FINISH = 15
    DONE = 16
    PROMPT_TOKENS = 17
    COMPLETION_TOKENS = 18
    TOTAL_TOKENS = 19
    CACHED_TOKENS = 20
    REASONING_TOKENS = 21
    TOKEN_IDS = 22
    LOGPROBS = 23
    DURATION = 24

class FinishReason(IntEnum):
    FINISH_NONE = 0
    FINISH_STOP = 1
    FINISH_LENGTH = 2
    FINISH_TOOL_CALLS = 3
    FINISH_CONTENT_FILTER = 4
    FINISH_OTHER = 5
    FINISH_LOAD = 6
    FINISH_UNLOAD = 7
    FINISH_FAILED = 8

class Duration(IntEnum):
    NS_TOTAL = 0
    NS_LOAD = 1
    NS_PROMPT_EVAL = 2
    NS_EVAL = 3

@final
class Dialect:
    def __init__(
        self,
        event: dict[str, Any],
        body: dict[str, Any],
        *,
        sentinel: bytes = b"",
        repeats: bool = False,
        fragments: bool = False,
        object_arguments: bool = False,
        words: dict[str, int] | None = None,
    ) -> None: ...
    @property
    def trees(self) -> tuple[dict[str, Any], dict[str, Any]]: ...
