"""What an HTTP/2 connection keeps: its streams in a table, the peer's settings and windows, frames that wait to be sent.

The client's windows never close: each is opened as far as it goes at once (2^31 - 1), and again after a GiB. The peer's are
obeyed: `put_body` takes as much of a body as they let through.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset

from fastllmload._ext.bytes.carry cimport carry_add, carry_free, carry_reset
from fastllmload._ext.system.life cimport LIFE_BUFFER, life_begins, life_ends

cdef enum:
    PLACES_FIRST = 32

# What a client says first (RFC 9113 3.4): the preface; no table of fields, no pushes, windows of streams; the connection's window.
cdef bytes FIRST = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    b"\0\0\x12\x04\0\0\0\0\0"
    b"\0\x01\0\0\0\0" b"\0\x02\0\0\0\0" b"\0\x04\x7f\xff\xff\xff"
    b"\0\0\x04\x08\0\0\0\0\0" b"\x7f\xff\0\0"
)
cdef const unsigned char* FIRST_BYTES = FIRST
cdef size_t FIRST_SIZE = len(FIRST)


cdef Multiplex* multiplex_new() noexcept nogil:
    cdef Multiplex* m = <Multiplex*>calloc(1, sizeof(Multiplex))
    if m == NULL:
        return NULL
    m.streams = <OpenStream*>calloc(PLACES_FIRST, sizeof(OpenStream))
    m.mask = PLACES_FIRST - 1
    m.next_id = 1
    m.most = STREAM_LAST
    m.window_first = m.window = WINDOW_FIRST
    m.frame_most = MAX_FRAME
    if m.streams == NULL or carry_add(&m.out, &m.out_size, &m.out_cap, FIRST_BYTES, FIRST_SIZE) < 0:
        free(m.streams)
        free(m)
        return NULL
    m.put = m.out_size
    life_begins(LIFE_BUFFER)
    return m


cdef void multiplex_free(Multiplex* m) noexcept nogil:
    if m == NULL:
        return
    carry_free(&m.block, &m.block_size, &m.block_cap)
    carry_free(&m.out, &m.out_size, &m.out_cap)
    free(m.streams)
    free(m)
    life_ends(LIFE_BUFFER)


# -- streams ----------------------------------------------------------------------------------------------------------


cdef inline uint32_t home(const Multiplex* m, uint32_t id) noexcept nogil:
    return (id >> 1) & m.mask


cdef OpenStream* stream_find(Multiplex* m, uint32_t id) noexcept nogil:
    cdef uint32_t at = home(m, id)
    while m.streams[at].id != id:
        if m.streams[at].id == 0:
            return NULL
        at = (at + 1) & m.mask
    return &m.streams[at]


cdef OpenStream* free_place(Multiplex* m, uint32_t id) noexcept nogil:
    cdef uint32_t at = home(m, id)
    while m.streams[at].id:
        at = (at + 1) & m.mask
    return &m.streams[at]


cdef int grow(Multiplex* m) except -1:
    cdef OpenStream* old = m.streams
    cdef uint32_t i, places = m.mask + 1
    m.streams = <OpenStream*>calloc(2 * places, sizeof(OpenStream))
    if m.streams == NULL:
        m.streams = old
        raise MemoryError(f"{2 * places} streams on a connection")
    m.mask = 2 * places - 1
    for i in range(places):
        if old[i].id:
            free_place(m, old[i].id)[0] = old[i]
    free(old)
    return 0


cdef int stream_open(Multiplex* m, Exchange* x) except -1:
    cdef OpenStream* s
    if 2 * m.open > m.mask:
        grow(m)
    s = free_place(m, m.next_id)
    memset(s, 0, sizeof(OpenStream))
    s.id = x.stream = m.next_id
    s.x = x
    s.window = m.window_first
    s.length = -1
    m.next_id += 2
    m.open += 1
    return 0


cdef void stream_close(Multiplex* m, uint32_t id) noexcept nogil:
    """What follows in the table moves up, so that no search for it ends at the place that is free now."""
    cdef OpenStream* s = stream_find(m, id)
    cdef uint32_t at, hole
    if s == NULL:
        return
    hole = at = <uint32_t>(s - m.streams)
    m.open -= 1
    while True:
        at = (at + 1) & m.mask
        if m.streams[at].id == 0:
            break
        if ((at - home(m, m.streams[at].id)) & m.mask) >= ((at - hole) & m.mask):
            m.streams[hole] = m.streams[at]
            hole = at
    m.streams[hole].id = 0


cdef bint carries(const Multiplex* m) noexcept nogil:
    cdef uint32_t i
    for i in range(m.mask + 1):
        if m.streams[i].id and m.streams[i].x != NULL:
            return True
    return False


# -- what is sent -----------------------------------------------------------------------------------------------------


cdef int put(Multiplex* m, const void* data, size_t size) except -1:
    if carry_add(&m.out, &m.out_size, &m.out_cap, <const unsigned char*>data, size) < 0:
        raise MemoryError(f"{m.out_size + size} bytes to be sent on a connection")
    m.put += size
    return 0


cdef int put_header(Multiplex* m, FrameType type, uint8_t flags, uint32_t stream, size_t size) except -1:
    cdef unsigned char[FRAME_HEADER] header
    header[0] = <unsigned char>(size >> 16)
    header[1] = <unsigned char>(size >> 8)
    header[2] = <unsigned char>size
    header[3] = <unsigned char>type
    header[4] = flags
    header[5] = <unsigned char>(stream >> 24)
    header[6] = <unsigned char>(stream >> 16)
    header[7] = <unsigned char>(stream >> 8)
    header[8] = <unsigned char>stream
    return put(m, header, FRAME_HEADER)


cdef int put_frame(Multiplex* m, FrameType type, uint8_t flags, uint32_t stream, const void* payload, size_t size) except -1:
    put_header(m, type, flags, stream, size)
    return put(m, payload, size)


cdef int put_reply(Multiplex* m, FrameType type, uint8_t flags, const void* payload, size_t size) except -1:
    m.replies += FRAME_HEADER + <uint32_t>size
    return put_frame(m, type, flags, 0, payload, size)


cdef void big_endian(unsigned char* at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char>(value >> 24)
    at[1] = <unsigned char>(value >> 16)
    at[2] = <unsigned char>(value >> 8)
    at[3] = <unsigned char>value


cdef int put_code(Multiplex* m, FrameType type, uint32_t stream, uint32_t code) except -1:
    cdef unsigned char[4] payload
    big_endian(payload, code)
    return put_frame(m, type, 0, stream, payload, 4)


cdef int put_goaway(Multiplex* m, uint32_t code) except -1:
    cdef unsigned char[8] payload
    big_endian(payload, 0)          # no stream of the peer was ever taken
    big_endian(payload + 4, code)
    return put_frame(m, FT_GOAWAY, 0, 0, payload, 8)


cdef int put_head(Multiplex* m, Exchange* x, const void* head, size_t head_size, const void* lines, size_t lines_size, bint ends) except -1:
    cdef size_t size = head_size + lines_size
    cdef size_t first = min(size, <size_t>m.frame_most)
    cdef size_t part = min(head_size, first)
    cdef const unsigned char* more
    cdef bytes block
    cdef OpenStream* s = stream_find(m, x.stream)
    put_header(m, FT_HEADERS, (FF_END_STREAM if ends else 0) | (FF_END_HEADERS if first == size else 0), x.stream, first)
    put(m, head, part)
    put(m, lines, first - part)
    if first < size:
        block = (<const char*>head)[:head_size] + (<const char*>lines)[:lines_size]
        more = <const unsigned char*>block
        while first < size:
            part = min(size - first, <size_t>m.frame_most)
            put_frame(m, FT_CONTINUATION, FF_END_HEADERS if first + part == size else 0, x.stream, more + first, part)
            first += part
    s.announced = True
    s.sent = ends
    return 0


cdef Py_ssize_t put_body(Multiplex* m, Exchange* x, const void* data, size_t size, bint ends) except -1:
    cdef OpenStream* s = stream_find(m, x.stream)
    cdef size_t part, done = 0
    cdef int64_t window
    if s == NULL:
        return 0
    while done < size and m.out_size - m.out_at < OUT_MOST:
        window = min(m.window, s.window)
        if window <= 0:
            break
        part = min(size - done, min(<size_t>window, <size_t>m.frame_most))
        s.sent = ends and done + part == size
        put_header(m, FT_DATA, FF_END_STREAM if s.sent else 0, x.stream, part)
        put(m, <const unsigned char*>data + done, part)
        s.window -= part
        m.window -= part
        done += part
    return <Py_ssize_t>done


cdef bint window_closed(Multiplex* m, Exchange* x) noexcept nogil:
    cdef OpenStream* s = stream_find(m, x.stream)
    return s != NULL and not s.sent and min(m.window, s.window) <= 0


cdef void put_sent(Multiplex* m, size_t size) noexcept nogil:
    m.out_at += size
    m.gone += size
    if m.out_at == m.out_size:
        m.out_at = 0
        m.replies = 0
        carry_reset(&m.out, &m.out_size, &m.out_cap)
    elif m.out_at >= OUT_MOST:
        m.out_size -= m.out_at
        memmove(m.out, m.out + m.out_at, m.out_size)
        m.out_at = 0
