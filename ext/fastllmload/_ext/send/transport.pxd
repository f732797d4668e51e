# Requests onto connections, responses off them: send, receive with kernel stamp, feed the protocol, end. What is sent when is
# the Reactor's, which receives every end.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.plan.bodies cimport Bodies
from fastllmload._ext.receive.exchange cimport Verdict
from fastllmload._ext.receive.protocol cimport Protocol
from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.send.conn cimport Conn
from fastllmload._ext.send.pool cimport Pool
from fastllmload._ext.send.users cimport Users
from fastllmload._ext.system.wire cimport epoll_event

cdef enum:
    BUFFER = 262144             # shared read buffer, bytes
    WAKE_NS = 200_000           # from a segment to the thread that sleeps for it, in addition to what the scheduler counts
    STOPPED_NS = 1_000_000      # later than the beat by more than that, and not for want of a processor: the thread stood still

cdef class Transport:
    cdef readonly Protocol protocol
    cdef Pool pool
    cdef Users users
    cdef Bodies bodies                  # of the phase
    cdef int epfd                       # sockets, and whatever the Reactor watches; owned
    cdef unsigned char* buffer          # shared read buffer; owned
    cdef int64_t* words                 # borrowed from protocol
    cdef Hdr socket_to_user
    cdef int64_t read_at                # user-space time of the latest read
    cdef int64_t offset                 # CLOCK_REALTIME - CLOCK_MONOTONIC
    cdef int64_t empty_at               # no socket of this batch had data then: all that they have came later
    cdef int64_t begun                  # when the batch was known to be ready
    cdef int64_t slept_from             # since when the thread waited for it; 0: it did not
    cdef int64_t stops                  # how often signals had stopped the process before that
    cdef int64_t awaited                # the beat was due then, at which the thread would have been woken
    cdef int schedstat                  # how long the thread was ready to run and did not; owned, -1: not known
    cdef int64_t run_delay              # the same at the end of an earlier batch, and the thread's time on a processor then
    cdef int64_t cpu_time
    cdef int64_t ready                  # what run_delay grew by since, as far as this batch knows; -1: not asked yet
    cdef int64_t unsure_until           # the wall clock was set: stamps from before may still lie in the kernel

    cdef int ended(self, Conn* c, int64_t user_t) except -1     # the request of *c* is over, in whatever status
    cdef int clock(self) except -1                              # read *offset* again
    @cython.final
    cdef int64_t look(self) except -1                           # the same, shorter, once per batch of reads; returns the time
    cdef int connect(self, Conn* c) except -1                   # then send the request that *c* has
    cdef int connected(self, Conn* c) except -1
    cdef int connect_failed(self, Conn* c, int error_number, bint tls) except -1
    cdef int send(self, Conn* c, int64_t now) except -1
    cdef int submitted(self, Conn* c) except -1
    @cython.final
    cdef int event(self, epoll_event* event) except -1          # of a socket
    @cython.final
    cdef int fed(self, Conn* c, Verdict verdict, bint had, int64_t user_t) except -1
    @cython.final
    cdef int broken(self, Conn* c, int error_number) except -1  # the peer closed (0) or the connection failed (errno)
    cdef int cancel(self, Conn* c, uint8_t status, uint8_t error, int64_t now) except -1
    cdef int sip_all(self, int64_t now) except -1               # slow readers read
    @cython.final
    cdef int _read(self, Conn* c, uint32_t flags) except -1
    @cython.final
    cdef int _got(self, Conn* c, Py_ssize_t got, int64_t stamp) except -1
    @cython.final
    cdef int64_t _earliest(self, Conn* c, int64_t newest) noexcept              # when data of the latest read came at the earliest
    @cython.final
    cdef bint on_time(self, int64_t ready) noexcept             # the batch did not begin later than the thread would have woken
    @cython.final
    cdef int64_t _ready_ns(self) noexcept
    @cython.final
    cdef int _settle(self, Conn* c) except -1                   # how exact the stamp of the latest read is
    cdef int _sip(self, Conn* c, int64_t now) except -1
