"""HTTP/1.1: heads are httptools' (`HeadReader`), the framing of bodies is found in C (`Body`)."""

from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memcmp

cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.bytes.carry cimport carry_add, carry_reset
from fastllmload._ext.bytes.cursor cimport left, over
from fastllmload._ext.http.chunkline cimport AT_COMPLETE
from fastllmload._ext.http.response cimport (
    BODY_END, BODY_ERROR, BODY_NEED, BODY_SPAN, HEAD_OK, BodyStep, Framing as BodyFraming, body_begin, body_eof, body_next,
    head_size,
)
from fastllmload._ext.receive.exchange cimport Exchange
from fastllmload._ext.receive.framing cimport (
    FRAME_END, FRAME_ERROR, FRAME_HEAD, FRAME_MORE, FRAME_PAYLOAD, FRAME_UPGRADED, IN_BODY, IN_HEAD, IN_IDLE, IN_MESSAGES,
)

cdef enum:
    MAX_HEAD = 65536            # a longer response head is refused, with the interim ones before it too


cdef FrameStep refused(Frame* frame, uint8_t error) noexcept nogil:
    frame.error = error
    return FRAME_ERROR


cdef class Http1(Framing):
    def __cinit__(self):
        self.head = HeadReader()

    cdef int open(self, Incoming* n, Exchange* x) except -1:
        n.x = x
        n.state = IN_HEAD
        n.now.t = 0
        n.head_bytes = 0
        carry_reset(&n.held, &n.held_size, &n.held_cap)
        return 0

    cdef FrameStep next(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED:
        cdef BodyStep step
        frame.x = n.x
        if n.state == IN_HEAD:
            return self._head(n, c, frame)
        step = body_next(&n.body, c, &frame.span)
        if step == BODY_SPAN:
            frame.ends = n.body.state == AT_COMPLETE
            return FRAME_PAYLOAD
        if step == BODY_NEED:
            return FRAME_MORE
        if step == BODY_ERROR:
            return refused(frame, r.ERROR_BAD_CHUNK)
        n.state = IN_IDLE
        frame.reusable = n.keep_alive and not left(c)
        return FRAME_END

    cdef FrameStep _head(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED:
        """Read heads up to and with the final one: 100 Continue and 103 Early Hints may come before it."""
        cdef const unsigned char* head
        cdef size_t before, size
        cdef bint known
        while left(c):
            head = c.at
            before = n.held_size
            known = False
            if before:
                self._hold(n, c)
                head = n.held
                size = head_size(head, n.held_size, before)
            else:
                size = self.head.like(head, left(c))
                known = size > 0
                if not known:
                    size = head_size(head, left(c), 0)
            if size == 0:
                if not before:
                    self._hold(n, c)
                c.at = c.end
                return refused(frame, r.ERROR_HEAD_TOO_LARGE) if n.held_size == MAX_HEAD else FRAME_MORE
            c.at += size - before
            n.held_size = 0
            n.head_bytes += size
            if size > MAX_HEAD:
                return refused(frame, r.ERROR_HEAD_TOO_LARGE)
            if not known and self.head.read(head, size) != HEAD_OK:
                return refused(frame, r.ERROR_BAD_HEAD)
            if self.head.upgrade:
                if n.socket == NULL:
                    return refused(frame, r.ERROR_BAD_HEAD)
                n.state = IN_MESSAGES
                over(&frame.span, head, size)
                return FRAME_UPGRADED
            if self.head.status >= 200:
                n.state = IN_BODY
                n.keep_alive = self.head.keep_alive
                body_begin(&n.body, <BodyFraming>self.head.framing, self.head.length)
                frame.status = <uint16_t>self.head.status
                frame.content = <uint8_t>self.head.content
                frame.encoded = self.head.encoded
                frame.retry_after_ms = self.head.retry_after_ms
                frame.wanted = &self.head.wanted
                return FRAME_HEAD
            if n.head_bytes > MAX_HEAD:
                return refused(frame, r.ERROR_HEAD_TOO_LARGE)
        return FRAME_MORE

    cdef int _hold(self, Incoming* n, Cursor* c) except -1:
        """Keep a partial head, as far as it may be long."""
        cdef size_t size = min(left(c), <size_t>MAX_HEAD - n.held_size)
        if carry_add(&n.held, &n.held_size, &n.held_cap, c.at, size) < 0:
            raise MemoryError(f"{n.held_size + size} bytes for the head of a response")
        return 0

    cdef FrameStep eof(self, Incoming* n, Frame* frame) except FRAME_RAISED:
        frame.x = n.x
        frame.error = r.ERROR_CLOSED_IN_BODY
        if n.state == IN_BODY:
            return FRAME_END if body_eof(&n.body) == BODY_END else FRAME_ERROR
        if n.held_size and memcmp(n.held, b"HTTP/", min(n.held_size, <size_t>5)) != 0:
            frame.error = r.ERROR_BAD_HEAD
        return FRAME_ERROR
