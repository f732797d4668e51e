# One JSON text per line. Only LF ends a line; one CR in front of it is dropped; what is then empty is
# skipped. A line with its CR may have Ndjson.limit bytes. After SSE_TOO_LONG the parser answers the same
# until it is reset.
from libc.stdint cimport int64_t
from libc.string cimport memchr, memset

from fastllmload._ext.bytes.carry cimport carry_add, carry_free, carry_reset
from fastllmload._ext.bytes.cursor cimport left, over
from fastllmload._ext.events.sse cimport SSE_EVENT, SSE_NEED, SSE_TOO_LONG, arrived_with


cdef void ndjson_init(Ndjson* s, size_t limit) noexcept nogil:
    memset(s, 0, sizeof(Ndjson))
    s.limit = limit


cdef void ndjson_reset(Ndjson* s) noexcept nogil:
    carry_reset(&s.line, &s.line_size, &s.line_cap)
    s.dead = 0


cdef void ndjson_free(Ndjson* s) noexcept nogil:
    carry_free(&s.line, &s.line_size, &s.line_cap)


cdef SseStep ndjson_next(Ndjson* s, Cursor* c, SseEvent* event) noexcept nogil:
    cdef const unsigned char* end
    cdef Cursor line
    while not s.dead and c.at < c.end:
        end = <const unsigned char*>memchr(c.at, c'\n', left(c))
        line.at = c.at
        line.end = c.end if end == NULL else end
        if s.line_size + left(&line) > s.limit:
            s.dead = 1
        elif end == NULL:
            c.at = c.end
            s.dead = carry_add(&s.line, &s.line_size, &s.line_cap, line.at, left(&line)) < 0
        else:
            c.at = end + 1
            s.line_offset = arrived_with(s.now, c.at)
            if deliver(s, &line, event):
                return SSE_EVENT
    return SSE_TOO_LONG if s.dead else SSE_NEED


cdef SseStep ndjson_eof(Ndjson* s, SseEvent* event) noexcept nogil:
    cdef Cursor rest
    over(&rest, NULL, 0)
    s.line_offset = s.now.end
    if s.dead:
        return SSE_TOO_LONG
    return SSE_EVENT if deliver(s, &rest, event) else SSE_NEED


cdef inline bint deliver(Ndjson* s, Cursor* line, SseEvent* event) noexcept nogil:
    # A line that began in an earlier read is completed in Ndjson.line, where it stays until the next call.
    if s.line_size > 0:
        s.dead = carry_add(&s.line, &s.line_size, &s.line_cap, line.at, left(line)) < 0
        over(line, s.line, s.line_size)
        s.line_size = 0
    if line.at < line.end and (line.end - 1)[0] == c'\r':
        line.end -= 1
    event.data = line.at
    event.size = left(line)
    event.name = NULL
    event.name_size = 0
    event.arrival = s.now[0]
    event.offset = s.line_offset
    return event.size > 0 and not s.dead


cdef class NdjsonParser:
    """Lines of one stream, for callers outside the hot path; ``limit`` bounds one line in bytes."""

    cdef Ndjson ndjson
    cdef Arrival now

    def __cinit__(self, *, size_t limit=1 << 20):
        ndjson_init(&self.ndjson, limit)
        self.ndjson.now = &self.now

    def __dealloc__(self):
        ndjson_free(&self.ndjson)

    @property
    def too_long(self):
        return bool(self.ndjson.dead)

    @property
    def held_bytes(self):
        """Memory that the parser owns now."""
        return self.ndjson.line_cap

    def reset(self):
        """Ready for the next stream."""
        ndjson_reset(&self.ndjson)

    def feed(self, const unsigned char[::1] data not None, int64_t stamp=0, uint32_t read=0):
        """Lines that *data* completes: (None, line, stamp, read) each, as SseParser.feed gives them."""
        cdef Cursor c
        cdef SseEvent event
        over(&c, &data[0] if len(data) else NULL, len(data))
        self.now.t = stamp
        self.now.read = read
        lines = []
        while ndjson_next(&self.ndjson, &c, &event) == SSE_EVENT:
            lines.append((None, event.data[:event.size], event.arrival.t, event.arrival.read))
        return lines

    def eof(self):
        """The last line when it had no newline, with the stamp of the last read; else an empty list."""
        cdef SseEvent event
        if ndjson_eof(&self.ndjson, &event) != SSE_EVENT:
            return []
        return [(None, event.data[:event.size], event.arrival.t, event.arrival.read)]
