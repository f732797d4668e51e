# WebSocket (RFC 6455): one exchange after the other on a connection, events in messages. It begins with an upgrade in HTTP/1.1.
cimport cython
from libc.stdint cimport uint8_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.receive.exchange cimport Exchange
from fastllmload._ext.receive.framing cimport FRAME_RAISED, Frame, FrameStep, Framing, Incoming
from fastllmload._ext.receive.messages cimport CloseCode, Socket

@cython.final
cdef class WebSocket(Framing):
    # One per worker. A payload is a whole message; the protocol above knows which is the last of an exchange.
    cdef size_t limit               # bytes of a message
    cdef bytes accept               # that a server has to answer to the key of all upgrades
    cdef bint accepts(self, const Cursor* head) except -1       # the head of a 101
    cdef bint between(self, const Socket* s) noexcept           # no message has begun
    cdef FrameStep _control(self, Socket* s, Frame* frame) except FRAME_RAISED
    cdef FrameStep _refuse(self, Socket* s, Frame* frame, uint8_t error, CloseCode code) except FRAME_RAISED
