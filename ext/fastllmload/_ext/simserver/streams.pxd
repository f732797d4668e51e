# HTTP/2 of the simulated engine, towards the client: streams on connections, and what is sent on them, in frames.
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.http.frames cimport FrameType
from fastllmload._ext.simserver.connection cimport SENT_FAILED, Connection, Connections, Sent

cdef enum:
    FRONT = 1024                # bytes before what send() is given: of a stream, frame headers and its head are written there
    BACK = 128                  # ... and after it: trailers

cdef class Streams(Connections):
    cdef uint32_t most          # streams of a connection
    cdef uint32_t window        # that the body of a request begins with; 0: none is ever taken
    cdef uint8_t* composed      # one frame; owned
    cdef int begin(self, Connection* k) except -1           # it has sent the preface
    cdef Connection* open(self, Connection* k, uint32_t id) except NULL
    cdef Connection* find(self, Connection* k, uint32_t id) noexcept        # NULL: it is closed
    cdef Sent put(self, Connection* k, FrameType type, uint8_t flags, uint32_t id, const void* payload,
                  size_t size) except? SENT_FAILED          # a frame, without regard to windows
    cdef Sent put_code(self, Connection* k, FrameType type, uint32_t id, uint32_t code) except? SENT_FAILED
    cdef Sent put_goaway(self, Connection* k, uint32_t last, uint32_t code) except? SENT_FAILED
    cdef Sent put_head(self, Connection* c) except? SENT_FAILED
    cdef Sent put_trailers(self, Connection* c) except? SENT_FAILED
    cdef Sent put_large(self, Connection* c) except? SENT_FAILED            # a frame that the client must refuse
    cdef Sent end(self, Connection* c) except? SENT_FAILED                  # nothing more is written to the stream
    cdef size_t allowed(self, Connection* c, size_t size) noexcept
    cdef Sent flood(self, Connection* c) except? SENT_FAILED
