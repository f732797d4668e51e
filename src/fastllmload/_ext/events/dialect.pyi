from enum import IntEnum
from typing import Any, final

from fastllmload._ext.bytes.schema import Schema

class Field(IntEnum):
    ANY = 0
    OBJECT = 1
    TABLE = 2
    TYPE = 3
    CHOICES = 4
    PARTS = 5
    CALLS = 6
    INDEX = 7
    ERROR = 8
    ERROR_WORD = 9
    ROLE = 10
    CONTENT = 11
    CONTENT_SO_FAR = 12
    REASONING_CONTENT = 13
    REASONING = 14
    REFUSAL = 15
    CALL_INDEX = 16
    CALL_KEY = 17
    CALL_ID = 18
    NAME = 19
    ARGUMENTS = 20
    FINISH = 21
    FINISH_DETAIL = 22
    DONE = 23
    LAST = 24
    PROMPT_TOKENS = 25
    PROMPT_IDS = 26
    UNCACHED_TOKENS = 27
    CACHE_WRITTEN_TOKENS = 28
    COMPLETION_TOKENS = 29
    COUNTER = 30
    CACHED_TOKENS = 31
    REASONING_TOKENS = 32
    TOKEN_IDS = 33
    ANSWER_IDS = 34
    TOKEN_ID = 35
    EVENT_TOKENS = 36
    LOGPROBS = 37
    SPECIAL = 38
    DURATION = 39
    WHOLE_IDS = 40
    ENTRIES = 41
    TENSORS = 42
    RAW_TENSORS = 43
    LANE = 44
    SIGNATURE = 45
    SEALED = 46
    RESPONSE_ID = 47

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
        fragments: bool = False,
        ends_with_body: bool = False,
        words: dict[str, int] | None = None,
        message: Schema | None = None,
    ) -> None: ...
    @property
    def trees(self) -> tuple[dict[str, Any], dict[str, Any]]: ...
