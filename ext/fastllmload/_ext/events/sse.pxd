# Server-sent events (WHATWG), sans-IO: payload bytes in, events out, whatever the split.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from fastllmload._ext.bytes.cursor cimport Cursor, left

cdef enum SseStep:
    SSE_NEED = 0            # cursor used up
    SSE_EVENT = 1           # *event* is filled; its pointers hold until the next call
    SSE_TOO_LONG = 2        # a line or the joined data passed Sse.limit; the parser must not be fed again

cdef enum SseState:
    SSE_BOM_0 = 0           # nothing read yet
    SSE_BOM_1 = 1           # EF read
    SSE_BOM_2 = 2           # EF BB read
    SSE_LINES = 3
    SSE_DEAD = 4

cdef struct Arrival:                # what is known of the bytes of one read
    int64_t t                       # time stamp of the newest of them
    int64_t low                     # none of them came before it
    uint32_t read                   # number of the read
    uint32_t end                    # bytes received on the connection with the read's last one, modulo 2^32
    uint32_t origin                 # of a byte of the read: this + its address is the same count up to it, modulo 2^32
    uint8_t stamp_class             # StampClass (recorder.pxd) of t

cdef inline uint32_t arrived_with(Arrival* a, const unsigned char* after) noexcept nogil:
    # Bytes received on the connection up to *after*, a place in the bytes of the read.
    return a.origin + <uint32_t><size_t>after

cdef struct SseEvent:
    const unsigned char* data       # joined data lines; borrowed from the cursor's buffer or from Sse.data
    size_t size
    const unsigned char* name       # value of the event: field; NULL when absent
    size_t name_size
    Arrival arrival                 # of the read that delivered the newline of the last data line
    uint32_t offset                 # bytes received on the connection with that newline, modulo 2^32

cdef struct Sse:                    # what like events touch comes first
    Arrival* now                    # of the bytes being fed; borrowed, set by the feeder before each read
    size_t limit                    # bytes that one line or one event's data may have
    size_t line_size                # of *line*
    size_t name_size                # of *name*
    uint8_t state                   # SseState
    uint8_t flags                   # private to sse.pyx: CR pending, data seen; 0 between events
    unsigned char* line             # partial line carried over from earlier reads; owned, NULL until needed
    size_t line_cap
    unsigned char* data             # data lines of the current event when they had to be copied; owned
    size_t data_size
    size_t data_cap
    unsigned char* name             # event: field of the current event; owned
    size_t name_cap
    Arrival data_arrival            # of the last data line of the current event
    uint32_t data_offset
    uint32_t line_offset            # bytes received with the newline of the current line
    uint32_t comments               # comment lines seen since sse_reset

cdef void sse_init(Sse* s, size_t limit) noexcept nogil       # zeroes; allocates nothing
cdef void sse_reset(Sse* s) noexcept nogil                    # next stream; keeps small buffers, frees those above 64 KiB
cdef void sse_free(Sse* s) noexcept nogil
cdef SseStep sse_next(Sse* s, Cursor* c, SseEvent* event) noexcept nogil

# A stream of like events needs no search for line ends: a caller that knows an event's data byte for byte reads around the grammar
# with these. Between two events, with nothing kept of either:
cdef inline bint sse_rests(Sse* s) noexcept nogil:
    return (s.line_size | s.name_size | s.flags | (s.state ^ SSE_LINES)) == 0

# The data of a line that begins without a blank, or after the line of a name that is not "error". NULL: the grammar has to read
# it.
cdef const unsigned char* sse_other_data(const unsigned char* at, const unsigned char* end) noexcept nogil

cdef inline bint sse_takes_data(Cursor* c) noexcept nogil:
    # The beginning of a data line, as nearly all servers write it.
    cdef const unsigned char* data
    if left(c) >= 6 and memcmp(c.at, b"data: ", 6) == 0:
        data = c.at + 6
    else:
        data = sse_other_data(c.at, c.end)
        if data == NULL:
            return False
    c.at = data
    return True

cdef inline bint sse_takes_end(Cursor* c) noexcept nogil:
    # The end of a line and an empty one, when both are there.
    if left(c) >= 2 and c.at[0] == c'\n' and c.at[1] == c'\n':
        c.at += 2
        return True
    if left(c) >= 4 and memcmp(c.at, b"\r\n\r\n", 4) == 0:
        c.at += 4
        return True
    return False
