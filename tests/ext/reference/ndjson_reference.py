"""Plain-Python twin of the JSON lines parser."""

Line = tuple[None, bytes, int, int]


class ReferenceNdjson:
    """Same calls and results as ``fastllmload._ext.events.ndjson.NdjsonParser``."""

    def __init__(self, *, limit: int = 1 << 20) -> None:
        self.limit = limit
        self.too_long = False
        self._rest = b""
        self._now = (0, 0)

    def feed(self, data: bytes, stamp: int = 0, read: int = 0) -> list[Line]:
        lines: list[Line] = []
        self._now = (stamp, read)
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            self.too_long = self.too_long or len(line) > self.limit
            if not self.too_long:
                lines += self._line(line)
        self._rest = rest
        self.too_long = self.too_long or len(rest) > self.limit
        return lines

    def eof(self) -> list[Line]:
        return [] if self.too_long else self._line(self._rest)

    def _line(self, line: bytes) -> list[Line]:
        line = line.removesuffix(b"\r")
        return [(None, line, *self._now)] if line else []
