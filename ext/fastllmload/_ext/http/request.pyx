"""Request heads and chunked request bodies. Strict where a lenient reading could frame two requests differently
(RFC 9112 2.2, 5.1, 6.1, 6.3): such a request is refused, never repaired."""

from libc.string cimport memchr, memcmp, memmove, memset

cdef enum UnchunkState:
    CHUNK_SIZE = 0
    CHUNK_DATA = 1
    CHUNK_END = 2
    TRAILER = 3

cdef uint8_t[256] TOKEN             # 1: allowed in a method or field name (RFC 9110 5.6.2)


def _fill() -> None:
    for byte in b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
        TOKEN[byte] = 1


_fill()


cdef size_t request_head_size(const uint8_t* data, size_t size, size_t seen) noexcept nogil:
    cdef const uint8_t* end = data + size
    cdef const uint8_t* at = data + (seen - 3 if seen > 3 else 0)
    while at < end:
        at = <const uint8_t*>memchr(at, 10, <size_t>(end - at))
        if at == NULL:
            return 0
        at += 1
        if at < end and at[0] == 10:
            return <size_t>(at + 1 - data)
        if at + 1 < end and at[0] == 13 and at[1] == 10:
            return <size_t>(at + 2 - data)
    return 0


cdef bint request_hopeless(const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t i
    for i in range(size if size < 32 else 32):
        if data[i] == 32 and i:
            return False
        if not TOKEN[data[i]]:
            return True
    return size >= 32


cdef inline const uint8_t* line_end(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # One past the last byte of the line's content; the caller skips the CRLF or LF itself.
    cdef const uint8_t* newline = <const uint8_t*>memchr(at, 10, <size_t>(end - at))
    return end if newline == NULL else newline


cdef bint request_line(Request* r, const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* start = at
    cdef const uint8_t* query
    while at < end and TOKEN[at[0]]:
        at += 1
    if at == start or at == end or at[0] != 32:
        return False
    r.method.at, r.method.size = start, <size_t>(at - start)
    at += 1
    start = at
    while at < end and at[0] > 32 and at[0] != 127:
        at += 1
    if at == start or at == end or at[0] != 32:
        return False
    query = <const uint8_t*>memchr(start, 63, <size_t>(at - start))
    r.target.at, r.target.size = start, <size_t>((at if query == NULL else query) - start)
    return version(r, at + 1, end)


cdef bint version(Request* r, const uint8_t* at, const uint8_t* end) noexcept nogil:
    if end - at != 8 or memcmp(at, <const char*>b"HTTP/", 5) or at[6] != 46:
        return False
    if not (48 <= at[5] <= 57 and 48 <= at[7] <= 57):
        return False
    if at[5] != 49 or at[7] > 49:
        r.refusal = 505
    r.minor_version = at[7] - 48
    r.keep_alive = r.minor_version == 1
    return True


cdef bint field(Request* r, const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef Text name, value
    cdef const uint8_t* start = at
    while at < end and TOKEN[at[0]]:
        at += 1
    if at == start or at == end or at[0] != 58:
        return False
    name.at, name.size = start, <size_t>(at - start)
    at += 1
    while at < end and (at[0] == 32 or at[0] == 9):
        at += 1
    while end > at and (end[-1] == 32 or end[-1] == 9):
        end -= 1
    value.at, value.size = at, <size_t>(end - at)
    while at < end:
        if at[0] < 32 and at[0] != 9 or at[0] == 127:
            return False
        at += 1
    return meaning(r, name, value)


cdef bint meaning(Request* r, Text name, Text value) noexcept nogil:
    # The few fields that matter, told apart by size first.
    if name.size == 14 and same(name, b"content-length", 14):
        return content_length(r, value)
    if name.size == 17 and same(name, b"transfer-encoding", 17):
        return transfer_encoding(r, value)
    if name.size == 10 and same(name, b"connection", 10):
        connection(r, value)
    elif name.size == 21 and same(name, b"x-fastllmload-request", 21):
        request_id(r, value)
    elif name.size == 12 and same(name, b"x-request-id", 12):        # of other clients
        if r.key == <uint32_t>NO_KEY:
            request_id(r, value)
    elif name.size == 7 and same(name, b"x-fault", 7):
        r.fault = value
    elif name.size == 13 and same(name, b"authorization", 13):
        r.authorization = value
    elif name.size == 9 and same(name, b"x-api-key", 9):
        r.api_key = value
    elif name.size == 17 and same(name, b"sec-websocket-key", 17):
        r.websocket_key = value
    elif name.size == 12 and same(name, b"content-type", 12):
        r.calls = value.size >= 16 and same(Text(value.at, 16), b"application/grpc", 16)
    elif name.size == 6 and same(name, b"expect", 6):
        r.expects = same(value, b"100-continue", 12)
    elif name.size == 10 and same(name, b"x-priority", 10):
        priority(r, value)
    return True


cdef bint content_length(Request* r, Text value) noexcept nogil:
    cdef uint64_t length = 0
    cdef size_t i
    if value.size == 0 or value.size > 18:
        return False
    for i in range(value.size):
        if not 48 <= value.at[i] <= 57:
            return False
        length = length * 10 + (value.at[i] - 48)
    if r.chunked or r.has_length and r.length != length:
        return False
    r.has_length = True
    r.length = length
    return True


cdef bint transfer_encoding(Request* r, Text value) noexcept nogil:
    if r.has_length or r.chunked or r.minor_version == 0:
        return False
    if not same(value, b"chunked", 7):
        r.refusal = 501
    r.chunked = True
    return True


cdef void connection(Request* r, Text value) noexcept nogil:
    # A list of tokens: each is compared on its own.
    cdef const uint8_t* end = value.at + value.size
    cdef Text one
    while value.at < end:
        one.at = value.at
        while value.at < end and value.at[0] != 44:
            value.at += 1
        one.size = <size_t>(value.at - one.at)
        value.at += 1
        while one.size and (one.at[0] == 32 or one.at[0] == 9):
            one.at += 1
            one.size -= 1
        while one.size and (one.at[one.size - 1] == 32 or one.at[one.size - 1] == 9):
            one.size -= 1
        if same(one, b"close", 5):
            r.keep_alive = False
        elif same(one, b"keep-alive", 10):
            r.keep_alive = True


cdef uint32_t number_before(const uint8_t* start, const uint8_t** end) noexcept nogil:
    # The decimal number that ends at *end*; moves *end* in front of it. NO_KEY when there is none, or it is too large.
    cdef uint64_t value = 0, scale = 1
    cdef const uint8_t* at = end[0]
    while at > start and 48 <= at[-1] <= 57 and end[0] - at < 10:
        at -= 1
        value += scale * (at[0] - 48)
        scale *= 10
    if at == end[0] or value >= NO_KEY:
        return <uint32_t>NO_KEY
    end[0] = at
    return <uint32_t>value


cdef void request_id(Request* r, Text value) noexcept nogil:
    cdef const uint8_t* end = value.at + value.size
    cdef uint32_t key = number_before(value.at, &end)
    if key == <uint32_t>NO_KEY or end == value.at or end[-1] != 45:
        return
    r.key = key
    end -= 1
    r.phase = number_before(value.at, &end)


cdef void priority(Request* r, Text value) noexcept nogil:
    cdef bint negative = value.size > 0 and value.at[0] == 45
    cdef const uint8_t* end = value.at + value.size
    cdef uint32_t number = number_before(value.at, &end)
    if number < 0x7FFFFFFF and end == value.at + (1 if negative else 0):
        r.priority = -<int32_t>number if negative else <int32_t>number
        r.has_priority = True


cdef void request_read(Request* r, const uint8_t* data, size_t head_size) noexcept nogil:
    cdef const uint8_t* at = data
    cdef const uint8_t* end = data + head_size
    cdef const uint8_t* stop
    cdef bint first = True
    memset(r, 0, sizeof(Request))
    r.key = r.phase = <uint32_t>NO_KEY
    r.head_size = head_size
    while at < end:
        stop = line_end(at, end)
        if stop - at == 0 or (stop - at == 1 and at[0] == 13):
            break
        if stop[-1] == 13:
            if not (request_line(r, at, stop - 1) if first else field(r, at, stop - 1)):
                r.refusal = 400
        elif not (request_line(r, at, stop) if first else field(r, at, stop)):
            r.refusal = 400
        if r.refusal:
            return
        first = False
        at = stop + 1
    if first:
        r.refusal = 400
    elif r.length > BODY_LIMIT:
        r.refusal = 413


cdef void unchunk_begin(Unchunk* u, size_t body_at) noexcept nogil:
    memset(u, 0, sizeof(Unchunk))
    u.read_at = u.write_at = body_at


cdef int chunk_size(Unchunk* u, const uint8_t* at, const uint8_t* end) noexcept nogil:
    # *at* to *end* is the line without its LF. Extensions are allowed and ignored.
    cdef uint64_t value = 0
    cdef int digits = 0
    cdef uint8_t c
    if end == at or end[-1] != 13:
        return 400
    while at < end:
        c = at[0]
        if 48 <= c <= 57:
            value = value * 16 + (c - 48)
        elif 97 <= (c | 0x20) <= 102:
            value = value * 16 + ((c | 0x20) - 87)
        else:
            break
        digits += 1
        at += 1
        if digits > 15:
            return 413
    if digits == 0 or at[0] not in (13, 59, 32, 9) or at[0] == 13 and at + 1 != end:
        return 400
    u.left = value
    u.state = CHUNK_DATA if value else TRAILER
    return 0


cdef int chunk_line(Unchunk* u, uint8_t* buffer, size_t size) noexcept nogil:
    # A size line or a trailer line. 0: not complete; 1: read; 2: the body ended; else the refusing status.
    cdef const uint8_t* at = buffer + u.read_at
    cdef const uint8_t* newline = <const uint8_t*>memchr(at, 10, size - u.read_at)
    cdef int refusal
    if newline == NULL:
        return 400 if size - u.read_at > 4096 else 0
    u.read_at = <size_t>(newline + 1 - buffer)
    if u.state == CHUNK_SIZE:
        refusal = chunk_size(u, at, newline)
        return refusal if refusal else 1
    u.trailer_bytes += <size_t>(newline - at)
    if newline == at or newline[-1] != 13 or u.trailer_bytes > 16384:
        return 400
    return 2 if newline - at == 1 else 1


cdef int unchunk(Unchunk* u, uint8_t* buffer, size_t size, size_t body_at) noexcept nogil:
    cdef int step
    cdef size_t span
    while u.read_at < size:
        if u.state == CHUNK_DATA:
            span = min(<size_t>u.left, size - u.read_at)
            memmove(buffer + u.write_at, buffer + u.read_at, span)
            u.write_at += span
            u.read_at += span
            u.left -= span
            if u.left == 0:
                u.state = CHUNK_END
        elif u.state == CHUNK_END:
            if size - u.read_at < 2:
                return 0
            if buffer[u.read_at] != 13 or buffer[u.read_at + 1] != 10:
                return 400
            u.read_at += 2
            u.state = CHUNK_SIZE
        else:
            step = chunk_line(u, buffer, size)
            if step != 1:
                return 1 if step == 2 else step
            if u.write_at - body_at + u.left > BODY_LIMIT:
                return 413
    return 0
