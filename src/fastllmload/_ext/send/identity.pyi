from typing import Any

PARTS: tuple[str, ...]

class Identity:
    """Header lines and JSON fields that name the session of a request, from templates; for `Reactor.use_identity`."""

    def __init__(
        self,
        headers: list[tuple[bytes, list[tuple[int, bytes]]]],
        fields: list[list[tuple[int, bytes]]],
        classes: list[tuple[bytes, bytes]],
        *,
        end: list[tuple[int, bytes]] | None = None,
        own_children: bool = True,
        token: bool = False,
        from_body: bool = False,
        in_body: bool = False,
        ends_fd: int = -1,
    ) -> None: ...
    def rendered(self, who: dict[str, Any], prefix: bytes, token: bytes = b"") -> tuple[bytes, bytes, bytes]: ...
