# Newline-delimited JSON, sans-IO. Empty lines are skipped; CR before LF is dropped. A last line without newline is
# delivered by ndjson_eof.
from libc.stdint cimport uint8_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.events.sse cimport Arrival, SseEvent, SseStep

cdef struct Ndjson:
    Arrival* now                    # of the bytes being fed; borrowed, set by the feeder before each read
    uint32_t line_offset            # bytes received with the newline of the current line
    size_t limit
    unsigned char* line             # partial line; owned
    size_t line_size
    size_t line_cap
    uint8_t dead                    # a line passed the limit, or memory ran out

cdef void ndjson_init(Ndjson* s, size_t limit) noexcept nogil
cdef void ndjson_reset(Ndjson* s) noexcept nogil
cdef void ndjson_free(Ndjson* s) noexcept nogil
cdef SseStep ndjson_next(Ndjson* s, Cursor* c, SseEvent* event) noexcept nogil
cdef SseStep ndjson_eof(Ndjson* s, SseEvent* event) noexcept nogil
