# What a connection of HTTP/2 does otherwise than one of HTTP/1.1: it carries many requests, which wait for their turn to be written.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.plan.bodies cimport Bodies
from fastllmload._ext.receive.exchange cimport Verdict
from fastllmload._ext.receive.protocol cimport Protocol
from fastllmload._ext.send.connection cimport Connection, RequestStream, StreamOfMany
from fastllmload._ext.send.pool cimport Pool
from fastllmload._ext.send.users cimport Users
from fastllmload._ext.system.wire cimport iovec

@cython.final
cdef class Streams:
    # One per worker; the calls are those of Transport. Each may drop the connection.
    cdef Protocol protocol
    cdef Pool pool
    cdef Users users
    cdef Bodies bodies                  # of the phase
    cdef int64_t* words                 # borrowed from protocol
    cdef int64_t tails_at               # when end_tails() is due again
    cdef int submit(self, RequestStream* s, int64_t now) except -1
    cdef int connected(self, Connection* c) except -1
    cdef int connect_failed(self, Connection* c, int error_number, uint8_t error) except -1
    cdef int write(self, Connection* c, int64_t now) except -1                  # what waits, as far as windows and the socket take it
    cdef int fed(self, Connection* c, Verdict verdict, int64_t user_t) except -1
    cdef int broken(self, Connection* c, int error_number) except -1
    cdef int cancel(self, RequestStream* s, uint8_t status, uint8_t error, int64_t now) except -1
    cdef int end_tails(self, int64_t now) except -1
    cdef int _established(self, Connection* c, int64_t now) except -1
    cdef int _move(self, StreamOfMany* one, int64_t now) except -1
    cdef Py_ssize_t _send_sealed(self, Connection* c, const iovec* frames) except? -1
    cdef int _fill(self, Connection* c, int64_t now) except -1
    cdef bint _fill_one(self, Connection* c, StreamOfMany* one, int64_t now) except -1
    cdef int _submitted(self, Connection* c) noexcept
    cdef int _cancel_left(self, Connection* c, int64_t now) except -1
