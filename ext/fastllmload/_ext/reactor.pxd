# All streams of a worker: own epoll set (sockets and the pacer's timer), connection pool, releases, time-outs.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.conn cimport Conn, ConnList, Head, TargetState
from fastllmload._ext.dues cimport Dues
from fastllmload._ext.exchange cimport Protocol, Verdict
from fastllmload._ext.histogram cimport Hdr
from fastllmload._ext.leaving cimport Leaving
from fastllmload._ext.pacer cimport Beat, Pacer
from fastllmload._ext.talk cimport Talk, Talks
from fastllmload._ext.recorder cimport RequestRow
from fastllmload._ext.wire cimport Address, epoll_event

cdef class Reactor:
    cdef readonly Protocol protocol
    cdef readonly Pacer pacer
    cdef int epfd
    cdef dict streams                   # number -> Stream of connections that the event loop owns
    cdef object connector               # called with (target, number, generation), returns the Stream that it opens
    cdef TargetState* targets           # owned
    cdef Py_ssize_t target_count
    cdef Head* heads                    # of each class of requests and, within, each target; owned
    cdef uint32_t head_classes          # a class that has no heads takes those of class 0
    cdef Address* sources               # owned
    cdef Py_ssize_t source_count
    cdef Py_ssize_t source_next
    cdef Conn** conns                   # owned, with what they point at
    cdef uint32_t conn_count
    cdef uint32_t conn_cap
    cdef list spare                     # numbers of free Conn structs
    cdef ConnList flight                # borrowed connections
    cdef unsigned char* buffer          # shared read buffer; owned
    cdef epoll_event* events            # owned
    cdef int64_t* words                 # borrowed from protocol
    cdef Hdr lag, socket_to_user, stall
    cdef bint stamps                    # kernel stamps are asked for
    cdef bint fresh                     # one connection per request
    cdef bint stay                      # no connection is the event loop's: wait for the next batch ourselves
    cdef bint staying                   # and the clock runs
    cdef bint leave                     # the beat has come
    cdef Beat beat
    cdef int64_t timeout                # ns per request
    cdef int64_t offset                 # CLOCK_REALTIME - CLOCK_MONOTONIC
    cdef object keep                    # arrays of the phase
    cdef const uint64_t[::1] body_offset
    cdef const uint8_t[::1] bodies
    cdef const int32_t[::1] input_tokens
    cdef const int32_t[::1] output_tokens
    cdef const uint16_t[::1] request_class
    cdef const uint32_t[::1] numbers    # requests of this worker's releases; unused where there are no conversations
    cdef Talks talks                    # None: every request stands alone
    cdef const Leaving[::1] client
    cdef bint has_client
    cdef Dues leaves                    # when to look whether a user leaves: connection and row number; owned
    cdef uint64_t* slow                 # generation and number of connections with a slow reader; owned
    cdef uint32_t slow_count, slow_cap
    cdef uint8_t phase                  # recorder.Phase
    cdef int phase_number
    cdef bytes run_id
    cdef uint32_t worker, workers
    cdef uint32_t plan_size
    cdef bint closed                    # closed loop
    cdef uint64_t issued                # closed loop: requests of this worker so far
    cdef uint64_t limit                 # closed loop: requests this worker may send; 0 = no bound
    cdef int64_t stop_at                # closed loop: no request after this instant; 0 = no bound
    cdef uint32_t cap                   # open loop: most in flight (--max-concurrency share); 0 = none
    cdef bint sending                   # false once draining
    cdef list freed                     # closed loop: (slot, ns) to fill again
    cdef list waiting                   # closed loop: (ns, slot) that wait after ten errors in a row
    cdef int32_t[::1] slot_errors
    cdef uint32_t reserve               # idle connections to keep ahead of the schedule
    cdef int64_t tick_due
    cdef int64_t house_at               # next housekeeping

    cdef Conn* _new(self, uint16_t target) except NULL
    cdef int _connect(self, Conn* c) except -1
    cdef int _connected(self, Conn* c) except -1
    cdef int _connect_failed(self, Conn* c, int error_number, uint8_t error) except -1
    cdef int _drop(self, Conn* c, bint reset) except -1
    cdef int _pool(self, Conn* c) except -1
    cdef int _unpool(self, Conn* c) noexcept
    cdef int _arm(self, int64_t now) except -1
    cdef int _release(self, int64_t now) except -1
    cdef int _refill(self, int64_t now) except -1
    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int64_t now, int32_t slot, Talk* talk) except -1
    cdef int _compose(self, Conn* c, Talk* talk) except -1
    cdef uint32_t _numbered(self, uint64_t release) noexcept
    cdef int _own_ways(self, Conn* c, RequestRow* row, int64_t now) except -1
    cdef int _slow_reader(self, Conn* c) except -1
    cdef int _sip_all(self, int64_t now) except -1
    cdef int _sip(self, Conn* c, int64_t now) except -1
    cdef int _see_who_leaves(self, int64_t now) except -1
    cdef int _leave(self, Conn* c, uint8_t error, int64_t now) except -1
    cdef bint _goes_on(self, Conn* c, int32_t slot) except -1
    cdef int _end_talks(self) noexcept
    cdef int _send(self, Conn* c, int64_t now) except -1
    cdef int _submitted(self, Conn* c) except -1
    cdef int _read(self, Conn* c, uint32_t flags) except -1
    cdef int _got(self, Conn* c, Py_ssize_t got, int64_t stamp) except -1
    cdef int _fed(self, Conn* c, Verdict verdict, bint had, int64_t user_t) except -1
    cdef int _ended(self, Conn* c, int64_t user_t) except -1
    cdef int _broken(self, Conn* c, int error_number) except -1
    cdef int _event(self, epoll_event* event) except -1
    cdef int _house(self, int64_t now) except -1
    cdef int _expire(self, int64_t now) except -1
    cdef int _top_up(self, int64_t now) except -1
    cdef int _cancel(self, Conn* c, uint8_t status, uint8_t error, int64_t now) except -1
    cdef int _clock(self) except -1
    cdef int64_t _batch(self, int n) except -1
    cdef bint _may_issue(self, int64_t now)
