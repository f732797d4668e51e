# Bytes on their way to the socket: one scratch buffer, one send, one stamp.
from libc.stdint cimport int64_t, uint8_t

from fastllmload._ext.simserver.connection cimport Connection, Connections
from fastllmload._ext.simserver.truth cimport Truth

cdef enum Outcome:
    GOING = 0               # more will follow
    COMPLETE = 1            # the reply is composed; bytes may still be queued in the connection
    CUT = 2                 # close the connection (FIN) once nothing is queued
    RESET = 3               # close it with RST, now
    LOST = 4                # the client is gone
    SILENT = 5              # nothing is answered, the connection stays open

cdef bytes GARBAGE                          # no record of TLS

cdef class Writer:
    cdef Connections connections
    cdef Truth truth
    cdef uint8_t* scratch               # owned; one write is composed here
    cdef size_t scratch_size
    cdef bint queued                    # the last write did not leave whole
    cdef int64_t sent                   # when its send() had returned; of a log only
    cdef int ensure(self, size_t size) except -1
    # From *start* to *end*; *at* is the instant just before the send() of the last of it.
    cdef Outcome write(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST
    cdef Outcome write_split(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST
    cdef int log(self, Connection* c, int64_t at, uint8_t kind) except -1
    # A whole reply of ready bytes: an error, a page.
    cdef Outcome page(self, Connection* c, bytes head, bytes body) except? LOST
