# HTTP/2 (RFC 9113): many exchanges on a connection, each in a stream of frames.
cimport cython
from libc.stdint cimport uint8_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.http.block cimport BlockError, BlockReader
from fastllmload._ext.receive.exchange cimport Exchange
from fastllmload._ext.receive.framing cimport FRAME_RAISED, Frame, FrameStep, Framing, Incoming
from fastllmload._ext.receive.multiplex cimport Multiplex, OpenStream

cdef enum:
    FRAME_AGAIN = 64        # private: a frame was read of which the caller need not know

cdef int http2_begin(Incoming* n) except -1         # a connection of HTTP/2: what it says first is to be sent

@cython.final
cdef class Http2(Framing):
    # One per worker: what a connection's bytes are in the middle of lies in its Incoming.
    cdef BlockReader heads
    # The exchange needs no more of its response: its stream ends with *code*.
    cdef int reset(self, Incoming* n, Exchange* x, uint32_t code) except -1
    cdef int leave(self, Incoming* n, Exchange* x) except -1    # the same, but the rest of its message is read, and dropped
    cdef int end_tails(self, Incoming* n) except -1             # messages without a request, since the call before this one
    cdef FrameStep _failing(self, Multiplex* m, Frame* frame) noexcept
    cdef FrameStep _began(self, Multiplex* m) except FRAME_RAISED
    cdef FrameStep _data(self, Multiplex* m, Cursor* c, Frame* frame) except FRAME_RAISED
    cdef FrameStep _trailers(self, OpenStream* s, Frame* frame) except FRAME_RAISED
    cdef FrameStep _refuse_block(self, Multiplex* m, BlockError error, Frame* frame) except FRAME_RAISED
    cdef FrameStep _ended(self, Multiplex* m, Frame* frame) except FRAME_RAISED
    cdef FrameStep _whole(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED
    cdef FrameStep _control(self, Multiplex* m, const unsigned char* p, uint32_t size, Frame* frame) except FRAME_RAISED
    cdef FrameStep _settings(self, Multiplex* m, const unsigned char* p, uint32_t size) except FRAME_RAISED
    cdef FrameStep _window(self, Multiplex* m, uint32_t more, Frame* frame) except FRAME_RAISED
    cdef FrameStep _fields(self, Multiplex* m, const unsigned char* p, uint32_t size, Frame* frame) except FRAME_RAISED
    cdef FrameStep _head(self, Multiplex* m, const unsigned char* block, size_t size, Frame* frame) except FRAME_RAISED
    cdef FrameStep _failed(self, Multiplex* m, uint32_t id, uint8_t error, uint32_t code, Frame* frame) except FRAME_RAISED
    cdef FrameStep _refuse(self, Multiplex* m, uint8_t error, uint32_t code) except FRAME_RAISED
