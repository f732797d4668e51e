# Requests onto connections, responses off them: send, receive with kernel stamp, feed the protocol. What is sent when, and what
# follows the end of a request (Protocol.ended), is for Releases.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.plan.bodies cimport Bodies
from fastllmload._ext.receive.exchange cimport Exchange, Verdict
from fastllmload._ext.receive.protocol cimport Protocol
from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.send.connection cimport Connection, RequestStream
from fastllmload._ext.send.pool cimport Pool
from fastllmload._ext.send.streams cimport Streams
from fastllmload._ext.send.users cimport Users
from fastllmload._ext.system.wire cimport epoll_event
from fastllmload._ext.tls.session cimport TlsContext

cdef enum:
    BUFFER = 262144             # shared read buffer, bytes
    WAKE_NS = 200_000           # from a segment to the thread that sleeps for it, in addition to what the scheduler counts
    STOPPED_NS = 1_000_000      # later than the beat by more than that, and not for want of a processor: the thread stood still

@cython.final
cdef class Transport:
    cdef Protocol protocol
    cdef Pool pool
    cdef Users users
    cdef Bodies bodies                  # of the phase
    cdef Streams streams                # what HTTP/2 does otherwise
    cdef int epfd                       # sockets are watched there; borrowed
    cdef unsigned char* buffer          # shared read buffer; owned
    cdef unsigned char* plain           # what a read says below TLS, and what is to be sent in one record; owned, NULL without TLS
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

    cdef int clock(self) except -1                              # read *offset* again
    cdef int64_t check_clock(self) except -1                           # the same, shorter, once per batch of reads; returns the time
    cdef int open(self, RequestStream* s) except -1             # begin with it: it has a row
    cdef int submit(self, RequestStream* s, int64_t now) except -1              # send it, as soon as its connection is there
    cdef int use_tls(self, TlsContext context) except -1
    cdef int connected(self, Connection* c) except -1
    cdef int _usable(self, Connection* c) except -1             # it is connected, and secured and upgraded where that is wanted
    cdef int _upgrade(self, Connection* c) except -1            # WebSocket: ask for it
    cdef int _upgrading(self, Connection* c, Py_ssize_t got) except -1          # *got* bytes of the peer's are in the buffer
    cdef int _reply(self, Connection* c) except -1              # send what answers control frames: 1 if the connection is gone
    cdef Py_ssize_t _send_replies(self, Connection* c) except? -1               # 0 when that was all, or -errno
    cdef int connect_failed(self, Connection* c, int error_number, bint tls) except -1
    cdef int _shake_hands(self, Connection* c, Py_ssize_t got) except -1        # *got* bytes of the peer's are in the buffer
    cdef int _tls_failed(self, Connection* c) except -1
    cdef int _tls_fails(self, Connection* c, Exchange* x, bytes why) except -1
    cdef int send(self, Connection* c, int64_t now) except -1
    cdef int _send_sealed(self, Connection* c) except -1
    cdef int _send_by_loop(self, Connection* c) except -1
    cdef int submitted(self, Connection* c) except -1           # the last byte of what it had to send is with the kernel
    cdef int event(self, epoll_event* event) except -1          # of a socket
    cdef int fed(self, Connection* c, Verdict verdict, int64_t user_t) except -1
    cdef int _fed_sealed(self, Connection* c, Verdict verdict, int64_t user_t) except -1
    cdef int broken(self, Connection* c, int error_number) except -1  # the peer closed (0) or the connection failed (errno)
    cdef int cancel(self, RequestStream* s, uint8_t status, uint8_t error, int64_t now) except -1
    cdef int time_out(self, RequestStream* s, int64_t now) except -1
    cdef int sip_all(self, int64_t now) except -1               # slow readers read
    cdef int _read(self, Connection* c, uint32_t flags) except -1
    cdef int _got(self, Connection* c, Py_ssize_t got, int64_t stamp) except -1
    cdef int64_t _earliest(self, Connection* c, int64_t newest) noexcept              # when data of the latest read came at the earliest
    cdef bint on_time(self, int64_t ready) noexcept             # the batch did not begin later than the thread would have woken
    cdef int64_t _ready_ns(self) noexcept
    cdef int _settle(self, Connection* c) except -1                   # how exact the stamp of the latest read is
    cdef int _sip(self, Connection* c, int64_t now) except -1
