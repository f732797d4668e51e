# The simulated engine's server: one thread, one epoll set, one timerfd.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.sim.cadence cimport Cadence
from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.sim.fault cimport Faults
from fastllmload._ext.simserver.http2 cimport Http2Sessions
from fastllmload._ext.simserver.intake cimport Intake
from fastllmload._ext.simserver.responder cimport Responder
from fastllmload._ext.simserver.streams cimport Streams
from fastllmload._ext.simserver.truth cimport Truth

cdef class Server(Http2Sessions):
    cdef int epoll, timer, signals, listener
    cdef int64_t armed                  # instant that the timerfd is set to; 0 = none
    cdef bint stopping, listening
    cdef Faults connection_faults       # which connections go wrong, by their number
    cdef int turn(self) except -1
    cdef int64_t next_due(self) noexcept
    cdef int watch(self, int fd, uint64_t word, uint32_t events) except -1
    cdef int dispatch(self, uint64_t word, uint32_t events) except -1
    cdef int accept(self) except -1
    cdef int signal(self) except -1
    cdef int expire(self, int64_t now) except -1
    cdef int advance(self, int64_t now) except -1
