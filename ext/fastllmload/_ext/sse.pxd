# Server-sent events (WHATWG), sans-IO: payload bytes in, events out, whatever the split.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.cursor cimport Cursor

cdef enum SseStep:
    SSE_NEED = 0            # cursor used up
    SSE_EVENT = 1           # *event* is filled; its pointers hold until the next call
    SSE_TOO_LONG = 2        # a line or the joined data passed Sse.limit; the parser must not be fed again

cdef struct SseEvent:
    const unsigned char* data       # joined data lines; borrowed from the cursor's buffer or from Sse.data
    size_t size
    const unsigned char* name       # value of the event: field; NULL when absent
    size_t name_size
    int64_t stamp                   # Sse.stamp at the read that delivered the newline of the last data line
    uint32_t read                   # Sse.read, likewise

cdef struct Sse:
    int64_t stamp                   # set by the feeder before each read: the read's time stamp
    uint32_t read                   # set by the feeder before each read: the read's number
    size_t limit                    # bytes that one line or one event's data may have
    unsigned char* line             # partial line carried over from earlier reads; owned, NULL until needed
    size_t line_size
    size_t line_cap
    unsigned char* data             # data lines of the current event when they had to be copied; owned
    size_t data_size
    size_t data_cap
    unsigned char* name             # event: field of the current event; owned
    size_t name_size
    size_t name_cap
    int64_t data_stamp              # of the last data line of the current event
    uint32_t data_read
    uint32_t comments               # comment lines seen since sse_reset
    uint8_t state                   # private to sse.pyx: BOM position, CR pending, data seen ...
    uint8_t flags

cdef void sse_init(Sse* s, size_t limit) noexcept nogil       # zeroes; allocates nothing
cdef void sse_reset(Sse* s) noexcept nogil                    # next stream; keeps small buffers, frees those above 64 KiB
cdef void sse_free(Sse* s) noexcept nogil
cdef SseStep sse_next(Sse* s, Cursor* c, SseEvent* event) noexcept nogil
