# All streams of a worker: own epoll set (sockets and the pacer's timer), connection pool, releases, time-outs.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.exchange cimport Exchange, Protocol, Verdict
from fastllmload._ext.histogram cimport Hdr
from fastllmload._ext.pacer cimport Pacer
from fastllmload._ext.wire cimport Address, epoll_event, iovec

cdef enum ConnState:
    C_FREE = 0
    C_CONNECTING = 1
    C_IDLE = 2              # in the pool of its target
    C_SENDING = 3           # a request is partly handed to the socket
    C_WAITING = 4           # request handed over, response not complete
    C_TAIL = 5              # the request has ended, the message framing has not

cdef struct Conn:
    Exchange x
    int fd                  # -1 for connections that asyncio owns
    uint32_t number         # index in Reactor.conns
    uint32_t generation     # counts uses of this struct: events of an earlier connection are recognised by it
    uint8_t state           # ConnState
    uint16_t target
    uint32_t served         # requests ended on this connection
    uint32_t request        # request of the plan that it carries
    int32_t slot            # closed loop: the slot that the request fills; -1 otherwise
    uint32_t pool_at        # position in the target's idle stack
    int64_t deadline
    Conn* older             # in-flight list, ordered by dispatch
    Conn* younger
    iovec[3] pieces         # what is left to send: head, per-request lines, body
    int piece
    int lines_size
    char[128] lines         # X-Request-Id, Content-Length, end of head

cdef struct TargetState:
    Address address
    char* head              # request head up to the per-request lines; owned
    size_t head_size
    Conn** idle             # stack of idle connections, latest used on top; owned
    uint32_t idle_count
    uint32_t idle_cap
    uint32_t connecting     # pre-connects under way
    uint8_t over_asyncio    # connections are made by the event loop (TLS, or --transport asyncio)
    int64_t retry_at        # no pre-connect before this instant: the last one failed

cdef class Reactor:
    cdef readonly Protocol protocol
    cdef readonly Pacer pacer
    cdef int epfd
    cdef object streams                 # number -> Stream of connections that asyncio owns
    cdef object connector               # called with (target, Stream) to open one
    cdef TargetState* targets           # owned
    cdef Py_ssize_t target_count
    cdef Address* sources               # owned
    cdef Py_ssize_t source_count
    cdef Py_ssize_t source_next
    cdef Conn** conns                   # owned, with what they point at
    cdef uint32_t conn_count
    cdef uint32_t conn_cap
    cdef list spare                     # numbers of free Conn structs
    cdef Conn* oldest                   # in flight, by dispatch time
    cdef Conn* youngest
    cdef unsigned char* buffer          # shared read buffer; owned
    cdef epoll_event* events            # owned
    cdef int64_t* words                 # borrowed from protocol
    cdef Hdr lag, socket_to_user, stall
    cdef bint stamps                    # kernel stamps are asked for
    cdef bint fresh                     # one connection per request
    cdef int64_t timeout                # ns per request
    cdef int64_t offset                 # CLOCK_REALTIME - CLOCK_MONOTONIC
    cdef object keep                    # arrays of the phase
    cdef const uint64_t[::1] body_offset
    cdef const uint8_t[::1] bodies
    cdef const int32_t[::1] input_tokens
    cdef const int32_t[::1] output_tokens
    cdef const uint16_t[::1] request_class
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
    cdef uint32_t in_flight_
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
    cdef int _unpool(self, Conn* c) except -1
    cdef int _link(self, Conn* c) except -1
    cdef int _unlink(self, Conn* c) except -1
    cdef int _release(self, int64_t now) except -1
    cdef int _refill(self, int64_t now) except -1
    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int64_t now, int32_t slot) except -1
    cdef int _compose(self, Conn* c) except -1
    cdef int _send(self, Conn* c, int64_t now) except -1
    cdef int _submitted(self, Conn* c) except -1
    cdef int _read(self, Conn* c, uint32_t flags) except -1
    cdef int _fed(self, Conn* c, Verdict verdict, bint had, int64_t user_t) except -1
    cdef int _ended(self, Conn* c, int64_t user_t) except -1
    cdef int _broken(self, Conn* c, int error_number) except -1
    cdef int _event(self, epoll_event* event) except -1
    cdef int _house(self, int64_t now) except -1
    cdef int _expire(self, int64_t now) except -1
    cdef int _top_up(self, int64_t now) except -1
    cdef int _cancel(self, Conn* c, uint8_t status, uint8_t error, int64_t now) except -1
    cdef int _clock(self) except -1
    cdef bint _may_issue(self, int64_t now)
    cdef int stream_data(self, uint32_t number, uint32_t generation, Py_ssize_t size) except -1
