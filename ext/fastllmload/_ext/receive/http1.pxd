# HTTP/1.1: one response after the other on a connection.
cimport cython

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.http.response cimport HeadReader
from fastllmload._ext.receive.framing cimport FRAME_RAISED, Frame, FrameStep, Framing, Incoming

@cython.final
cdef class Http1(Framing):
    # One per worker: what a connection's bytes are in the middle of lies in its Incoming.
    cdef HeadReader head
    cdef FrameStep _head(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED
    cdef int _hold(self, Incoming* n, Cursor* c) except -1
