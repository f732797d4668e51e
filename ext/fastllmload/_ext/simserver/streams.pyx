"""Streams: what is written to one leaves in DATA frames on its carrier, as far as the client's windows let it.

`send` puts the frame's header, and the response's head if it has not left, in front of the bytes where they lie, trailers after them,
and hands all to the socket in one call. What cannot leave waits in the stream's `out`, and `flush` sends it when a window is opened or the socket takes
more. Frames that the socket did not take wait in the carrier's.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from fastllmload._ext.http.frames cimport (
    FF_END_HEADERS, FF_END_STREAM, FRAME_HEADER, FT_CONTINUATION, FT_DATA, FT_GOAWAY, FT_HEADERS, FT_SETTINGS, FT_WINDOW_UPDATE, MAX_FRAME,
    SET_INITIAL_WINDOW_SIZE, SET_MAX_CONCURRENT_STREAMS, STREAM_LAST, WINDOW_FIRST, WINDOW_MOST,
)
from fastllmload._ext.simserver.connection cimport (
    CONNECTION_READING, FILLER_FIELDS, SENT_ALL, SENT_FAILED, SENT_QUEUED, Many, many_free, pending,
)
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.tls.session cimport TlsContext

cdef enum:
    KEEP = 16384


cdef uint8_t* put_number(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value
    return at + 4


cdef uint8_t* header_before(uint8_t* payload, FrameType type, uint8_t flags, uint32_t id, size_t size) noexcept nogil:
    """Writes the header of a frame of *size* bytes in front of them; where it begins."""
    cdef uint8_t* at = payload - FRAME_HEADER
    at[0] = <uint8_t>(size >> 16)
    at[1] = <uint8_t>(size >> 8)
    at[2] = <uint8_t>size
    at[3] = <uint8_t>type
    at[4] = flags
    put_number(at + 5, id)
    return at


cdef class Streams(Connections):
    """*most*: streams that a connection may have at once; *window*: bytes of a request's body that may come before more is allowed."""

    def __init__(self, context: TlsContext | None = None, most: int = 128, window: int = 1 << 20):
        super().__init__(context)
        self.most = most
        self.window = window
        self.composed = <uint8_t*>malloc(FRAME_HEADER + MAX_FRAME)
        if self.composed == NULL:
            raise MemoryError("no memory for a frame")

    def __dealloc__(self):
        free(self.composed)

    cdef int begin(self, Connection* k) except -1:
        cdef uint8_t[12] settings
        cdef Many* m = <Many*>calloc(1, sizeof(Many))
        if m == NULL:
            raise MemoryError("no memory for an HTTP/2 connection")
        k.many = m
        m.streams = <Connection**>malloc(max(self.most, <uint32_t>1) * sizeof(Connection*))
        if m.streams == NULL:
            raise MemoryError("no memory for the streams of a connection")
        m.most = self.most
        m.window = m.window_first = WINDOW_FIRST
        m.frame_most = MAX_FRAME
        m.before_settings_id = STREAM_LAST
        settings[0], settings[1] = 0, SET_MAX_CONCURRENT_STREAMS
        put_number(settings + 2, self.most)
        settings[6], settings[7] = 0, SET_INITIAL_WINDOW_SIZE
        put_number(settings + 8, self.window)
        self.put(k, FT_SETTINGS, 0, 0, settings, 12)
        if self.window:
            self.put_code(k, FT_WINDOW_UPDATE, 0, WINDOW_MOST - WINDOW_FIRST)
        return 0

    cdef Connection* open(self, Connection* k, uint32_t id) except NULL:
        cdef Connection* c = self.fresh()
        c.carrier = k
        c.stream = id
        c.more = c.answered = False
        memset(&c.reply, 0, sizeof(c.reply))
        c.place = k.many.count
        c.window = k.many.window_first
        c.taken = 0
        c.state = CONNECTION_READING
        c.number, c.requests, c.t_accept, c.t_tls = k.number, k.requests, k.t_accept, k.t_tls
        k.many.streams[c.place] = c
        k.many.count += 1
        return c

    cdef Connection* find(self, Connection* k, uint32_t id) noexcept:
        cdef uint32_t i = k.many.count
        while i:                    # bodies come soon after heads: the latest first
            i -= 1
            if k.many.streams[i].stream == id:
                return k.many.streams[i]
        return NULL

    cdef void drop(self, Connection* c, bint reset) noexcept:
        cdef Connection* moved
        if c.carrier == NULL:
            many_free(c)
            Connections.drop(self, c, reset)
            return
        c.carrier.many.count -= 1
        moved = c.carrier.many.streams[c.carrier.many.count]
        c.carrier.many.streams[c.place] = moved
        moved.place = c.place
        c.carrier = NULL
        c.head = NULL
        self.recycle(c)

    cdef Sent put(self, Connection* k, FrameType type, uint8_t flags, uint32_t id, const void* payload, size_t size) except? SENT_FAILED:
        cdef uint8_t* start = header_before(self.composed + FRAME_HEADER, type, flags, id, size)
        if size:
            memcpy(start + FRAME_HEADER, payload, size)
        return Connections.send(self, k, start, FRAME_HEADER + size)

    cdef Sent put_code(self, Connection* k, FrameType type, uint32_t id, uint32_t code) except? SENT_FAILED:
        cdef uint8_t[4] payload
        put_number(payload, code)
        return self.put(k, type, 0, id, payload, 4)

    cdef Sent put_goaway(self, Connection* k, uint32_t last, uint32_t code) except? SENT_FAILED:
        cdef uint8_t[8] payload
        put_number(put_number(payload, last), code)
        return self.put(k, FT_GOAWAY, 0, 0, payload, 8)

    cdef Sent put_head(self, Connection* c) except? SENT_FAILED:
        cdef const uint8_t* head = c.head
        c.head = NULL
        return self.put(c.carrier, FT_HEADERS, FF_END_HEADERS, c.stream, head, c.head_size)

    cdef Sent put_trailers(self, Connection* c) except? SENT_FAILED:
        c.truth.call_status = c.reply.call_status
        return self.put(c.carrier, FT_HEADERS, FF_END_HEADERS | FF_END_STREAM, c.stream, c.reply.trailers.at, c.reply.trailers.size)

    cdef Sent put_large(self, Connection* c) except? SENT_FAILED:
        cdef size_t size = c.carrier.many.frame_most + 1
        data = bytearray(FRAME_HEADER + size)
        header_before(<uint8_t*><char*>data + FRAME_HEADER, FT_DATA, 0, c.stream, size)
        return Connections.send(self, c.carrier, <const uint8_t*><char*>data, FRAME_HEADER + size)

    cdef Sent end(self, Connection* c) except? SENT_FAILED:
        c.reply.last = True
        if c.reply.ended or pending(c):
            return SENT_ALL
        c.reply.ended = True
        if c.reply.trailers.size:
            return self.put_trailers(c)
        return self.put(c.carrier, FT_DATA, FF_END_STREAM, c.stream, NULL, 0)

    cdef size_t allowed(self, Connection* c, size_t size) noexcept:
        """Of *size* bytes, those that the client takes now in one frame."""
        cdef int64_t window = min(c.window, c.carrier.many.window)
        return min(size, <size_t>min(max(window, <int64_t>0), <int64_t>c.carrier.many.frame_most))

    cdef Sent send(self, Connection* c, const uint8_t* data, size_t size) except? SENT_FAILED:
        cdef Connection* k = c.carrier
        cdef uint8_t* start = <uint8_t*>data
        cdef uint8_t* end = start + size
        cdef bint trailing
        cdef Sent sent
        if k == NULL:
            return Connections.send(self, c, data, size)
        if (pending(c) or c.out_due or c.drip_ns or pending(k) or k.many.flooded or self.allowed(c, size) < size
                or c.head != NULL and c.head_size + 2 * FRAME_HEADER > FRONT):
            self.append(c, data, size)
            sent = self.flush(c, mono_ns())
            return SENT_QUEUED if sent == SENT_ALL and pending(k) else sent
        trailing = c.reply.last and c.reply.trailers.size
        if size or c.head == NULL:
            start = header_before(start, FT_DATA, FF_END_STREAM if c.reply.last and not trailing else 0, c.stream, size)
        if c.head != NULL:
            start -= c.head_size
            memcpy(start, c.head, c.head_size)
            start = header_before(start, FT_HEADERS, FF_END_HEADERS | (FF_END_STREAM if size == 0 and c.reply.last and not trailing else 0), c.stream,
                                  c.head_size)
            c.head = NULL
        if trailing:
            memcpy(end + FRAME_HEADER, c.reply.trailers.at, c.reply.trailers.size)
            header_before(end + FRAME_HEADER, FT_HEADERS, FF_END_HEADERS | FF_END_STREAM, c.stream, c.reply.trailers.size)
            end += FRAME_HEADER + c.reply.trailers.size
            c.truth.call_status = c.reply.call_status
        c.reply.ended = c.reply.last
        c.window -= size
        k.many.window -= size
        sent = Connections.send(self, k, start, <size_t>(end - start))
        if k.tls != NULL:
            c.t_sent = k.t_sent
        return sent

    cdef Sent flush(self, Connection* c, int64_t now) except? SENT_FAILED:
        cdef Connection* k = c.carrier
        cdef size_t size
        cdef bint last
        if k == NULL:
            return Connections.flush(self, c, now)
        if c.head != NULL and self.put_head(c) == SENT_FAILED:
            return SENT_FAILED
        if c.out_due > now:
            return SENT_QUEUED
        c.out_due = 0
        while pending(c) and not pending(k) and (not k.many.flooded or c.filler == FILLER_FIELDS):
            if c.filler == FILLER_FIELDS:
                if self.flood(c) == SENT_FAILED:
                    return SENT_FAILED
                continue
            size = c.out_size - c.out_at if c.out_at < c.out_size else <size_t>min(c.filler_left, <uint64_t>MAX_FRAME)
            size = self.allowed(c, 1 if c.drip_ns else size)
            if size == 0:
                return SENT_QUEUED
            if c.out_at < c.out_size:
                memcpy(self.composed + FRAME_HEADER, c.out + c.out_at, size)
                c.out_at += size
            else:
                memset(self.composed + FRAME_HEADER, c'a', size)
                c.filler_left -= size
            last = c.reply.last and not pending(c)
            c.reply.ended |= last
            header_before(self.composed + FRAME_HEADER, FT_DATA, FF_END_STREAM if last and not c.reply.trailers.size else 0, c.stream, size)
            c.window -= size
            k.many.window -= size
            if Connections.send(self, k, self.composed, FRAME_HEADER + size) == SENT_FAILED:
                return SENT_FAILED
            if last and c.reply.trailers.size and self.put_trailers(c) == SENT_FAILED:
                return SENT_FAILED
            if c.drip_ns and pending(c):
                c.out_due = now + c.drip_ns
                return SENT_QUEUED
        if pending(c):
            return SENT_QUEUED
        if c.out_cap > KEEP:
            free(c.out)
            c.out = NULL
            c.out_at = c.out_size = c.out_cap = 0
        return SENT_ALL

    cdef Sent flood(self, Connection* c) except? SENT_FAILED:
        """The next frame of a head without an end."""
        cdef uint8_t* at = self.composed + FRAME_HEADER
        cdef uint8_t* end = at + min(c.filler_left, <uint64_t>MAX_FRAME)
        if not c.carrier.many.flooded:
            c.carrier.many.flooded = True
            return self.put(c.carrier, FT_HEADERS, 0, c.stream, <const char*>b"\x20\x88", 2)
        c.filler_left -= <uint64_t>(end - at)
        while at + 64 <= end:
            memcpy(at, <const char*>b"\x10\x08x-filler\x35", 11)
            memset(at + 11, c'a', 53)
            at += 64
        header_before(self.composed + FRAME_HEADER, FT_CONTINUATION, 0, c.stream, <size_t>(at - self.composed - FRAME_HEADER))
        return Connections.send(self, c.carrier, self.composed, <size_t>(at - self.composed))
