# HTTP/2 of the simulated engine, from the client: connections that begin with its preface, their frames and requests.
from libc.stdint cimport uint8_t, uint32_t

from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.simserver.session cimport Sessions

cdef class Http2Sessions(Sessions):
    cdef dict decoders                  # of request heads, by the number of the connection
    cdef int frames(self, Connection* k, uint8_t* data, size_t size) except -1
    cdef int frame(self, Connection* k, uint8_t type, uint8_t flags, uint32_t id, const uint8_t* p, uint32_t size) except -1
    cdef int body(self, Connection* k, uint8_t flags, uint32_t id, const uint8_t* p, uint32_t size) except -1
    cdef int fields(self, Connection* k, uint8_t type, uint8_t flags, uint32_t id, const uint8_t* p, uint32_t size) except -1
    cdef int head(self, Connection* k, uint32_t id, const uint8_t* block, size_t size, bint ends) except -1
    cdef bytes request_text(self, Connection* k, const uint8_t* block, size_t size)
    cdef int whole(self, Connection* c) except -1
    cdef int settings(self, Connection* k, uint8_t flags, const uint8_t* p, uint32_t size) except -1
    cdef int window(self, Connection* k, uint32_t id, uint32_t more) except -1
    cdef int go_on(self, Connection* k) except -1
    cdef int reset_stream(self, Connection* k, uint32_t id, uint32_t code) except -1
    cdef int end_call(self, Connection* c) except -1
    cdef int end_stream(self, Connection* c, uint8_t flags) except -1
    cdef int end_streams(self, Connection* k, uint32_t above, uint8_t flags) except -1
    cdef int leave(self, Connection* k) except -1
    cdef int fail(self, Connection* k, uint32_t code) except -1
