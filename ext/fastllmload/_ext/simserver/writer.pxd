# Bytes on their way to the socket: one scratch buffer, one send, one stamp.
from libc.stdint cimport int64_t, uint8_t

from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.simserver.streams cimport Streams
from fastllmload._ext.simserver.truth cimport Truth

cdef enum Outcome:
    GOING = 0               # more will follow
    COMPLETE = 1            # the reply is composed; bytes may still be queued in the connection
    CUT = 2                 # close the connection (FIN) once nothing is queued
    RESET = 3               # close it with RST, now
    LOST = 4                # the client is gone
    SILENT = 5              # nothing is answered, the connection stays open
    LEFT_OUT = 6            # HTTP/2: GOAWAY that leaves out this stream and later ones

cdef bytes CALL_OK, CALL_FAILED             # gRPC: trailers of a call that succeeded, and of one that failed
cdef int CALL_INTERNAL                      # its status
cdef bytes GARBAGE                          # no record of TLS

cdef class Writer:
    cdef Streams connections
    cdef Truth truth
    cdef uint8_t* memory                # owned
    cdef uint8_t* scratch               # in it, after FRONT bytes; one write is composed here
    cdef size_t scratch_size
    cdef bint queued                    # the last write did not leave whole
    cdef uint8_t[1024] fields           # of a head with a length
    cdef int64_t sent                   # when its send() had returned; of a log only
    cdef int ensure(self, size_t size) except -1
    # From *start* to *end*; *at* is the instant just before the send() of the last of it.
    cdef Outcome write(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST
    cdef Outcome write_split(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST
    # HTTP/2: the head that goes before the next bytes; *length*: Content-Length, -1: not said.
    cdef int set_head(self, Connection* c, bytes block, int64_t length) except -1
    cdef int log(self, Connection* c, int64_t at, uint8_t kind) except -1
    # gRPC: how the call ends when its last bytes have left.
    cdef int set_trailers(self, Connection* c, bytes block, int status) except -1
    # gRPC: a reply that is nothing but a status.
    cdef Outcome refuse_call(self, Connection* c, int http_status, str message) except? LOST
    # A whole reply of ready bytes: an error, a page.
    cdef Outcome page(self, Connection* c, bytes head, bytes body) except? LOST
