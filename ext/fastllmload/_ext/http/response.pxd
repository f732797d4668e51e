# HTTP/1.1 response framing, sans-IO. Heads are parsed by httptools (HeadReader), bodies are framed in C (Body).
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.bytes.cursor cimport Cursor, left, over
from fastllmload._ext.http.chunkline cimport AT_DATA, AT_COMPLETE, AT_DATA_CR, AT_SIZE_FIRST, hex_value
from fastllmload._ext.http.headlike cimport HEADS_KEPT, KeptHead, Wanted

cdef enum Framing:
    FRAMING_NONE = 0        # 1xx, 204, 304: no body whatever the headers say
    FRAMING_LENGTH = 1
    FRAMING_CHUNKED = 2
    FRAMING_CLOSE = 3       # the body ends when the peer closes

cdef enum BodyStep:
    BODY_NEED = 0           # the cursor is used up and the body is not complete
    BODY_SPAN = 1           # *span* holds payload bytes, borrowed from the cursor's buffer
    BODY_END = 2            # the body is complete; bytes left in the cursor belong to the next response
    BODY_ERROR = 3          # malformed framing; Body.error says which

cdef enum BodyError:
    BODY_OK = 0
    BODY_BAD_CHUNK_SIZE = 1     # not hex, empty, or above 2**60
    BODY_BAD_CHUNK_END = 2      # chunk data not followed by CRLF
    BODY_LINE_TOO_LONG = 3      # chunk-size line or trailer line above 16 KiB, or trailers above 64 KiB together
    BODY_BAD_EXTENSION = 4      # chunk extension that breaks its grammar
    BODY_BAD_TRAILER = 5        # trailer line that is not a header field

cdef struct Body:
    uint64_t left           # payload bytes still expected (length, or current chunk)
    uint32_t line           # bytes of the current chunk-size or trailer line so far
    uint32_t trailer_bytes
    uint8_t framing         # Framing
    uint8_t state           # BodyState of chunkline.pxd
    uint8_t error           # BodyError

cdef void body_begin(Body* b, Framing framing, uint64_t length) noexcept nogil
# The peer closed: BODY_END when that completes the body (FRAMING_CLOSE, or nothing was left), else BODY_ERROR.
cdef BodyStep body_eof(Body* b) noexcept nogil

cdef enum:
    PLAIN_DIGITS = 6
    PLAIN_LINE = 10         # CR LF, the digits, CR LF

cdef inline bint plain_line(Body* b, Cursor* c) noexcept nogil:
    # What stands between nearly all chunks, at once: the end of one, then a size of 1 to 6 digits, then CR LF. False, and
    # nothing is consumed, for all else; what it takes line_byte() would take in the same way.
    cdef const unsigned char* at = c.at
    cdef uint64_t size = 0
    cdef int i, digit
    if left(c) < PLAIN_LINE:
        return False
    if b.state == AT_DATA_CR:
        if at[0] != c'\r' or at[1] != c'\n':
            return False
        at += 2
    elif b.state != AT_SIZE_FIRST:
        return False
    for i in range(PLAIN_DIGITS):
        digit = hex_value(at[0])
        if digit < 0:
            break
        size = (size << 4) | <uint64_t>digit
        at += 1
    if size == 0 or at[0] != c'\r' or at[1] != c'\n':
        return False
    b.left = size
    b.state = AT_DATA
    c.at = at + 2
    return True

cdef inline BodyStep data_span(Body* b, Cursor* c, Cursor* span) noexcept nogil:
    cdef size_t size = left(c)
    if size == 0:
        return BODY_NEED
    if b.framing != FRAMING_CLOSE:
        size = size if size < b.left else <size_t>b.left
        b.left -= size
        if b.left == 0:
            b.state = AT_DATA_CR if b.framing == FRAMING_CHUNKED else AT_COMPLETE
    over(span, c.at, size)
    c.at += size
    if b.state == AT_DATA_CR and left(c) >= 2 and c.at[0] == c'\r' and c.at[1] == c'\n':
        c.at += 2
        b.state = AT_SIZE_FIRST
    return BODY_SPAN

cdef BodyStep body_lines(Body* b, Cursor* c, Cursor* span) noexcept nogil       # body_next() by way of line_byte()

cdef inline BodyStep body_next(Body* b, Cursor* c, Cursor* span) noexcept nogil:
    if b.state == AT_DATA or (b.state > AT_DATA and plain_line(b, c)):
        return data_span(b, c, span)
    if b.state == AT_SIZE_FIRST and left(c) == 0:       # between two chunks, and between two reads
        return BODY_NEED
    return body_lines(b, c, span)

# Looks for the end of a head (CRLFCRLF, or LFLF) in *data*; *seen* bytes of it were searched before without success.
# Returns the size of the head with its terminator, or 0.
cdef size_t head_size(const unsigned char* data, size_t size, size_t seen) noexcept nogil

cdef enum ContentKind:
    CONTENT_OTHER = 0       # no or unknown content type
    CONTENT_SSE = 1         # text/event-stream
    CONTENT_NDJSON = 2      # application/x-ndjson, application/jsonl, application/json-seq is OTHER
    CONTENT_JSON = 3        # application/json, application/problem+json
    CONTENT_GRPC = 4        # application/grpc, application/grpc+proto

cdef ContentKind content_kind(Cursor v) noexcept
cdef int64_t milliseconds(Cursor v) noexcept        # of a Retry-After; -1: it is not a number of seconds

cdef enum HeadError:
    HEAD_OK = 0
    HEAD_MALFORMED = 1      # httptools refused it
    HEAD_BAD_LENGTH = 2     # conflicting or unreadable Content-Length, or Content-Length together with Transfer-Encoding
    HEAD_BAD_CODING = 3     # a transfer coding other than chunked

cdef class HeadReader:
    # Reused for every response of a worker: read() and like() set all fields. A head is read whole, terminator included.
    cdef public int status
    cdef public int minor_version       # 0 for HTTP/1.0, else 1
    cdef public bint keep_alive
    cdef public int framing             # Framing
    cdef public uint64_t length         # for FRAMING_LENGTH
    cdef public int content             # ContentKind
    cdef public bint encoded            # Content-Encoding other than identity: we never ask for one
    cdef public bint upgrade            # 101
    cdef public int64_t retry_after_ms  # -1 when absent or not a number of seconds
    cdef public object message          # why, when read() returned an error (str) else None
    cdef readonly uint64_t by_likeness  # heads that like() took
    cdef Wanted wanted                  # what the head said of fields that were asked for with want()
    cdef object _names                  # of these, as bytes
    cdef list _values                   # keeps what *wanted* has of a parsed head
    cdef object _parser_type
    cdef KeptHead[HEADS_KEPT] _kept     # of the latest kinds
    cdef int _liked                     # the kind that came last
    cdef int _next                      # the kind that makes room for a new one
    cdef int _coding                    # 0 no Transfer-Encoding, 1 chunked alone, -1 anything else
    cdef bint _sized                    # a Content-Length was there
    cdef bint _close                    # Connection: close
    cdef bint _persist                  # Connection: keep-alive
    cdef int want(self, list names) except -1           # at most WANTED, in lower case
    cdef int _clear(self) except -1
    cdef int _refuse(self, HeadError error, str reason) except -1
    cdef int _judge(self, const unsigned char* head, size_t size) except -1
    cdef int _frame(self) except -1
    cdef int _connection(self, Cursor v) except -1
    cdef int _keep(self, const unsigned char* head, size_t size) except -1
    cdef int read(self, const unsigned char* head, size_t size) except -1   # HeadError
    # The size of the head at the start of *data* when it is like one that was accepted before (headlike.pxd): it is read
    # then. 0: it is new, or not there whole; no field has changed.
    cdef size_t like(self, const unsigned char* data, size_t size) noexcept
