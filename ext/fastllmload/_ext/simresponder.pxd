# Replies on the wire: heads, events, documents, and what faults do to them.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.simconnection cimport Connection, Connections
from fastllmload._ext.simform cimport Form, Usage
from fastllmload._ext.simtruth cimport Truth

cdef enum Outcome:
    GOING = 0               # more will follow
    COMPLETE = 1            # the reply is composed; bytes may still be queued in the connection
    CUT = 2                 # close the connection (FIN) once nothing is queued
    RESET = 3               # close it with RST, now
    LOST = 4                # the client is gone
    SILENT = 5              # nothing is answered, the connection stays open

cdef class Responder:
    cdef Connections connections
    cdef Truth truth
    cdef list forms                     # of Form; Reply.form is the index
    cdef int coalesce                   # tokens per write
    cdef bint early_head
    cdef uint8_t* scratch               # owned; one write is composed here
    cdef size_t scratch_size
    cdef bint queued                    # the last write did not leave whole
    cdef readonly uint64_t tokens       # written
    cdef int ensure(self, size_t size) except -1
    # The request is accepted and its Reply is filled: fault, framing, and the head when it goes early.
    cdef Outcome begin(self, Connection* c, int64_t now) except? LOST
    # Its sequence has new tokens.
    cdef Outcome progress(self, Connection* c, int64_t now) except? LOST
    # A whole reply of ready bytes: an error, a page.
    cdef Outcome page(self, Connection* c, bytes head, bytes body) except? LOST
    cdef Outcome write(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST
    cdef Outcome write_split(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST
    cdef int log(self, Connection* c, int64_t at, uint8_t kind) except -1
    cdef Outcome instead(self, Connection* c) except? LOST
    cdef int frame(self, Connection* c) except -1
    cdef uint8_t* put_head(self, Connection* c, uint8_t* out) except NULL
    cdef uint8_t* put_token(self, Connection* c, Form form, uint8_t* out, int64_t index, uint8_t* kind) except NULL
    cdef uint8_t* put_tail(self, Connection* c, uint8_t* out) except NULL
    cdef Outcome opening(self, Connection* c) except? LOST
    cdef Outcome burst(self, Connection* c, int64_t upto, bint all) except? LOST
    cdef Outcome strike(self, Connection* c, int64_t now) except? LOST
    cdef Outcome odd_event(self, Connection* c, bytes text, uint8_t kind) except? LOST
    cdef Outcome huge_event(self, Connection* c) except? LOST
    cdef Outcome huge_line(self, Connection* c) except? LOST
    cdef Outcome finish(self, Connection* c) except? LOST
    cdef Outcome document(self, Connection* c, int64_t now) except? LOST
    cdef Outcome send_document(self, Connection* c, uint8_t* start, uint8_t* end, int64_t now) except? LOST
    cdef int64_t stream_size(self, Connection* c) except -1
    cdef void usage_of(self, Connection* c, Usage* u) noexcept
