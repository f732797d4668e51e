"""Plain-Python twins of the head reader and the body framer: slow, short, written from the grammar."""

import re
from collections.abc import Generator

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
TEXT = rb"[\t\x20-\x7e\x80-\xff]"
STATUS_LINE = re.compile(rb"[\r\n]*HTTP/1\.([0-9]) ([1-9]\d\d)(?: [^\r\n]*)?\r\n")
FIELD = re.compile(rb"(" + TOKEN + rb"+):[ \t]*(" + TEXT + rb"*)\r\n")
TRAILER_SO_FAR = re.compile(rb"\r\n?|" + TOKEN + rb"+(?::" + TEXT + rb"*(?:\r\n?)?)?")
TOKENS = b"".join(re.findall(TOKEN, bytes(range(256))))
TEXTS = b"".join(re.findall(TEXT, bytes(range(256))))
HEX = b"0123456789abcdefABCDEF"
CR, LF = b"\r\n"
BODILESS = (204, 304)
CONTENTS = {
    b"text/event-stream": "sse",
    b"application/json": "json",
    b"application/problem+json": "json",
    b"application/x-ndjson": "ndjson",
    b"application/jsonl": "ndjson",
}


def reference_head(head: bytes) -> dict[str, object]:
    """What ``parse_head`` gives, without "message"; a refused head gives "error" alone."""
    head = unfolded(head)
    fields = _fields(head)
    line = STATUS_LINE.match(head)
    if fields is None or line is None:
        return {"error": "malformed"}
    values = {name: [v for n, v in fields if n == name] for name, _ in fields}
    status, minor = int(line[2]), min(1, int(line[1]))
    lengths, codings = values.get(b"content-length", []), values.get(b"transfer-encoding", [])
    if len(lengths) > 1 or (lengths and codings) or not all(_is_length(v) for v in lengths):
        return {"error": "bad_length"}
    if codings and [c.lower() for c in codings] != [b"chunked"]:
        return {"error": "bad_coding"}
    framing = _framing(status, codings, lengths)
    return {
        "error": "ok",
        "status": status,
        "minor_version": minor,
        "framing": framing,
        "keep_alive": _persists(framing, status, minor, values),
        "length": int(lengths[0]) if lengths else 0,
        "content": _content(values.get(b"content-type", [b""])[-1]),
        "encoded": any(v.lower() not in (b"", b"identity") for v in values.get(b"content-encoding", [])),
        "upgrade": status == 101,
        "retry_after_ms": _retry(values.get(b"retry-after", [b""])[-1]),
    }


def unfolded(head: bytes) -> bytes:
    """A line that begins with a blank continues the one before (RFC 9112 5.2), unless that is the status line."""
    line = STATUS_LINE.match(head)
    return head if line is None else head[: line.end()] + re.sub(rb"\r\n(?=[ \t])", b"  ", head[line.end() :])


def for_llhttp(head: bytes) -> bytes:
    """The same head without what a client has to bear and llhttp does not: later minor versions, folded lines."""
    return re.sub(rb"^([\r\n]*HTTP/1\.)[2-9] ", rb"\g<1>1 ", unfolded(head))


def _fields(head: bytes) -> list[tuple[bytes, bytes]] | None:
    line = STATUS_LINE.match(head)
    if line is None:
        return None
    at, fields = line.end(), []
    while head[at:] != b"\r\n":
        field = FIELD.match(head, at)
        if field is None:
            return None
        fields.append((field[1].lower(), field[2].strip(b" \t")))
        at = field.end()
    return fields


def _is_length(value: bytes) -> bool:
    return re.fullmatch(rb"\d+", value) is not None and int(value) < 1 << 64


def _framing(status: int, codings: list[bytes], lengths: list[bytes]) -> str:
    if status < 200 or status in BODILESS:
        return "none"
    return "chunked" if codings else "length" if lengths else "close"


def _persists(framing: str, status: int, minor: int, values: dict[bytes, list[bytes]]) -> bool:
    both = values.get(b"connection", []) + values.get(b"proxy-connection", [])
    words = {word.strip(b" \t").lower() for value in both for word in value.split(b",")}
    if framing == "close" or status == 101 or b"close" in words:
        return False
    return minor == 1 or b"keep-alive" in words


def _content(value: bytes) -> str:
    return CONTENTS.get(value.split(b";")[0].strip(b" \t").lower(), "other")


def _retry(value: bytes) -> int:
    return int(value) * 1000 if re.fullmatch(rb"\d{1,15}", value) else -1


class Broken(Exception):
    """The framing is malformed; the argument is the word of BODY_ERRORS."""


class ReferenceFramer:
    """Same calls and results as ``BodyFramer``, but the payload of one feed comes as one span."""

    def __init__(self, framing: str, length: int = 0) -> None:
        self.state = "need"
        self._framing = framing
        self._line = 0
        self.blanks = False  # where llhttp allows none
        self._payload = bytearray()
        self._run = {
            "none": self._exactly(0),
            "length": self._exactly(length),
            "close": self._forever(),
            "chunked": self._chunked(),
        }[framing]
        self._send(None)

    def feed(self, data: bytes) -> tuple[list[bytes], str, bytes]:
        self._payload.clear()
        used = 0
        while used < len(data) and self.state == "need":
            self._send(data[used])
            used += 1
        return [bytes(self._payload)], self.state, data[used:]

    def eof(self) -> str:
        if self.state == "need":
            return "end" if self._framing == "close" else "cut"
        return self.state

    def _send(self, byte: int | None) -> None:
        try:
            next(self._run) if byte is None else self._run.send(byte)
        except StopIteration:
            self.state = "end"
        except Broken as error:
            self.state = str(error)

    def _exactly(self, size: int) -> Generator[None, int, None]:
        for _ in range(size):
            self._payload.append((yield))

    def _forever(self) -> Generator[None, int, None]:
        while True:
            self._payload.append((yield))

    def _chunked(self) -> Generator[None, int, None]:
        while size := (yield from self._size_line()):
            yield from self._exactly(size)
            for expected in b"\r\n":
                if (yield) != expected:
                    raise Broken("bad_chunk_end")
        yield from self._trailers()

    def _size_line(self) -> Generator[None, int, int]:
        self._line = 0
        digits = b""
        byte = yield from self._next()
        while byte in HEX:
            digits += bytes([byte])
            if int(digits, 16) > 1 << 60:
                raise Broken("bad_chunk_size")
            byte = yield from self._next()
        if digits:
            byte = yield from self._blanks(byte)
        if digits and byte == ord(";"):
            byte = yield from self._extensions()
        if not digits or byte != CR or (yield from self._next()) != LF:
            raise Broken("bad_chunk_size")
        return int(digits, 16)

    def _blanks(self, byte: int) -> Generator[None, int, int]:
        while byte in b" \t":
            self.blanks = True
            byte = yield from self._next()
        return byte

    def _next(self) -> Generator[None, int, int]:
        """The next byte of a line, which has at most 16 KiB."""
        byte = yield
        self._line += 1
        if self._line > 16384:
            raise Broken("line_too_long")
        return byte

    def _extensions(self) -> Generator[None, int, int]:
        """After the first ";"; the byte that ended the last one: always CR."""
        byte = ord(";")
        while byte == ord(";"):
            byte = yield from self._blanks((yield from self._next()))
            if byte == CR:
                raise Broken("bad_extension")
            byte = yield from self._tokens(byte)
            byte = yield from self._blanks(byte)
            if byte == ord("="):
                byte = yield from self._blanks((yield from self._next()))
                byte = yield from self._tokens(byte)
                if byte == ord('"'):
                    byte = yield from self._quoted()
                byte = yield from self._blanks(byte)
        if byte != CR:
            raise Broken("bad_extension")
        return byte

    def _tokens(self, byte: int) -> Generator[None, int, int]:
        while byte in TOKENS:
            byte = yield from self._next()
        return byte

    def _quoted(self) -> Generator[None, int, int]:
        byte = yield from self._next()
        while byte != ord('"'):
            if byte == ord("\\"):
                byte = yield from self._next()
            if byte not in TEXTS:
                raise Broken("bad_extension")
            byte = yield from self._next()
        return (yield from self._next())

    def _trailers(self) -> Generator[None, int, None]:
        line, total = b"", 0
        while line != b"\r\n":
            line = b"" if line.endswith(b"\n") else line
            line += bytes([(yield)])
            total += 1
            if len(line) > 16384 or total > 65536:
                raise Broken("line_too_long")
            if not TRAILER_SO_FAR.fullmatch(line):
                raise Broken("bad_trailer")
