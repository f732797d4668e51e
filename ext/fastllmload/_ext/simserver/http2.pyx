"""HTTP/2 (RFC 9113) as a server: what is different where a connection carries many requests.

A connection that begins with the preface of HTTP/2 becomes a carrier. Its frames open, feed and end streams, each of which is a
Connection of its own: a request is kept in its `read` as in HTTP/1.1, head and body, is served when it is whole, and its reply goes the
way of every reply. A call of gRPC is served when its message is whole: its client may go on with another one on the same stream, and
the call ends when the client has ended. The carrier stays READING; it closes with the client, with an error of the protocol, or with a reply that ends it.

A client that breaks the protocol gets GOAWAY, and what it sends after that is thrown away.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from hpack import Decoder, HPACKError

from fastllmload._ext.bytes.carry cimport carry_add, carry_reset
from fastllmload._ext.http.block import FORBIDDEN
from fastllmload._ext.http.request cimport BODY_LIMIT, HEAD_LIMIT, Request, request_read
from fastllmload._ext.http.frames cimport (
    CODE_CALM, CODE_COMPRESSION, CODE_FLOW_CONTROL, CODE_FRAME_SIZE, CODE_NO_ERROR, CODE_PROTOCOL, CODE_REFUSED_STREAM,
    FF_ACK, FF_END_HEADERS, FF_END_STREAM, FF_PADDED, FF_PRIORITY, FRAME_HEADER, FT_CONTINUATION, FT_DATA, FT_HEADERS,
    FT_PING, FT_PUSH_PROMISE, FT_RST_STREAM, FT_SETTINGS, FT_WINDOW_UPDATE, MAX_FRAME, SET_INITIAL_WINDOW_SIZE, SET_MAX_FRAME_SIZE,
    STREAM_LAST, TOP_UP, WINDOW_MOST,
)
from fastllmload._ext.simserver.connection cimport (
    CONNECTION_BUSY, CONNECTION_DRAINING, CONNECTION_LINGERING, CONNECTION_READING, CONNECTION_SILENT, SENT_ALL, SENT_FAILED, Many, Sent,
    pending,
)
from fastllmload._ext.sim.fault cimport FAULT_IDLE_CLOSE, FAULT_NO_HTTP2
from fastllmload._ext.simserver.session cimport IDLE_CLOSE, LINGER_END
from fastllmload._ext.simserver.truth cimport TRUTH_ABORTED
from fastllmload._ext.simserver.writer cimport COMPLETE, LEFT_OUT, Outcome
from fastllmload._ext.system.clock cimport mono_ns

cdef extern from "<sys/socket.h>" nogil:
    int shutdown(int fd, int how)
    int SHUT_WR

cdef enum:
    PREFACE_SIZE = 24
    BLOCK_FRAMES = 64           # of a head at most: empty ones cost the client nothing
    UNREAD = 1048576            # bytes that may wait for a client that does not read, before it is answered no more
    LINGER_NS = 1_000_000_000

cdef object PSEUDO = frozenset((b":method", b":path", b":scheme", b":authority"))
cdef bytes PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


cdef inline uint32_t number(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline bint message_whole(const uint8_t* body, size_t size) noexcept nogil:
    """Whether it is one message of gRPC: JSON does not begin with 0."""
    return size >= 5 and body[0] == 0 and size == 5 + <size_t>number(body + 1)


cdef inline bint kept_open(Connection* c) noexcept nogil:
    """The client may send another message on the stream."""
    return c.more and not (c.reply.last or c.reply.ended or c.reply.close_after)


cdef class Http2Sessions(Sessions):
    def __cinit__(self, *_):
        self.decoders = {}

    # -- what HTTP/1.1 does otherwise ---------------------------------------------------------------------------------

    cdef int consume(self, Connection* c, uint8_t* data, size_t size) except -1:
        if c.many != NULL:
            return self.frames(c, data, size)
        if (c.requests or c.fault == FAULT_NO_HTTP2 or c.seen or c.need or data[0] != c'P'
                or memcmp(data, <const char*>PREFACE, min(size, <size_t>PREFACE_SIZE))):
            return Sessions.consume(self, c, data, size)
        if size < PREFACE_SIZE:
            c.read_size = 0
            return self.connections.keep(c, data, size)
        self.connections.begin(c)
        self.decoders[c.number] = Decoder()
        return self.frames(c, data + PREFACE_SIZE, size - PREFACE_SIZE)

    cdef int settle(self, Connection* c, Outcome outcome) except -1:
        if c.carrier == NULL:
            return Sessions.settle(self, c, outcome)
        if outcome == LEFT_OUT:
            c.carrier.many.last_id = c.stream - 2 if c.stream > 2 else 0
            return self.leave(c.carrier)
        if outcome == COMPLETE and not kept_open(c) and self.connections.end(c) == SENT_FAILED:
            return self.close(c, False, TRUTH_ABORTED)
        return Sessions.settle(self, c, outcome)

    cdef int complete(self, Connection* c) except -1:
        cdef Connection* k = c.carrier
        if k == NULL:
            return Sessions.complete(self, c)
        self.end_row(c, 0)
        k.requests += 1
        k.many.closing |= c.reply.close_after
        if c.reply.fault == FAULT_IDLE_CLOSE:
            self.set_timer(k, mono_ns() + <int64_t>c.reply.fault_arg * 1_000_000, IDLE_CLOSE)
        if kept_open(c):
            c.state = CONNECTION_READING
            c.answered = True
            return 0
        return self.end_call(c)

    cdef int end_call(self, Connection* c) except -1:
        cdef Connection* k = c.carrier
        # What a fault cuts off has no end.
        if c.reply.trailers.size and not c.reply.close_after and self.connections.end(c) == SENT_FAILED:
            return self.close(k, False, TRUTH_ABORTED)
        self.connections.drop(c, False)
        if not pending(k) and (k.many.closing or k.many.leaving and k.many.count == 0):
            return self.close(k, False, 0)
        return 0

    cdef int close(self, Connection* c, bint reset, uint8_t flags) except -1:
        # A stream is closed with its carrier: what it needs alone is end_stream().
        cdef Connection* k = c if c.carrier == NULL else c.carrier
        if k.many != NULL:
            self.end_streams(k, 0, flags)
            self.decoders.pop(k.number, None)
        return Sessions.close(self, k, reset, flags)

    cdef int ready_to_write(self, Connection* c) except -1:
        cdef Sent sent
        if c.many == NULL:
            return Sessions.ready_to_write(self, c)
        sent = self.connections.flush(c, mono_ns())
        if sent == SENT_FAILED:
            return self.close(c, False, TRUTH_ABORTED)
        return self.go_on(c) if sent == SENT_ALL else 0

    cdef int go_on(self, Connection* k) except -1:
        """Sends what the streams hold back, as far as windows and the socket let it."""
        cdef uint32_t generation = k.generation
        cdef Many* m = k.many
        cdef uint32_t count, done = 0
        m.turn += 1
        while done < m.count and not pending(k):
            count = m.count
            if pending(m.streams[(m.turn + done) % count]):
                Sessions.ready_to_write(self, m.streams[(m.turn + done) % count])
                if k.generation != generation:
                    return 0
            done = done + 1 if m.count == count else 0
        if not pending(k) and (m.closing or m.leaving and m.count == 0):
            return self.close(k, False, 0)
        return 0

    cdef int end_stream(self, Connection* c, uint8_t flags) except -1:
        self.cadence.abort(&c.sequence)
        if c.state in (CONNECTION_BUSY, CONNECTION_DRAINING, CONNECTION_SILENT):
            self.end_row(c, flags)
        self.connections.drop(c, False)
        return 0

    cdef int end_streams(self, Connection* k, uint32_t above, uint8_t flags) except -1:
        cdef uint32_t i = k.many.count
        while i:
            i -= 1
            if k.many.streams[i].stream > above:
                self.end_stream(k.many.streams[i], flags)
        return 0

    cdef int leave(self, Connection* k) except -1:
        """No stream after last_id is served; the connection closes when those before have ended."""
        k.many.leaving = True
        if self.connections.put_goaway(k, k.many.last_id, CODE_NO_ERROR) == SENT_FAILED:
            return self.close(k, False, TRUTH_ABORTED)
        self.end_streams(k, k.many.last_id, 0)
        return self.close(k, False, 0) if k.many.count == 0 and not pending(k) else 0

    cdef int fail(self, Connection* k, uint32_t code) except -1:
        """The client broke the protocol."""
        if self.connections.put_goaway(k, k.many.last_id, code) == SENT_FAILED:
            return self.close(k, False, 0)
        self.end_streams(k, 0, TRUTH_ABORTED)
        self.connections.say_end(k)
        shutdown(k.fd, SHUT_WR)
        k.state = CONNECTION_LINGERING
        return self.set_timer(k, mono_ns() + LINGER_NS, LINGER_END)

    # -- frames -------------------------------------------------------------------------------------------------------

    cdef int frames(self, Connection* k, uint8_t* data, size_t size) except -1:
        cdef uint32_t generation = k.generation
        cdef uint32_t length
        k.read_size = 0
        while size >= FRAME_HEADER:
            length = <uint32_t>data[0] << 16 | <uint32_t>data[1] << 8 | data[2]
            if length > MAX_FRAME:
                return self.fail(k, CODE_FRAME_SIZE)
            if size < FRAME_HEADER + length:
                break
            self.frame(k, data[3], data[4], number(data + 5) & STREAM_LAST, data + FRAME_HEADER, length)
            if k.generation != generation or k.state == CONNECTION_LINGERING:
                return 0
            data += FRAME_HEADER + length
            size -= FRAME_HEADER + length
        return self.connections.keep(k, data, size)

    cdef int frame(self, Connection* k, uint8_t type, uint8_t flags, uint32_t id, const uint8_t* p, uint32_t size) except -1:
        cdef Many* m = k.many
        if not m.settled and type != FT_SETTINGS or type == FT_PUSH_PROMISE:
            return self.fail(k, CODE_PROTOCOL)
        if m.block_stream and (type != FT_CONTINUATION or id != m.block_stream):
            return self.fail(k, CODE_PROTOCOL)
        if k.out_size - k.out_at > UNREAD:
            return self.fail(k, CODE_CALM)
        if type == FT_DATA:
            return self.body(k, flags, id, p, size)
        if type == FT_HEADERS or type == FT_CONTINUATION:
            return self.fields(k, type, flags, id, p, size)
        if type == FT_SETTINGS:
            return self.settings(k, flags, p, size)
        if type == FT_WINDOW_UPDATE:
            return self.window(k, id, number(p) & STREAM_LAST) if size == 4 else self.fail(k, CODE_FRAME_SIZE)
        if type == FT_PING:
            if size != 8:
                return self.fail(k, CODE_FRAME_SIZE)
            if not flags & FF_ACK and self.connections.put(k, FT_PING, FF_ACK, 0, p, 8) == SENT_FAILED:
                return self.close(k, False, TRUTH_ABORTED)
        elif type == FT_RST_STREAM:
            c = self.connections.find(k, id)
            if c != NULL:
                self.end_stream(c, TRUTH_ABORTED)
            if m.leaving and m.count == 0 and not pending(k):
                return self.close(k, False, 0)
        return 0                                    # PRIORITY, GOAWAY, extensions: nothing follows from them

    cdef int settings(self, Connection* k, uint8_t flags, const uint8_t* p, uint32_t size) except -1:
        cdef Many* m = k.many
        cdef uint32_t i, j, value
        if flags & FF_ACK:
            m.before_settings_id = min(m.before_settings_id, m.last_id)
            return 0
        if size % 6:
            return self.fail(k, CODE_FRAME_SIZE)
        for i in range(0, size, 6):
            value = number(p + i + 2)
            if p[i + 1] == SET_INITIAL_WINDOW_SIZE and p[i] == 0:
                if value > WINDOW_MOST:
                    return self.fail(k, CODE_FLOW_CONTROL)
                for j in range(m.count):
                    m.streams[j].window += <int64_t>value - m.window_first
                m.window_first = value
            elif p[i + 1] == SET_MAX_FRAME_SIZE and p[i] == 0:
                if not MAX_FRAME <= value < 1 << 24:
                    return self.fail(k, CODE_PROTOCOL)
                m.frame_most = min(value, <uint32_t>MAX_FRAME)
        m.settled = True
        if self.connections.put(k, FT_SETTINGS, FF_ACK, 0, NULL, 0) == SENT_FAILED:
            return self.close(k, False, TRUTH_ABORTED)
        return self.go_on(k)

    cdef int window(self, Connection* k, uint32_t id, uint32_t more) except -1:
        cdef Connection* c
        if id == 0:
            k.many.window += more
            if more == 0 or k.many.window > WINDOW_MOST:
                return self.fail(k, CODE_FLOW_CONTROL if more else CODE_PROTOCOL)
            return self.go_on(k)
        c = self.connections.find(k, id)
        if c == NULL:
            return 0 if id <= k.many.last_id else self.fail(k, CODE_PROTOCOL)
        c.window += more
        if more == 0 or c.window > WINDOW_MOST:
            return self.reset_stream(k, id, CODE_FLOW_CONTROL if more else CODE_PROTOCOL)
        return Sessions.ready_to_write(self, c) if pending(c) and not pending(k) else 0

    cdef int reset_stream(self, Connection* k, uint32_t id, uint32_t code) except -1:
        cdef Connection* c = self.connections.find(k, id)
        if c != NULL:
            self.end_stream(c, TRUTH_ABORTED)
        if self.connections.put_code(k, FT_RST_STREAM, id, code) == SENT_FAILED:
            return self.close(k, False, TRUTH_ABORTED)
        return 0

    # -- requests -----------------------------------------------------------------------------------------------------

    cdef int body(self, Connection* k, uint8_t flags, uint32_t id, const uint8_t* p, uint32_t size) except -1:
        cdef Connection* c = self.connections.find(k, id)
        cdef uint32_t framed = size, padding = 0
        if id == 0 or id > k.many.last_id:
            return self.fail(k, CODE_PROTOCOL)
        if flags & FF_PADDED:
            if size == 0 or p[0] >= size:
                return self.fail(k, CODE_PROTOCOL)
            padding = p[0]
            p += 1
            size -= 1 + padding
        k.many.taken += framed
        if k.many.taken >= TOP_UP:
            if self.connections.put_code(k, FT_WINDOW_UPDATE, 0, k.many.taken) == SENT_FAILED:
                return self.close(k, False, TRUTH_ABORTED)
            k.many.taken = 0
        if c != NULL and flags & FF_END_STREAM and c.more:
            c.more = False
            if c.state == CONNECTION_READING and size == 0 and c.read_size == c.seen:
                return self.end_call(c)
        if c != NULL and c.more and c.state != CONNECTION_READING:
            return self.reset_stream(k, id, CODE_CALM)          # a message before the answer to the one before
        if c == NULL or c.state != CONNECTION_READING:
            return 0                                # what was on its way when the stream was reset
        c.taken += framed
        if c.taken > self.connections.window and id > k.many.before_settings_id:
            return self.fail(k, CODE_FLOW_CONTROL)
        self.connections.keep(c, p, size)
        c.recv_last, c.recv_last_kernel = k.recv_last, k.recv_last_kernel
        if flags & FF_END_STREAM:
            return self.whole(c)
        if message_whole(c.read + c.seen, c.read_size - c.seen):
            c.more = True
            return self.whole(c)
        if c.read_size > HEAD_LIMIT + BODY_LIMIT:
            return self.reset_stream(k, id, CODE_CALM)
        if 2 * c.taken >= self.connections.window:
            if self.connections.put_code(k, FT_WINDOW_UPDATE, id, c.taken) == SENT_FAILED:
                return self.close(k, False, TRUTH_ABORTED)
            c.taken = 0
        return 0

    cdef int fields(self, Connection* k, uint8_t type, uint8_t flags, uint32_t id, const uint8_t* p, uint32_t size) except -1:
        """A head, or a part of one."""
        cdef Many* m = k.many
        cdef uint32_t skip = 0, padding = 0
        if type == FT_HEADERS:
            if flags & FF_PADDED:
                padding = p[0] if size else 1
                skip = 1
            if flags & FF_PRIORITY:
                skip += 5
            if skip + padding > size or id % 2 == 0:
                return self.fail(k, CODE_PROTOCOL)
            p += skip
            size -= skip + padding
            if flags & FF_END_HEADERS:
                return self.head(k, id, p, size, flags & FF_END_STREAM)
            m.block_stream = id
            m.block_ends = flags & FF_END_STREAM
            m.block_frames = 0
            carry_reset(&m.block, &m.block_size, &m.block_cap)
        elif not m.block_stream:
            return self.fail(k, CODE_PROTOCOL)
        m.block_frames += 1
        if m.block_size + size > HEAD_LIMIT or m.block_frames > BLOCK_FRAMES:
            return self.fail(k, CODE_CALM)
        if carry_add(&m.block, &m.block_size, &m.block_cap, p, size) < 0:
            raise MemoryError("no memory for the head of a request")
        if not flags & FF_END_HEADERS:
            return 0
        m.block_stream = 0
        return self.head(k, id, m.block, m.block_size, m.block_ends)

    cdef int head(self, Connection* k, uint32_t id, const uint8_t* block, size_t size, bint ends) except -1:
        cdef Connection* c = self.connections.find(k, id)
        try:
            text = self.request_text(k, block, size)        # of every head: the decoder's table depends on each
        except HPACKError:
            return self.fail(k, CODE_COMPRESSION)
        if c != NULL:                                       # trailers
            if not ends or c.state != CONNECTION_READING:
                return self.fail(k, CODE_PROTOCOL)
            return self.whole(c)
        if id <= k.many.last_id or k.many.leaving:
            return 0
        k.many.last_id = id
        if k.many.count >= k.many.most:
            return self.reset_stream(k, id, CODE_REFUSED_STREAM)
        if text is None:
            return self.reset_stream(k, id, CODE_PROTOCOL)
        c = self.connections.open(k, id)
        c.recv_first, c.recv_first_kernel = k.recv_last, k.recv_last_kernel
        c.recv_last, c.recv_last_kernel = k.recv_last, k.recv_last_kernel
        self.connections.keep(c, <const uint8_t*><const char*>text, <size_t>len(text))
        c.seen = <size_t>len(text)
        return self.whole(c) if ends else 0

    cdef bytes request_text(self, Connection* k, const uint8_t* block, size_t size):
        """The head as HTTP/1.1 has it; None: it is malformed (RFC 9113 8.2, 8.3)."""
        pseudo = {}
        lines = [b""]
        for name, value in self.decoders[k.number].decode((<const char*>block)[:size], raw=True):
            if name[:1] == b":":
                if name not in PSEUDO or name in pseudo or len(lines) > 1:
                    return None
                pseudo[name] = value
            elif name in FORBIDDEN or name != name.lower():
                return None
            else:
                lines.append(b"%b: %b\r\n" % (name, value))
            if b"\n" in value or b"\r" in value or b"\0" in value:
                return None
        lines[0] = b"%b %b HTTP/1.1\r\n" % (pseudo.get(b":method", b""), pseudo.get(b":path", b""))
        return b"".join(lines) + b"\r\n"

    cdef int whole(self, Connection* c) except -1:
        """A request is complete."""
        cdef Request r
        cdef uint32_t generation = c.generation
        request_read(&r, c.read, c.seen)
        self.arrival = c.recv_last
        if not r.refusal and r.has_length and r.length != c.read_size - c.seen:
            return self.reset_stream(c.carrier, c.stream, CODE_PROTOCOL)
        r.keep_alive = True
        if r.refusal:
            self.open_row(c, &r)
            self.refuse(c, r.refusal, "BadRequestError", "the request cannot be read", False)
        else:
            self.serve(c, &r, c.read + c.seen, c.read_size - c.seen)
        if c.generation == generation:
            if c.more:
                c.read_size = c.seen        # its head is that of the next message too
                return 0
            c.read_size = 0
            return self.connections.keep(c, c.read, 0)
        return 0
