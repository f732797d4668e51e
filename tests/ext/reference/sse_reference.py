"""Plain-Python twin of the SSE parser: the standard's words, one byte at a time."""

Event = tuple[bytes | None, bytes, int, int]


class ReferenceSse:
    """Same calls and results as ``fastllmload._ext.events.sse.SseParser``."""

    def __init__(self, *, limit: int = 1 << 20) -> None:
        self.limit = limit
        self.too_long = False
        self.comments = 0
        self._bom = b""
        self._begun = False
        self._after_cr = False
        self._line = bytearray()
        self._data: list[bytes] = []
        self._name: bytes | None = None
        self._stamp = (0, 0)

    def feed(self, data: bytes, stamp: int = 0, read: int = 0) -> list[Event]:
        events: list[Event] = []
        for byte in self._after_bom(data):
            if self.too_long:
                break
            skipped = self._after_cr and byte == 10
            self._after_cr = byte == 13
            if skipped:
                continue
            if byte not in (10, 13):
                self._line.append(byte)
                self.too_long = len(self._line) > self.limit
                continue
            self._end_line(events, (stamp, read))
        return events

    def _after_bom(self, data: bytes) -> bytes:
        if self._begun:
            return data
        self._bom += data
        if len(self._bom) < 3 and b"\xef\xbb\xbf".startswith(self._bom):
            return b""
        self._begun = True
        return self._bom.removeprefix(b"\xef\xbb\xbf")

    def _end_line(self, events: list[Event], now: tuple[int, int]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if line:
            self._field(line, now)
            return
        if self._data:
            events.append((self._name, b"\n".join(self._data), *self._stamp))
        self._data, self._name = [], None

    def _field(self, line: bytes, now: tuple[int, int]) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name:
            self.comments += 1
        elif name == b"event":
            self._name = value or None
        elif name == b"data":
            self._data.append(value)
            self._stamp = now
            self.too_long = len(b"\n".join(self._data)) > self.limit
