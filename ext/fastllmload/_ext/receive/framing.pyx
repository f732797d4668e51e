"""Framing: how responses lie on a connection. HTTP/1.1 is `http1.Http1`, HTTP/2 `http2.Http2`, WebSocket `websocket.WebSocket`.

What is above it (statuses, events, times) knows exchanges and their payload only, however many of them share a connection.
"""

from fastllmload._ext.bytes.carry cimport carry_free
from fastllmload._ext.receive.messages cimport socket_free
from fastllmload._ext.receive.multiplex cimport multiplex_free


cdef class Framing:
    cdef int open(self, Incoming* n, Exchange* x) except -1:
        raise NotImplementedError

    cdef FrameStep next(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED:
        raise NotImplementedError

    cdef FrameStep eof(self, Incoming* n, Frame* frame) except FRAME_RAISED:
        raise NotImplementedError


cdef void incoming_free(Incoming* n) noexcept nogil:
    carry_free(&n.held, &n.held_size, &n.held_cap)
    multiplex_free(n.many)
    n.many = NULL
    socket_free(n.socket)
    n.socket = NULL
