# Response framing. The head goes through httptools (llhttp, strict): it is the part where leniency is dangerous. Only a
# head that differs from an earlier one in nothing that matters is judged as that was (headlike.pyx). The body is framed here, once per chunk, by the grammar of chunkline.pxd, which is
# llhttp's strict one with two differences: sizes above 2**60 are refused, and trailers are checked but never
# interpreted.
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp, memset

from fastllmload._ext.http.chunkline cimport (
    AT_BROKEN, AT_DATA_LF, AT_EXT_END, AT_EXT_FIRST, AT_SIZE, AT_SIZE_BLANK, AT_SIZE_LF, AT_TRAILER_FIRST,
    extension_next, is_bws, trailer_next,
)
from fastllmload._ext.http.fieldvalue cimport checked_number, digits, is_word, next_item, trim
from fastllmload._ext.http.headlike cimport Said, WANTED, head_keep, head_like, wanted_clear

from httptools import (
    HttpParserCallbackError as CallbackError,
    HttpParserError as ParserError,
    HttpParserUpgrade as Upgraded,
    HttpResponseParser,
)

FRAMINGS = ("none", "length", "chunked", "close")
CONTENTS = ("other", "sse", "ndjson", "json", "grpc")
HEAD_ERRORS = ("ok", "malformed", "bad_length", "bad_coding")
BODY_ERRORS = ("ok", "bad_chunk_size", "bad_chunk_end", "line_too_long", "bad_extension", "bad_trailer")

cdef enum:
    LINE_MOST = 16384
    TRAILERS_MOST = 65536

cdef uint64_t SIZE_MOST = 1ULL << 60


cdef void body_begin(Body* b, Framing framing, uint64_t length) noexcept nogil:
    memset(b, 0, sizeof(Body))
    b.framing = framing
    b.left = length if framing == FRAMING_LENGTH else 0
    if framing == FRAMING_CHUNKED:
        b.state = AT_SIZE_FIRST
    elif framing == FRAMING_CLOSE or b.left > 0:
        b.state = AT_DATA
    else:
        b.state = AT_COMPLETE


cdef BodyStep body_lines(Body* b, Cursor* c, Cursor* span) noexcept nogil:
    while b.state > AT_DATA and c.at < c.end:
        b.state = line_byte(b, c.at[0])
        c.at += 1
    if b.state == AT_DATA:
        return data_span(b, c, span)
    if b.state == AT_COMPLETE:
        return BODY_END
    return BODY_ERROR if b.state == AT_BROKEN else BODY_NEED


cdef BodyStep body_eof(Body* b) noexcept nogil:
    if b.state == AT_COMPLETE or (b.state == AT_DATA and b.framing == FRAMING_CLOSE):
        b.state = AT_COMPLETE
        return BODY_END
    return BODY_ERROR


cdef inline uint8_t broken(Body* b, BodyError error) noexcept nogil:
    b.error = error
    return AT_BROKEN


cdef inline uint8_t line_byte(Body* b, unsigned char byte) noexcept nogil:
    # One byte of framing: the state that follows it.
    if b.state == AT_DATA_CR:
        return AT_DATA_LF if byte == c'\r' else broken(b, BODY_BAD_CHUNK_END)
    if b.state == AT_DATA_LF:
        return AT_SIZE_FIRST if byte == c'\n' else broken(b, BODY_BAD_CHUNK_END)
    b.line += 1
    if b.line > LINE_MOST:
        return broken(b, BODY_LINE_TOO_LONG)
    if b.state <= AT_SIZE_LF:
        return size_byte(b, byte)
    if b.state <= AT_EXT_END:
        b.state = extension_next(b.state, byte)
        return b.state if b.state != AT_BROKEN else broken(b, BODY_BAD_EXTENSION)
    return trailer_byte(b, byte)


cdef inline uint8_t size_byte(Body* b, unsigned char byte) noexcept nogil:
    cdef int digit = hex_value(byte)
    if b.state == AT_SIZE_LF:
        b.line = 0
        if byte != c'\n':
            return broken(b, BODY_BAD_CHUNK_SIZE)
        return AT_DATA if b.left > 0 else AT_TRAILER_FIRST
    if digit >= 0 and b.state != AT_SIZE_BLANK and b.left <= SIZE_MOST >> 4:
        b.left = (b.left << 4) | <uint64_t>digit
        return AT_SIZE if b.left <= SIZE_MOST else broken(b, BODY_BAD_CHUNK_SIZE)
    if b.state == AT_SIZE_FIRST:
        return broken(b, BODY_BAD_CHUNK_SIZE)
    if byte == c'\r':
        return AT_SIZE_LF
    if byte == c';':
        return AT_EXT_FIRST
    if is_bws(byte):
        return AT_SIZE_BLANK
    return broken(b, BODY_BAD_CHUNK_SIZE)


cdef uint8_t trailer_byte(Body* b, unsigned char byte) noexcept nogil:
    b.trailer_bytes += 1
    if b.trailer_bytes > TRAILERS_MOST:
        return broken(b, BODY_LINE_TOO_LONG)
    if byte == c'\n':
        b.line = 0
    b.state = trailer_next(b.state, byte)
    return b.state if b.state != AT_BROKEN else broken(b, BODY_BAD_TRAILER)


cdef size_t head_size(const unsigned char* data, size_t size, size_t seen) noexcept nogil:
    # Starts at most three bytes back: a head that drips in byte by byte is searched once, not once per byte.
    cdef const unsigned char* end = data + size
    cdef const unsigned char* at
    if size == 0:
        return 0
    at = data + (seen - 3 if seen > 3 else 0)
    while at < end:
        at = <const unsigned char*>memchr(at, c'\n', end - at)
        if at == NULL:
            return 0
        at += 1
        if at < end and at[0] == c'\n':
            return at + 1 - data
        if end - at >= 2 and at[0] == c'\r' and at[1] == c'\n':
            return at + 2 - data
    return 0


cdef bytes plain_head(const unsigned char* head, size_t size):
    """The head in the form that the parser takes: it knows no minor version above 1, which is to be read as 1 (RFC 9110 2.5),
    and no lines that go on the line before, which are blanks (RFC 9112 5.2).
    """
    cdef bytes text = PyBytes_FromStringAndSize(<const char*>head, <Py_ssize_t>size)
    cdef unsigned char* at = <unsigned char*>text          # ours alone, until it is returned
    cdef size_t i = 0
    while i < size and (at[i] == c'\r' or at[i] == c'\n'):
        i += 1
    if size - i > 8 and memcmp(at + i, b"HTTP/1.", 7) == 0 and c'1' < at[i + 7] <= c'9':
        at[i + 7] = c'1'
    while i < size and at[i] != c'\n':
        i += 1
    for i in range(i + 1, size - 1):                        # not after the status line: that is not the line of a field
        if at[i] == c'\n' and at[i - 1] == c'\r' and (at[i + 1] == c' ' or at[i + 1] == c'\t'):
            at[i - 1] = at[i] = c' '
    return text


cdef class HeadReader:
    """Reads one complete response head at a time; every field holds what the last one said.

    ``read_bytes(head)`` returns 0 or the position in HEAD_ERRORS. It never raises for any bytes.
    """

    def __cinit__(self):
        self._parser_type = HttpResponseParser
        self._clear()

    cdef size_t like(self, const unsigned char* data, size_t size) noexcept:
        cdef int i, kind
        cdef size_t found
        cdef Said* said
        for i in range(HEADS_KEPT):
            kind = (self._liked + i) % HEADS_KEPT
            said = &self._kept[kind].said
            found = head_like(&self._kept[kind], data, size, &said.length, &self.wanted)
            if found:
                self._liked = kind
                self.by_likeness += 1
                self.status = said.status
                self.minor_version = said.minor_version
                self.framing = said.framing
                self.content = said.content
                self.length = said.length
                self.retry_after_ms = said.retry_after_ms
                self.keep_alive = said.keep_alive
                self.encoded = said.encoded
                self.upgrade = said.upgrade
                self.message = None
                return found
        return 0

    cdef int _keep(self, const unsigned char* head, size_t size) except -1:
        """The head that was just read may come again."""
        cdef Said said
        said.status = self.status
        said.minor_version = self.minor_version
        said.framing = self.framing
        said.content = self.content
        said.length = self.length
        said.retry_after_ms = self.retry_after_ms
        said.keep_alive = self.keep_alive
        said.encoded = self.encoded
        said.upgrade = self.upgrade
        self._liked = self._next
        self._next = (self._next + 1) % HEADS_KEPT
        head_keep(&self._kept[self._liked], head, size, &said, &self.wanted)
        return 0

    cdef int want(self, list names) except -1:
        cdef int i
        if len(names) > WANTED:
            raise ValueError(f"{len(names)} fields of heads are wanted, {WANTED} at most")
        self._names = names
        for i in range(<int>len(names)):
            self.wanted.name[i] = <const char*><bytes>names[i]
        self.wanted.count = <uint8_t>len(names)
        return 0

    def want_bytes(self, list names not None) -> None:
        self.want(names)

    def wanted_bytes(self) -> list:
        """What the latest head said of each field that is wanted; empty: nothing."""
        return [self.wanted.value[i].at[:left(&self.wanted.value[i])] if left(&self.wanted.value[i]) else b""
                for i in range(self.wanted.count)]

    cdef int _clear(self) except -1:
        wanted_clear(&self.wanted)
        self._values = []
        self.status = self.minor_version = 0
        self.keep_alive = self.encoded = self.upgrade = False
        self.framing = FRAMING_NONE
        self.content = CONTENT_OTHER
        self.length = 0
        self.retry_after_ms = -1
        self.message = None
        self._close = self._persist = self._sized = False
        self._coding = 0
        return 0

    cdef int read(self, const unsigned char* head, size_t size) except -1:
        self._clear()
        if size == 0 or head_size(head, size, 0) != size:
            return self._refuse(HEAD_MALFORMED, "not one whole head")
        parser = self._parser_type(self)
        text = plain_head(head, size)
        try:
            parser.feed_data(text)
        except Upgraded:
            pass                # 101: what follows is another protocol, the head itself is sound
        except CallbackError as error:
            raise error.__context__ or error        # ours: on_header ran out of memory
        except ParserError as error:
            reason = str(error)
            return self._refuse(HEAD_BAD_LENGTH if "Content-Length" in reason else HEAD_MALFORMED, reason)
        error = self._judge(text, size)
        if error == HEAD_OK:
            self._keep(head, size)
        return error

    cdef int _refuse(self, HeadError error, str reason) except -1:
        self.message = reason
        return error

    cdef int _judge(self, const unsigned char* head, size_t size) except -1:
        # What httptools accepts beyond HTTP/1.x, and what the headers mean together.
        cdef const unsigned char* end = head + size
        while head < end and (head[0] == c'\r' or head[0] == c'\n'):
            head += 1
        if end - head < 12 or head[0] != c'H' or head[5] != c'1':
            return self._refuse(HEAD_MALFORMED, "not an HTTP/1.x status line")
        self.minor_version = head[7] - c'0'
        self.status = 100 * (head[9] - c'0') + 10 * (head[10] - c'0') + head[11] - c'0'
        if self.status < 100:
            return self._refuse(HEAD_MALFORMED, f"status {self.status:03d} is below 100")
        if self._coding < 0:
            return self._refuse(HEAD_BAD_CODING, "a transfer coding other than chunked")
        self._frame()
        return HEAD_OK

    cdef int _frame(self) except -1:
        self.upgrade = self.status == 101
        if self.status < 200 or self.status == 204 or self.status == 304:
            self.framing = FRAMING_NONE
        elif self._coding > 0:
            self.framing = FRAMING_CHUNKED
        else:
            self.framing = FRAMING_LENGTH if self._sized else FRAMING_CLOSE
        self.keep_alive = (
            self.framing != FRAMING_CLOSE and not self._close and not self.upgrade
            and (self.minor_version > 0 or self._persist)
        )
        return 0

    def on_header(self, bytes name not None, bytes value not None):
        """Called by httptools for each header."""
        cdef Cursor n, v
        cdef int i
        over(&n, name, len(name))
        for i in range(self.wanted.count):
            if is_word(n, self.wanted.name[i]):
                self._values.append(value)
                over(&self.wanted.value[i], value, len(value))
                trim(&self.wanted.value[i])
        if left(&n) < 10 or left(&n) > 17:      # no header of ours: most of them leave here
            return
        over(&v, value, len(value))
        trim(&v)
        if is_word(n, b"content-type"):
            self.content = content_kind(v)
        elif is_word(n, b"content-length"):
            self._sized = True
            self.length = checked_number(v)     # httptools refuses what is not a number, too large or a second one
        elif is_word(n, b"transfer-encoding"):
            self._coding = 1 if self._coding == 0 and is_word(v, b"chunked") else -1
        elif is_word(n, b"connection") or is_word(n, b"proxy-connection"):
            self._connection(v)
        elif is_word(n, b"content-encoding"):
            self.encoded = self.encoded or (v.at < v.end and not is_word(v, b"identity"))
        elif is_word(n, b"retry-after"):
            self.retry_after_ms = milliseconds(v)

    cdef int _connection(self, Cursor v) except -1:
        cdef Cursor word
        while next_item(&v, &word, c','):
            self._close = self._close or is_word(word, b"close")
            self._persist = self._persist or is_word(word, b"keep-alive")
        return 0

    def read_bytes(self, const unsigned char[::1] head not None):
        """Reads one head, terminator included; the position of the verdict in HEAD_ERRORS."""
        if len(head) and self.like(&head[0], len(head)) == <size_t>len(head):
            return HEAD_OK
        return self.read(&head[0] if len(head) else NULL, len(head))


cdef ContentKind content_kind(Cursor v) noexcept:
    cdef Cursor kind
    if not next_item(&v, &kind, c';'):
        return CONTENT_OTHER
    if is_word(kind, b"text/event-stream"):
        return CONTENT_SSE
    if is_word(kind, b"application/json") or is_word(kind, b"application/problem+json"):
        return CONTENT_JSON
    if is_word(kind, b"application/x-ndjson") or is_word(kind, b"application/jsonl"):
        return CONTENT_NDJSON
    if is_word(kind, b"application/grpc") or is_word(kind, b"application/grpc+proto"):
        return CONTENT_GRPC
    return CONTENT_OTHER


cdef int64_t milliseconds(Cursor v) noexcept:
    cdef int64_t seconds = digits(v, 15)        # 15 digits of seconds still fit as milliseconds
    return seconds * 1000 if seconds >= 0 else -1


def parse_head(const unsigned char[::1] head not None):
    """What one whole head says, as a dict; "error" is a word of HEAD_ERRORS."""
    reader = HeadReader()
    error = reader.read_bytes(head)
    return {
        "error": HEAD_ERRORS[error],
        "message": reader.message,
        "status": reader.status,
        "minor_version": reader.minor_version,
        "keep_alive": reader.keep_alive,
        "framing": FRAMINGS[reader.framing],
        "length": reader.length,
        "content": CONTENTS[reader.content],
        "encoded": reader.encoded,
        "upgrade": reader.upgrade,
        "retry_after_ms": reader.retry_after_ms,
    }


def find_head_end(const unsigned char[::1] data not None, size_t seen=0):
    """Size of the head at the start of *data*, terminator included; 0 while it is not complete."""
    return head_size(&data[0] if len(data) else NULL, len(data), seen)


cdef class BodyFramer:
    """One response body: feed what was read, take the payload out.

    ``framing`` is a word of FRAMINGS; ``length`` counts for "length" only.
    """

    cdef Body body

    def __cinit__(self, str framing not None, uint64_t length=0):
        cdef int number = FRAMINGS.index(framing)
        body_begin(&self.body, <Framing>number, length)

    def feed(self, const unsigned char[::1] data not None):
        """(payload spans, state, unused bytes); state is "need", "end" or a word of BODY_ERRORS."""
        cdef Cursor c, span
        cdef BodyStep step
        spans = []
        over(&c, &data[0] if len(data) else NULL, len(data))
        while True:
            step = body_next(&self.body, &c, &span)
            if step != BODY_SPAN:
                break
            spans.append(span.at[:left(&span)])
        return spans, self._state(step), c.at[:left(&c)] if left(&c) else b""

    def count(self, const unsigned char[::1] data not None):
        """Payload bytes in *data*, without building an object for any span."""
        cdef Cursor c, span
        cdef size_t payload = 0
        over(&c, &data[0] if len(data) else NULL, len(data))
        while body_next(&self.body, &c, &span) == BODY_SPAN:
            payload += left(&span)
        return payload

    def eof(self):
        """The peer closed: "end" when that completes the body, else "cut", or the error seen before."""
        cdef BodyStep step = body_eof(&self.body)
        return "cut" if step == BODY_ERROR and self.body.error == BODY_OK else self._state(step)

    cdef str _state(self, BodyStep step):
        return BODY_ERRORS[self.body.error] if step == BODY_ERROR else "need" if step == BODY_NEED else "end"
