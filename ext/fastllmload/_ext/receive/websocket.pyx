"""WebSocket: frames in, whole messages out, and answers to control frames.

A message that comes in one frame and one read is handed on where it lies in the read; any other is put together in
`Socket.message`. Control frames may come between its frames. What is to be sent is in `Socket.out`. A server's frame that breaks the
protocol ends the connection, as its close frame does; a close frame answers both.
"""

from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy, memset

cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.bytes.carry cimport carry_add, carry_reset
from fastllmload._ext.bytes.cursor cimport left, over
from fastllmload._ext.receive.framing cimport FRAME_ERROR, FRAME_MORE, FRAME_PAYLOAD, IN_MESSAGES, incoming_free
from fastllmload._ext.receive.messages cimport (
    CLOSE_NONE, CLOSE_NORMAL, CLOSE_PROTOCOL, CLOSE_TOO_BIG, CONTROL_MOST, MESSAGE_HEADER, OP_BINARY, OP_CLOSE, OP_CONTINUATION, OP_PING,
    OP_PONG, has_replies, put_close, put_control, replies_sent, socket_new,
)

cdef enum:
    REPLIES_MOST = 16384        # bytes of answers that a peer may leave unread
    RESERVED = 0x70
    MASKED = 0x80
    FRAME_AGAIN = 64            # private: a frame was read of which the caller need not know


cdef inline int header_bytes(uint8_t second) noexcept nogil:
    cdef uint8_t size = second & 0x7F
    return 2 if size <= CONTROL_MOST else 4 if size == 126 else MESSAGE_HEADER


cdef bint header_read(Socket* s, Cursor* c) noexcept nogil:
    """The header of the next frame is there whole, and is read."""
    cdef const unsigned char* at = c.at
    cdef int i, size
    if s.header_size == 0 and left(c) >= 2 and left(c) >= <size_t>header_bytes(at[1]):
        size = header_bytes(at[1])
        c.at += size
    else:
        while s.header_size < 2 or s.header_size < header_bytes(s.header[1]):
            if left(c) == 0:
                return False
            s.header[s.header_size] = c.at[0]
            s.header_size += 1
            c.at += 1
        at = s.header
        size = s.header_size
    s.header_size = 0
    s.header[0] = at[0]
    s.header[1] = at[1]
    s.opcode = at[0] & 0x0F
    s.final = at[0] >> 7
    s.left = at[1] & 0x7F
    if size == 4:
        s.left = <uint64_t>at[2] << 8 | at[3]
    elif size > 4:
        s.left = 0
        for i in range(2, size):
            s.left = s.left << 8 | at[i]
    return True


cdef inline uint8_t wrong(const Socket* s, size_t limit) noexcept nogil:
    """The error of a frame by its header; *limit*: bytes of a message."""
    if s.header[0] & RESERVED or s.header[1] & MASKED:
        return r.ERROR_BAD_FRAME
    if s.opcode >= OP_CLOSE:
        return r.ERROR_NONE if s.opcode <= OP_PONG and s.final and s.left <= CONTROL_MOST else r.ERROR_BAD_FRAME
    if s.opcode > OP_BINARY or (s.opcode == OP_CONTINUATION) != s.continues:
        return r.ERROR_BAD_FRAME
    return r.ERROR_EVENT_TOO_LARGE if s.left > limit - s.message_size else r.ERROR_NONE


cdef class WebSocket(Framing):
    """*limit*: bytes of a message. *accept*: what a server has to answer to the key of all upgrades (RFC 6455 4.2.2)."""

    def __init__(self, size_t limit):
        self.limit = limit
        self.accept = b""

    cdef bint accepts(self, const Cursor* head) except -1:
        for line in (<const char*>head.at)[: head.end - head.at].split(b"\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-accept":
                return value.strip() == self.accept
        return False

    cdef bint between(self, const Socket* s) noexcept:
        return not s.continues and not (s.in_payload and s.opcode < OP_CLOSE)

    cdef int open(self, Incoming* n, Exchange* x) except -1:
        n.x = x
        n.now.t = 0
        return 0

    cdef FrameStep next(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED:
        cdef Socket* s = n.socket
        cdef size_t size
        cdef uint8_t error
        cdef bint whole
        cdef FrameStep step
        frame.x = n.x
        frame.code = 0
        while True:
            if not s.in_payload:
                if not header_read(s, c):
                    return FRAME_MORE
                error = wrong(s, self.limit)
                if error:
                    return self._refuse(s, frame, error, CLOSE_TOO_BIG if error == r.ERROR_EVENT_TOO_LARGE else CLOSE_PROTOCOL)
                s.in_payload = True
                s.control_size = 0
                if s.message_size == 0:
                    carry_reset(&s.message, &s.message_size, &s.message_cap)
            size = left(c) if left(c) < s.left else <size_t>s.left
            whole = size == s.left
            over(&frame.span, c.at, size)
            c.at += size
            s.left -= size
            s.in_payload = not whole
            if s.opcode >= OP_CLOSE:
                memcpy(s.control + s.control_size, frame.span.at, size)
                s.control_size += <uint8_t>size
                if not whole:
                    return FRAME_MORE
                step = self._control(s, frame)
                if step != <FrameStep>FRAME_AGAIN:
                    return step
                continue
            s.continues = not s.final
            if whole and s.final and s.message_size == 0:
                return FRAME_PAYLOAD
            if carry_add(&s.message, &s.message_size, &s.message_cap, frame.span.at, size) < 0:
                raise MemoryError(f"{s.message_size + size} bytes of a message")
            if not whole:
                return FRAME_MORE
            if s.final:
                over(&frame.span, s.message, s.message_size)
                s.message_size = 0          # it stays where it is until the next frame
                return FRAME_PAYLOAD

    cdef FrameStep _control(self, Socket* s, Frame* frame) except FRAME_RAISED:
        cdef uint16_t code = CLOSE_NONE
        if s.opcode == OP_PING:
            put_control(s, OP_PONG, s.control, s.control_size)
            if s.out_size - s.out_at > REPLIES_MOST:
                return self._refuse(s, frame, r.ERROR_BAD_FRAME, CLOSE_PROTOCOL)
        elif s.opcode == OP_CLOSE:
            if s.control_size == 1:
                return self._refuse(s, frame, r.ERROR_BAD_FRAME, CLOSE_PROTOCOL)
            if s.control_size:
                code = <uint16_t>(s.control[0] << 8 | s.control[1])
            frame.code = code
            return self._refuse(s, frame, r.ERROR_CLOSE_FRAME, <CloseCode>code)
        return <FrameStep>FRAME_AGAIN

    cdef FrameStep _refuse(self, Socket* s, Frame* frame, uint8_t error, CloseCode code) except FRAME_RAISED:
        """Nothing that follows is read."""
        frame.error = error
        put_close(s, <uint16_t>code)
        return FRAME_ERROR

    cdef FrameStep eof(self, Incoming* n, Frame* frame) except FRAME_RAISED:
        frame.x = n.x
        frame.error = r.ERROR_CLOSED_IN_BODY
        frame.code = 0
        return FRAME_ERROR


cdef class MessageReader:
    """Messages of one connection after its upgrade, without anything above or below: for tests, and for one request at a time."""

    cdef WebSocket framing
    cdef Incoming n
    cdef readonly int error             # ErrorClass: no more can be read; 0: none
    cdef readonly int code              # that the peer closed with; 0: it did not

    def __cinit__(self, size_t limit=1 << 23):
        memset(&self.n, 0, sizeof(self.n))
        self.framing = WebSocket(limit)
        self.n.socket = socket_new()
        self.n.state = IN_MESSAGES

    def __dealloc__(self):
        incoming_free(&self.n)

    def feed(self, const unsigned char[::1] data not None) -> list:
        """The messages that *data* completes."""
        cdef Cursor c
        cdef Frame frame
        cdef FrameStep step = FRAME_PAYLOAD
        found = []
        over(&c, &data[0] if len(data) else NULL, len(data))
        while step == FRAME_PAYLOAD and not self.error:
            step = self.framing.next(&self.n, &c, &frame)
            if step == FRAME_PAYLOAD:
                found.append(frame.span.at[: left(&frame.span)])
            elif step == FRAME_ERROR:
                self.error, self.code = frame.error, <int>frame.code
        return found

    def out(self) -> bytes:
        """What is to be sent; it is gone then."""
        cdef Socket* s = self.n.socket
        data = s.out[s.out_at : s.out_size] if has_replies(s) else b""
        replies_sent(s, s.out_size - s.out_at)
        return data

    def close(self, uint16_t code=CLOSE_NORMAL) -> None:
        put_close(self.n.socket, code)
