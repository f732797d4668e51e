from typing import Literal, Self, TypedDict, final

FRAMINGS: tuple[str, ...]
CONTENTS: tuple[str, ...]
HEAD_ERRORS: tuple[str, ...]
BODY_ERRORS: tuple[str, ...]

class _Head(TypedDict):
    error: str
    message: str | None
    status: int
    minor_version: int
    keep_alive: bool
    framing: str
    length: int
    content: str
    encoded: bool
    upgrade: bool
    retry_after_ms: int

@final
class HeadReader:
    status: int
    minor_version: int
    keep_alive: bool
    framing: int
    length: int
    content: int
    encoded: bool
    upgrade: bool
    retry_after_ms: int
    message: str | None
    by_likeness: int
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def read_bytes(self, head: bytes | bytearray | memoryview) -> int: ...
    def want_bytes(self, names: list[bytes]) -> None: ...
    def wanted_bytes(self) -> list[bytes]: ...

def parse_head(head: bytes | bytearray | memoryview) -> _Head: ...
def find_head_end(data: bytes | bytearray | memoryview, seen: int = 0) -> int: ...

@final
class BodyFramer:
    def __new__(cls, framing: Literal["none", "length", "chunked", "close"], length: int = 0) -> Self: ...
    def feed(self, data: bytes | bytearray | memoryview) -> tuple[list[bytes], str, bytes]: ...
    def count(self, data: bytes | bytearray | memoryview) -> int: ...
    def eof(self) -> str: ...
