# The event stream grammar of the WHATWG HTML standard, 9.2.6, with the time of each event.
#
# An event that lies whole in one read is handed out as pointers into that read. While a call runs, the
# pending event is kept in *event* itself: data and name point into the read (or into Sse.line, when a line
# was completed there), or at Sse.data and Sse.name. When the read is used up, what still points elsewhere is
# copied to Sse.data and Sse.name. So between calls the pending event is always owned by the Sse, and a
# pointer into a read never outlives the call.
#
# A CR ends its line at once. An LF that follows it, in this read or a later one, is skipped (AFTER_CR). A
# line longer than the limit ends the parse for good (SSE_DEAD), wherever the reads were split: only whole lines
# and whole joins are judged, or a partial line that is already too long whatever follows.
from libc.string cimport memchr, memset

from fastllmload._ext.bytes.carry cimport carry_add, carry_free, carry_reset
from fastllmload._ext.bytes.cursor cimport over

cdef enum Flag:
    AFTER_CR = 1
    HAS_DATA = 2            # the pending event has a data line

cdef enum Found:
    LINE_NONE = 0
    LINE_WHOLE = 1
    LINE_TOO_LONG = 2

cdef enum:
    WINDOW = 4096           # how far an LF is searched before a CR is: bounds streams with CR only
    NAME_NEAR = 64          # bytes of a name's line that are looked at around the grammar

cdef const unsigned char* BOM = b"\xef\xbb\xbf"


cdef void sse_init(Sse* s, size_t limit) noexcept nogil:
    memset(s, 0, sizeof(Sse))
    s.limit = limit


cdef void sse_reset(Sse* s) noexcept nogil:
    carry_reset(&s.line, &s.line_size, &s.line_cap)
    carry_reset(&s.data, &s.data_size, &s.data_cap)
    carry_reset(&s.name, &s.name_size, &s.name_cap)
    s.comments = 0
    s.state = SSE_BOM_0
    s.flags = 0


cdef void sse_free(Sse* s) noexcept nogil:
    carry_free(&s.line, &s.line_size, &s.line_cap)
    carry_free(&s.data, &s.data_size, &s.data_cap)
    carry_free(&s.name, &s.name_size, &s.name_cap)


cdef SseStep sse_next(Sse* s, Cursor* c, SseEvent* event) noexcept nogil:
    cdef Cursor line
    cdef Found found
    if s.state != SSE_LINES and not skip_bom(s, c):
        return die(s) if s.state == SSE_DEAD else SSE_NEED
    if c.at == c.end:
        return SSE_NEED         # what is pending is owned already
    resume(s, event)
    while True:
        found = next_line(s, c, &line)
        if found != LINE_WHOLE:
            break
        if line.at == line.end:
            if end_event(s, event):
                return SSE_EVENT
        else:
            s.line_offset = arrived_with(s.now, c.at)
            if field(s, &line, event) < 0:
                return die(s)
    if found == LINE_TOO_LONG or keep(s, c, event) < 0:
        return die(s)
    return SSE_NEED


cdef const unsigned char* sse_other_data(const unsigned char* at, const unsigned char* end) noexcept nogil:
    cdef Cursor c
    over(&c, at, <size_t>(end - at))
    if left(&c) >= 7 and memcmp(c.at, b"event: ", 7) == 0 and not skip_name(&c):
        return NULL
    if left(&c) < 6 or memcmp(c.at, b"data:", 5) != 0:
        return NULL
    return c.at + (6 if c.at[5] == c' ' else 5)


cdef bint skip_name(Cursor* c) noexcept nogil:
    cdef const unsigned char* end
    cdef size_t size
    c.at += 7
    end = <const unsigned char*>memchr(c.at, c'\n', min(left(c), <size_t>NAME_NEAR))
    if end == NULL:
        return False
    size = <size_t>(end - c.at)
    if memchr(c.at, c'\r', size) != NULL or (size == 5 and memcmp(c.at, b"error", 5) == 0):
        return False
    c.at = end + 1
    return True


cdef inline SseStep die(Sse* s) noexcept nogil:
    s.state = SSE_DEAD
    return SSE_TOO_LONG


cdef bint skip_bom(Sse* s, Cursor* c) noexcept nogil:
    # True when lines may be read. What looked like a byte order mark and was none belongs to the first line.
    while s.state < SSE_LINES and c.at < c.end and c.at[0] == BOM[s.state]:
        s.state += 1
        c.at += 1
    if s.state < SSE_LINES and c.at < c.end:
        if carry_add(&s.line, &s.line_size, &s.line_cap, BOM, s.state) < 0:
            s.state = SSE_DEAD
        else:
            s.state = SSE_LINES
    return s.state == SSE_LINES


cdef inline void resume(Sse* s, SseEvent* event) noexcept nogil:
    event.data = s.data
    event.size = s.data_size
    event.name = s.name if s.name_size > 0 else NULL
    event.name_size = s.name_size


cdef inline Found next_line(Sse* s, Cursor* c, Cursor* line) noexcept nogil:
    # The next line without its end, in the read, or in Sse.line when earlier reads hold its beginning.
    cdef const unsigned char* end
    if s.flags & AFTER_CR and c.at < c.end:
        s.flags &= ~AFTER_CR
        c.at += c.at[0] == c'\n'
    end = line_end(c)
    if end == NULL:
        return LINE_TOO_LONG if s.line_size + left(c) > s.limit else LINE_NONE
    over(line, c.at, <size_t>(end - c.at))
    c.at = end + 1
    if end[0] == c'\r':
        if c.at == c.end:
            s.flags |= AFTER_CR
        else:
            c.at += c.at[0] == c'\n'
    if s.line_size > 0:
        return whole_of_parts(s, line)
    return LINE_WHOLE if left(line) <= s.limit else LINE_TOO_LONG


cdef Found whole_of_parts(Sse* s, Cursor* line) noexcept nogil:
    if s.line_size + left(line) > s.limit:
        return LINE_TOO_LONG
    if carry_add(&s.line, &s.line_size, &s.line_cap, line.at, left(line)) < 0:
        return LINE_TOO_LONG
    over(line, s.line, s.line_size)
    s.line_size = 0         # the bytes stay where they are until a later line is split
    return LINE_WHOLE


cdef inline const unsigned char* line_end(Cursor* c) noexcept nogil:
    cdef const unsigned char* at = c.at
    cdef const unsigned char* lf
    cdef const unsigned char* cr
    cdef size_t size
    if at < c.end and at[0] == c'\n':
        return at               # every event ends with an empty line
    while at < c.end:
        size = <size_t>(c.end - at)
        size = size if size < WINDOW else WINDOW
        lf = <const unsigned char*>memchr(at, c'\n', size)
        cr = <const unsigned char*>memchr(at, c'\r', size if lf == NULL else <size_t>(lf - at))
        if cr != NULL:
            return cr
        if lf != NULL:
            return lf
        at += size
    return NULL


cdef inline int field(Sse* s, Cursor* line, SseEvent* event) noexcept nogil:
    if left(line) >= 5 and memcmp(line.at, b"data:", 5) == 0:
        line.at += 5
        skip_space(line)
        return data_line(s, line, event)
    return other_field(s, line, event)


cdef inline void skip_space(Cursor* value) noexcept nogil:
    if value.at < value.end and value.at[0] == c' ':
        value.at += 1


cdef inline int data_line(Sse* s, Cursor* value, SseEvent* event) noexcept nogil:
    s.data_arrival = s.now[0]
    s.data_offset = s.line_offset
    if s.flags & HAS_DATA:
        return join(s, value, event)
    s.flags |= HAS_DATA
    event.data = value.at
    event.size = left(value)
    return 0


cdef int join(Sse* s, Cursor* value, SseEvent* event) noexcept nogil:
    # A second data line: from here on the event's data live in Sse.data.
    cdef const unsigned char* newline = b"\n"
    if event.size + 1 + left(value) > s.limit or own_data(s, event) < 0:
        return -1
    if carry_add(&s.data, &s.data_size, &s.data_cap, newline, 1) < 0:
        return -1
    if carry_add(&s.data, &s.data_size, &s.data_cap, value.at, left(value)) < 0:
        return -1
    event.data = s.data
    event.size = s.data_size
    return 0


cdef int own_data(Sse* s, SseEvent* event) noexcept nogil:
    if event.data == s.data:
        return 0
    s.data_size = 0
    if carry_add(&s.data, &s.data_size, &s.data_cap, event.data, event.size) < 0:
        return -1
    event.data = s.data
    return 0


cdef int other_field(Sse* s, Cursor* line, SseEvent* event) noexcept nogil:
    cdef const unsigned char* colon = <const unsigned char*>memchr(line.at, c':', left(line))
    cdef Cursor name
    cdef Cursor value
    name.at = line.at
    name.end = line.end if colon == NULL else colon
    value.at = line.end if colon == NULL else colon + 1
    value.end = line.end
    if colon == line.at:
        s.comments += 1
        return 0
    skip_space(&value)
    if left(&name) == 4 and memcmp(name.at, b"data", 4) == 0:
        return data_line(s, &value, event)
    if left(&name) == 5 and memcmp(name.at, b"event", 5) == 0:
        s.name_size = 0
        event.name_size = left(&value)
        # An empty name is none: by the standard the event is a "message".
        event.name = value.at if event.name_size > 0 else NULL
    return 0


cdef inline bint end_event(Sse* s, SseEvent* event) noexcept nogil:
    # The blank line. Without a data line there is nothing to deliver, and the name is forgotten.
    cdef bint deliver = s.flags & HAS_DATA
    s.flags &= ~HAS_DATA
    s.data_size = 0
    s.name_size = 0
    if deliver:
        event.arrival = s.data_arrival
        event.offset = s.data_offset
    else:
        resume(s, event)
    return deliver


cdef inline int keep(Sse* s, Cursor* c, SseEvent* event) noexcept nogil:
    # The read is used up: own the pending event first, for it may point into Sse.line, then the partial line.
    if s.flags & HAS_DATA and own_data(s, event) < 0:
        return -1
    if event.name != NULL and event.name != s.name:
        s.name_size = 0
        if carry_add(&s.name, &s.name_size, &s.name_cap, event.name, event.name_size) < 0:
            return -1
    if left(c) > 0:
        if carry_add(&s.line, &s.line_size, &s.line_cap, c.at, left(c)) < 0:
            return -1
        c.at = c.end
    return 0


cdef class SseParser:
    """Events of one stream, for tests and for callers outside the hot path.

    ``limit`` bounds, in bytes, one line and one event's joined data. Past it ``too_long`` is true and
    nothing more comes.
    """

    cdef Sse sse
    cdef Arrival now

    def __cinit__(self, *, size_t limit=1 << 20):
        sse_init(&self.sse, limit)
        self.sse.now = &self.now

    def __dealloc__(self):
        sse_free(&self.sse)

    @property
    def too_long(self):
        return self.sse.state == SSE_DEAD

    @property
    def comments(self):
        return self.sse.comments

    @property
    def held_bytes(self):
        """Memory that the parser owns now."""
        return self.sse.line_cap + self.sse.data_cap + self.sse.name_cap

    def reset(self):
        """Ready for the next stream."""
        sse_reset(&self.sse)

    def feed(self, const unsigned char[::1] data not None, int64_t stamp=0, uint32_t read=0):
        """Events that *data* completes: (name or None, data, stamp, read) each."""
        cdef Cursor c
        cdef SseEvent event
        over(&c, &data[0] if len(data) else NULL, len(data))
        self.now.t = stamp
        self.now.read = read
        events = []
        while sse_next(&self.sse, &c, &event) == SSE_EVENT:
            name = None if event.name == NULL else event.name[:event.name_size]
            events.append((name, event.data[:event.size], event.arrival.t, event.arrival.read))
        return events

    def count(self, const unsigned char[::1] data not None):
        """How many events *data* completes, without building an object for any of them."""
        cdef Cursor c
        cdef SseEvent event
        cdef Py_ssize_t events = 0
        over(&c, &data[0] if len(data) else NULL, len(data))
        while sse_next(&self.sse, &c, &event) == SSE_EVENT:
            events += 1
        return events
