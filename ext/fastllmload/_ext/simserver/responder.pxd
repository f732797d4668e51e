# Replies on the wire: heads, events, documents, and what faults do to them.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.simbody.form cimport Form
from fastllmload._ext.simserver.writer cimport LOST, Outcome, Writer

cdef class Responder(Writer):
    cdef list forms                     # of Form; Reply.form is the index
    cdef int coalesce                   # tokens per write
    cdef bint early_head
    cdef readonly uint64_t tokens       # written
    # The request is accepted and its Reply is filled: fault, framing, and the head when it goes early.
    cdef Outcome begin(self, Connection* c, int64_t now) except? LOST
    # Its sequence has new tokens.
    cdef Outcome progress(self, Connection* c, int64_t now) except? LOST
    cdef Outcome give_up(self, Connection* c) except? LOST
    cdef Outcome instead(self, Connection* c) except? LOST
    cdef Outcome instead_of_all(self, Connection* c) except? LOST
    cdef int frame(self, Connection* c) except -1
    cdef uint8_t* put_head(self, Connection* c, uint8_t* out) except NULL
    cdef uint8_t* put_token(self, Connection* c, Form form, uint8_t* out, int64_t index, uint8_t* kind) except NULL
    cdef uint8_t* put_tokens(self, Connection* c, Form form, uint8_t* out, int64_t index) noexcept
    cdef uint8_t* put_tail(self, Connection* c, uint8_t* out) noexcept
    cdef Outcome opening(self, Connection* c) except? LOST
    cdef Outcome burst(self, Connection* c, int64_t upto, bint all) except? LOST
    cdef Outcome strike(self, Connection* c, int64_t now) except? LOST
    cdef Outcome break_records(self, Connection* c) except? LOST
    cdef Outcome break_frames(self, Connection* c) except? LOST
    cdef Outcome odd_event(self, Connection* c, bytes text, uint8_t kind) except? LOST
    cdef Outcome cut_message(self, Connection* c) except? LOST
    cdef Outcome huge_event(self, Connection* c) except? LOST
    cdef Outcome huge_line(self, Connection* c) except? LOST
    cdef Outcome finish(self, Connection* c) except? LOST
    cdef Outcome document(self, Connection* c, int64_t now) except? LOST
    cdef Outcome send_document(self, Connection* c, uint8_t* start, uint8_t* end, int64_t now) except? LOST
    cdef int64_t stream_size(self, Connection* c) except -1
    cdef void count(self, Connection* c, Form form) noexcept
    cdef size_t room(self, Connection* c, Form form, int64_t tokens, int64_t before) noexcept
    cdef Outcome fail(self, Connection* c) except? LOST
