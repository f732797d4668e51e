"""HTTP/2: frames in, heads and payloads of exchanges out.

Payload of DATA frames is handed on where it lies in the read; every other frame is read whole, and is kept in `Incoming.held` when
it is split. What answers a frame is written to `Multiplex.out`. A frame that breaks the protocol ends the connection
(`_refuse`): each exchange on it fails, one `FRAME_FAILED` after the other, then comes `FRAME_ERROR`.

A stream is closed here when its message has ended or failed. One whose request ends before (with [DONE], or at a
deadline) is left by `leave` or `reset`.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.bytes.carry cimport carry_add, carry_reset
from fastllmload._ext.bytes.cursor cimport left, over
from fastllmload._ext.http.block cimport BLOCK_OK, BLOCK_TABLE, BLOCK_TOO_LARGE, BlockError
from fastllmload._ext.http.frames cimport (
    SET_ENABLE_PUSH, SET_INITIAL_WINDOW_SIZE, SET_MAX_CONCURRENT_STREAMS, SET_MAX_FRAME_SIZE,
)
from fastllmload._ext.http.response cimport CONTENT_GRPC
from fastllmload._ext.receive.exchange cimport exchange_fetch
from fastllmload._ext.receive.framing cimport (
    FRAME_END, FRAME_ERROR, FRAME_FAILED, FRAME_HEAD, FRAME_MORE, FRAME_PAYLOAD, FRAME_TRAILERS, IN_BODY, incoming_free,
)
from fastllmload._ext.receive.multiplex cimport (
    CODE_CALM, CODE_CANCEL, CODE_COMPRESSION, CODE_FLOW_CONTROL, CODE_FRAME_SIZE, CODE_PROTOCOL, CODE_REFUSED_STREAM,
    FF_ACK, FF_END_HEADERS, FF_END_STREAM, FF_PADDED, FF_PRIORITY, FRAME_HEADER, FT_CONTINUATION, FT_DATA, FT_GOAWAY, FT_HEADERS,
    FT_PING, FT_PRIORITY, FT_PUSH_PROMISE, FT_RST_STREAM, FT_SETTINGS, FT_WINDOW_UPDATE, MAX_FRAME, REPLIES_MOST, STREAM_LAST, TOP_UP,
    WINDOW_MOST, OpenStream, multiplex_free, multiplex_new, put_body, put_code, put_goaway, put_head, put_reply,
    put_sent, stream_close, stream_find, stream_open, window_closed,
)

cdef enum:
    MAX_BLOCK = 65536           # bytes of a head, as it comes
    MAX_BLOCK_FRAMES = 64       # and frames that it may come in: empty ones cost the peer nothing


cdef inline uint32_t number(const unsigned char* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline bint never_opened(const Multiplex* m, uint32_t id) noexcept nogil:
    """Frames may come late on a stream that is closed, but on no other."""
    return id == 0 or id % 2 == 0 or id >= m.next_id


cdef bint header_read(Multiplex* m, Cursor* c) noexcept nogil:
    """The header of the next frame is there whole, and is read."""
    cdef const unsigned char* at = c.at
    cdef size_t size
    if m.header_size == 0 and left(c) >= FRAME_HEADER:
        c.at += FRAME_HEADER
    else:
        size = min(left(c), <size_t>(FRAME_HEADER - m.header_size))
        memcpy(m.header + m.header_size, at, size)
        c.at += size
        m.header_size += <uint8_t>size
        if m.header_size < FRAME_HEADER:
            return False
        at = m.header
    m.header_size = FRAME_HEADER
    m.left = <uint32_t>at[0] << 16 | <uint32_t>at[1] << 8 | at[2]
    m.type = at[3]
    m.flags = at[4]
    m.stream = number(at + 5) & STREAM_LAST
    return True


cdef int http2_begin(Incoming* n) except -1:
    multiplex_free(n.many)
    n.many = multiplex_new()
    if n.many == NULL:
        raise MemoryError("an HTTP/2 connection")
    n.x = NULL
    n.state = IN_BODY
    carry_reset(&n.held, &n.held_size, &n.held_cap)
    return 0


cdef class Http2(Framing):
    def __cinit__(self):
        self.heads = BlockReader()

    cdef int open(self, Incoming* n, Exchange* x) except -1:
        x.read = 0
        return stream_open(n.many, x)

    cdef int reset(self, Incoming* n, Exchange* x, uint32_t code) except -1:
        cdef OpenStream* s = stream_find(n.many, x.stream)
        if s != NULL and s.x == x:
            if s.announced:             # else the server knows of no such stream
                put_code(n.many, FT_RST_STREAM, x.stream, code)
            stream_close(n.many, x.stream)
        return 0

    cdef int leave(self, Incoming* n, Exchange* x) except -1:
        cdef OpenStream* s = stream_find(n.many, x.stream)
        if s != NULL and s.x == x:
            s.x = NULL
        return 0

    cdef FrameStep next(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED:
        cdef Multiplex* m = n.many
        cdef FrameStep step
        while True:
            if m.error:
                step = self._failing(m, frame)
            elif m.ending:
                step = self._ended(m, frame)
            elif m.header_size < FRAME_HEADER:
                if not header_read(m, c):
                    return FRAME_MORE
                step = self._began(m)
            elif m.type == FT_DATA:
                step = self._data(m, c, frame)
            else:
                step = self._whole(n, c, frame)
            if step != <FrameStep>FRAME_AGAIN:
                return step

    cdef int end_tails(self, Incoming* n) except -1:
        cdef Multiplex* m = n.many
        cdef OpenStream* s
        cdef uint32_t i = 0
        while i <= m.mask:
            s = &m.streams[i]
            if s.id and s.x == NULL and s.old:
                put_code(m, FT_RST_STREAM, s.id, CODE_CANCEL)
                stream_close(m, s.id)               # another may have moved to its place
            else:
                s.old = s.id != 0 and s.x == NULL
                i += 1
        return 0

    cdef FrameStep eof(self, Incoming* n, Frame* frame) except FRAME_RAISED:
        cdef Multiplex* m = n.many
        if not m.error:
            m.error = r.ERROR_GOAWAY if m.leaving else r.ERROR_CLOSED_IN_BODY if m.settled else r.ERROR_NOT_HTTP2
            m.fail_above = 0
            m.broken = True
        return self._failing(m, frame)

    cdef FrameStep _refuse(self, Multiplex* m, uint8_t error, uint32_t code) except FRAME_RAISED:
        """The connection cannot go on."""
        put_goaway(m, code)
        m.error = error
        m.fail_above = 0
        m.broken = True
        m.code = 0
        return <FrameStep>FRAME_AGAIN

    cdef FrameStep _failing(self, Multiplex* m, Frame* frame) noexcept:
        """The next exchange that has failed with the connection, or with what the peer has left of it."""
        cdef uint32_t i = 0
        cdef OpenStream* s
        frame.error = m.error
        frame.code = m.code
        frame.size = 0
        while i <= m.mask:
            s = &m.streams[i]
            if s.id > m.fail_above:
                frame.x = s.x
                stream_close(m, s.id)
                if frame.x != NULL:
                    return FRAME_FAILED
                i = 0                       # others have moved
            else:
                i += 1
        if m.broken:
            return FRAME_ERROR
        m.error = r.ERROR_NONE
        return <FrameStep>FRAME_AGAIN

    cdef FrameStep _began(self, Multiplex* m) except FRAME_RAISED:
        """The header of a frame is read: whether it may come here."""
        cdef OpenStream* s
        if not m.settled and (m.type != FT_SETTINGS or m.flags & FF_ACK or m.left > MAX_FRAME):
            return self._refuse(m, r.ERROR_NOT_HTTP2, CODE_PROTOCOL)
        if m.left > MAX_FRAME:
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
        if m.block_stream and (m.type != FT_CONTINUATION or m.stream != m.block_stream):
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        if m.type != FT_DATA:
            return <FrameStep>FRAME_AGAIN
        if never_opened(m, m.stream):
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        m.padded = (m.flags & FF_PADDED) != 0
        m.padding = 0
        m.taken += m.left
        if m.taken >= TOP_UP:
            put_code(m, FT_WINDOW_UPDATE, 0, m.taken)
            m.taken = 0
        s = stream_find(m, m.stream)
        if s != NULL:
            if s.x != NULL:
                exchange_fetch(s.x)
            s.taken += m.left
            if s.taken >= TOP_UP:
                put_code(m, FT_WINDOW_UPDATE, m.stream, s.taken)
                s.taken = 0
        return <FrameStep>FRAME_AGAIN

    cdef FrameStep _data(self, Multiplex* m, Cursor* c, Frame* frame) except FRAME_RAISED:
        cdef OpenStream* s
        cdef size_t size
        if m.padded:
            if not left(c):
                if m.left:
                    return FRAME_MORE
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
            if m.left == 0 or c.at[0] >= m.left:
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL if m.left else CODE_FRAME_SIZE)
            m.padding = c.at[0]
            m.left -= 1 + m.padding
            m.padded = False
            c.at += 1
        size = min(left(c), <size_t>m.left)
        over(&frame.span, c.at, size)
        c.at += size
        m.left -= <uint32_t>size
        frame.size = <uint32_t>size
        if m.left == 0:
            size = min(left(c), <size_t>m.padding)
            c.at += size
            m.padding -= <uint32_t>size
            if m.padding == 0:
                m.header_size = 0
                if m.flags & FF_END_STREAM:
                    m.ending = m.stream
                    m.trailing = False
        s = stream_find(m, m.stream)
        if s != NULL and s.x != NULL and frame.size:
            if not s.headed:
                m.ending = 0
                put_code(m, FT_RST_STREAM, m.stream, CODE_PROTOCOL)
                return self._failed(m, m.stream, r.ERROR_BAD_FRAME, 0, frame)
            s.body += frame.size
            frame.x = s.x
            frame.ends = m.ending != 0
            return FRAME_PAYLOAD
        return FRAME_MORE if m.header_size else <FrameStep>FRAME_AGAIN

    cdef FrameStep _ended(self, Multiplex* m, Frame* frame) except FRAME_RAISED:
        """The message of a stream is over."""
        cdef uint32_t id = m.ending
        cdef OpenStream* s = stream_find(m, id)
        cdef bint headed, whole
        if m.trailing:
            m.trailing = False
            if s != NULL and s.x != NULL and s.grpc:
                return self._trailers(s, frame)
        m.ending = 0
        if s == NULL:
            return <FrameStep>FRAME_AGAIN
        if not s.sent:              # an answer to a request that is not there whole: no more of it is sent
            put_code(m, FT_RST_STREAM, id, CODE_CANCEL)
        headed = s.headed
        whole = s.length < 0 or s.body == 0 or s.body == <uint64_t>s.length     # without any: 304, or of HEAD
        if s.x == NULL or not headed or not whole:
            return self._failed(m, id, r.ERROR_CLOSED_IN_BODY if headed else r.ERROR_BAD_FRAME, 0, frame)
        frame.x = s.x
        frame.size = 0
        frame.reusable = not m.leaving
        stream_close(m, id)
        return FRAME_END

    cdef FrameStep _trailers(self, OpenStream* s, Frame* frame) except FRAME_RAISED:
        """What the latest block says of how a call ended: it is that of the stream that is over."""
        frame.x = s.x
        frame.size = 0
        frame.grpc_status = self.heads.said.grpc_status
        over(&frame.span, <const unsigned char*>self.heads.message, len(self.heads.message))
        return FRAME_TRAILERS

    cdef FrameStep _failed(self, Multiplex* m, uint32_t id, uint8_t error, uint32_t code, Frame* frame) except FRAME_RAISED:
        """The stream is closed; its exchange, if it still waits, has failed."""
        cdef OpenStream* s = stream_find(m, id)
        frame.x = NULL if s == NULL else s.x
        frame.error = error
        frame.code = code
        frame.size = 0
        stream_close(m, id)
        return <FrameStep>FRAME_AGAIN if frame.x == NULL else FRAME_FAILED

    # -- frames that are read whole -----------------------------------------------------------------------------------

    cdef FrameStep _whole(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED:
        cdef Multiplex* m = n.many
        cdef const unsigned char* p = c.at
        cdef size_t size = min(left(c), <size_t>(m.left - n.held_size))
        cdef FrameStep step
        if size < m.left:
            if carry_add(&n.held, &n.held_size, &n.held_cap, c.at, size) < 0:
                raise MemoryError(f"{m.left} bytes of a frame")
            p = n.held
        c.at += size
        if n.held_size < m.left and p == n.held:
            return FRAME_MORE
        m.header_size = 0
        if m.type == FT_HEADERS or m.type == FT_CONTINUATION:
            step = self._fields(m, p, m.left, frame)
        else:
            step = self._control(m, p, m.left, frame)
        n.held_size = 0
        return step

    cdef FrameStep _control(self, Multiplex* m, const unsigned char* p, uint32_t size, Frame* frame) except FRAME_RAISED:
        cdef bint of_stream = m.stream != 0
        if m.type == FT_PRIORITY or m.type > FT_CONTINUATION:
            return <FrameStep>FRAME_AGAIN       # nothing that a client needs, or an extension
        if m.type == FT_PUSH_PROMISE:           # they were refused
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        if m.type != FT_WINDOW_UPDATE and of_stream != (m.type == FT_RST_STREAM):
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        if m.type == FT_SETTINGS:
            return self._settings(m, p, size)
        if m.type == FT_PING:
            if size != 8:
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
            if not m.flags & FF_ACK:
                put_reply(m, FT_PING, FF_ACK, p, 8)
        elif m.type == FT_GOAWAY:
            if size < 8:
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
            m.leaving = True
            m.error = r.ERROR_GOAWAY
            m.fail_above = number(p) & STREAM_LAST
            m.code = number(p + 4)
        elif size != 4:
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
        elif m.type == FT_WINDOW_UPDATE:
            return self._window(m, number(p) & STREAM_LAST, frame)
        elif never_opened(m, m.stream):
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        else:
            return self._failed(m, m.stream,
                                r.ERROR_STREAM_REFUSED if number(p) == CODE_REFUSED_STREAM else r.ERROR_STREAM_RESET, number(p), frame)
        return self._refuse(m, r.ERROR_BAD_FRAME, CODE_CALM) if m.replies > REPLIES_MOST else <FrameStep>FRAME_AGAIN

    cdef FrameStep _settings(self, Multiplex* m, const unsigned char* p, uint32_t size) except FRAME_RAISED:
        cdef uint32_t i, at, value
        cdef int64_t grown
        if m.flags & FF_ACK:
            return <FrameStep>FRAME_AGAIN if size == 0 else self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
        if size % 6:
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FRAME_SIZE)
        for i in range(0, size, 6):
            value = number(p + i + 2)
            at = <uint32_t>p[i] << 8 | p[i + 1]
            if at == SET_ENABLE_PUSH and value > 0:         # a server may not say 1 (RFC 9113 6.5.2)
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
            elif at == SET_MAX_CONCURRENT_STREAMS:
                m.most = value
            elif at == SET_INITIAL_WINDOW_SIZE:
                if value > WINDOW_MOST:
                    return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FLOW_CONTROL)
                grown = <int64_t>value - m.window_first
                m.window_first = value
                for at in range(m.mask + 1):
                    m.streams[at].window += grown
                    if m.streams[at].id and m.streams[at].window > WINDOW_MOST:
                        return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FLOW_CONTROL)
            elif at == SET_MAX_FRAME_SIZE:
                if not MAX_FRAME <= value < 1 << 24:
                    return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
                m.frame_most = value
        m.settled = True
        put_reply(m, FT_SETTINGS, FF_ACK, p, 0)
        return self._refuse(m, r.ERROR_BAD_FRAME, CODE_CALM) if m.replies > REPLIES_MOST else <FrameStep>FRAME_AGAIN

    cdef FrameStep _window(self, Multiplex* m, uint32_t more, Frame* frame) except FRAME_RAISED:
        cdef OpenStream* s
        if m.stream == 0:
            m.window += more
            if more == 0 or m.window > WINDOW_MOST:
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_FLOW_CONTROL if more else CODE_PROTOCOL)
            return <FrameStep>FRAME_AGAIN
        if never_opened(m, m.stream):
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        s = stream_find(m, m.stream)
        if s == NULL:
            return <FrameStep>FRAME_AGAIN
        s.window += more
        if more == 0 or s.window > WINDOW_MOST:
            put_code(m, FT_RST_STREAM, m.stream, CODE_FLOW_CONTROL if more else CODE_PROTOCOL)
            return self._failed(m, m.stream, r.ERROR_BAD_FRAME, 0, frame)
        return <FrameStep>FRAME_AGAIN

    # -- heads --------------------------------------------------------------------------------------------------------

    cdef FrameStep _fields(self, Multiplex* m, const unsigned char* p, uint32_t size, Frame* frame) except FRAME_RAISED:
        """A HEADERS or CONTINUATION frame: a head, or a part of one."""
        cdef uint32_t skip = 0, padding = 0
        cdef FrameStep step
        if m.type == FT_HEADERS:
            if never_opened(m, m.stream):
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
            if m.flags & FF_PADDED and size:
                padding = p[0]
                skip = 1
            elif m.flags & FF_PADDED:
                padding = 1
            if m.flags & FF_PRIORITY:
                skip += 5
            if skip + padding > size:
                return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
            p += skip
            size -= skip + padding
            m.block_ends = m.flags & FF_END_STREAM
            m.block_frames = 0
            carry_reset(&m.block, &m.block_size, &m.block_cap)
            if m.flags & FF_END_HEADERS:
                return self._head(m, p, size, frame)
            m.block_stream = m.stream
        elif not m.block_stream:
            return self._refuse(m, r.ERROR_BAD_FRAME, CODE_PROTOCOL)
        m.block_frames += 1
        if m.block_size + size > MAX_BLOCK or m.block_frames > MAX_BLOCK_FRAMES:
            return self._refuse(m, r.ERROR_HEAD_TOO_LARGE, CODE_CALM)
        if carry_add(&m.block, &m.block_size, &m.block_cap, p, size) < 0:
            raise MemoryError(f"{m.block_size + size} bytes for the head of a response")
        if not m.flags & FF_END_HEADERS:
            return <FrameStep>FRAME_AGAIN
        m.block_stream = 0
        step = self._head(m, m.block, m.block_size, frame)
        carry_reset(&m.block, &m.block_size, &m.block_cap)
        return step

    cdef FrameStep _head(self, Multiplex* m, const unsigned char* block, size_t size, Frame* frame) except FRAME_RAISED:
        cdef OpenStream* s = stream_find(m, m.stream)
        cdef BlockError error
        if s == NULL or s.x == NULL or s.headed:        # no block depends on another: one without a request is not decoded
            if s != NULL and s.headed and not m.block_ends:         # trailers are the last of a message
                put_code(m, FT_RST_STREAM, m.stream, CODE_PROTOCOL)
                return self._failed(m, m.stream, r.ERROR_BAD_FRAME, 0, frame)
            m.ending = m.stream if m.block_ends else 0
            if s != NULL and s.x != NULL and s.grpc:
                error = self.heads.read(block, size, True)
                if error != BLOCK_OK:
                    m.ending = 0
                    return self._refuse_block(m, error, frame)
                m.trailing = True
            return <FrameStep>FRAME_AGAIN
        error = self.heads.read(block, size)
        if error != BLOCK_OK:
            return self._refuse_block(m, error, frame)
        if self.heads.said.status == 101 or (self.heads.said.status < 200 and m.block_ends):
            put_code(m, FT_RST_STREAM, m.stream, CODE_PROTOCOL)
            return self._failed(m, m.stream, r.ERROR_BAD_HEAD, 0, frame)
        if self.heads.said.status < 200:
            return <FrameStep>FRAME_AGAIN
        s.headed = True
        s.grpc = self.heads.said.content == CONTENT_GRPC
        m.trailing = s.grpc and m.block_ends
        s.length = self.heads.said.length
        m.ending = m.stream if m.block_ends else 0
        frame.x = s.x
        over(&frame.span, block, size)          # holds until the next frame
        frame.size = <uint32_t>size
        frame.status = <uint16_t>self.heads.said.status
        frame.content = self.heads.said.content
        frame.encoded = self.heads.said.encoded
        frame.retry_after_ms = self.heads.said.retry_after_ms
        frame.wanted = &self.heads.wanted
        return FRAME_HEAD

    cdef FrameStep _refuse_block(self, Multiplex* m, BlockError error, Frame* frame) except FRAME_RAISED:
        if error == BLOCK_TABLE:
            return self._refuse(m, r.ERROR_HEADER_TABLE, CODE_COMPRESSION)
        if error == BLOCK_TOO_LARGE:
            return self._refuse(m, r.ERROR_HEAD_TOO_LARGE, CODE_CALM)
        put_code(m, FT_RST_STREAM, m.stream, CODE_PROTOCOL)
        return self._failed(m, m.stream, r.ERROR_BAD_HEAD, 0, frame)


cdef enum:
    MOST = 256              # exchanges of a StreamReader


cdef class StreamReader:
    """The exchanges on one HTTP/2 connection without anything above or below: for tests, and for one request at a time.

    ``feed(data)`` returns steps: (exchange, word, what). Exchanges are numbers in the order of ``open()``.
    """

    cdef Http2 framing
    cdef Incoming n
    cdef Exchange* x
    cdef int count
    cdef readonly bytes block           # of the latest head, as it came

    def __cinit__(self):
        memset(&self.n, 0, sizeof(self.n))
        self.framing = Http2()
        self.x = <Exchange*>calloc(MOST, sizeof(Exchange))
        if self.x == NULL:
            raise MemoryError("exchanges")
        http2_begin(&self.n)

    def __dealloc__(self):
        incoming_free(&self.n)
        free(self.x)

    def open(self) -> int:
        if self.count == MOST:
            raise ValueError(f"a StreamReader has {MOST} exchanges")
        self.framing.open(&self.n, &self.x[self.count])
        self.count += 1
        return self.count - 1

    def send(self, int number, bytes head not None, bytes body not None) -> int:
        """A request's head, or nothing for one that was sent before, and of its body what the peer takes now: how much."""
        if head:
            put_head(self.n.many, &self.x[number], <const char*>head, len(head), b"", 0, not body)
        return put_body(self.n.many, &self.x[number], <const char*>body, len(body), True)

    def waits(self, int number) -> bool:
        """The peer's window lets no byte of the body through."""
        return window_closed(self.n.many, &self.x[number])

    def out(self, size_t most=1 << 30) -> bytes:
        """Bytes to be sent, at most that many; they are gone then."""
        cdef Multiplex* m = self.n.many
        cdef size_t size = min(most, m.out_size - m.out_at)
        data = m.out[m.out_at:m.out_at + size] if size else b""
        put_sent(m, size)
        return data

    def reset(self, int number) -> None:
        self.framing.reset(&self.n, &self.x[number], CODE_CANCEL)

    def leave(self, int number) -> None:
        self.framing.leave(&self.n, &self.x[number])

    def end_tails(self) -> None:
        self.framing.end_tails(&self.n)

    @property
    def settled(self) -> bool:
        """The peer's SETTINGS have come."""
        return self.n.many.settled

    @property
    def streams(self) -> int:
        """Open ones."""
        return self.n.many.open

    @property
    def most(self) -> int:
        """That the peer takes at once."""
        return self.n.many.most

    @property
    def heads_known(self) -> int:
        """Heads that were equal to one before."""
        return self.framing.heads.by_equality

    def feed(self, const unsigned char[::1] data not None) -> list:
        cdef Cursor c
        over(&c, &data[0] if len(data) else NULL, len(data))
        return self._steps(&c)

    def eof(self) -> list:
        return self._steps(NULL)

    cdef list _steps(self, Cursor* c):
        cdef Frame frame
        cdef FrameStep step
        found = []
        while True:
            step = self.framing.eof(&self.n, &frame) if c == NULL else self.framing.next(&self.n, c, &frame)
            if step == FRAME_MORE:
                return found
            if step == FRAME_ERROR:
                found.append((-1, "error", frame.error))
                return found
            number = <int>(frame.x - self.x)
            if step == FRAME_HEAD:
                self.block = frame.span.at[:left(&frame.span)]
                found.append((number, "head", (frame.status, frame.content, frame.encoded, frame.retry_after_ms)))
            elif step == FRAME_PAYLOAD:
                found.append((number, "payload", frame.span.at[:left(&frame.span)]))
            elif step == FRAME_TRAILERS:
                found.append((number, "trailers", (frame.grpc_status, frame.span.at[:left(&frame.span)])))
            elif step == FRAME_END:
                found.append((number, "end", frame.reusable))
            else:
                found.append((number, "failed", (frame.error, frame.code)))
