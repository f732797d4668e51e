# Requests and replies on connections: what follows from bytes read, tokens produced and connections lost.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.http.request cimport Request
from fastllmload._ext.sim.cadence cimport Cadence
from fastllmload._ext.sim.timer cimport Timers
from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.simserver.intake cimport Intake
from fastllmload._ext.simserver.responder cimport Responder
from fastllmload._ext.simserver.streams cimport Streams
from fastllmload._ext.simserver.truth cimport Truth
from fastllmload._ext.simserver.writer cimport Outcome

cdef enum TimerPurpose:         # of a connection's timer
    RESUME_OUT = 0
    IDLE_CLOSE = 1
    LINGER_END = 2

cdef class Sessions:
    cdef int64_t real_offset            # CLOCK_REALTIME - CLOCK_MONOTONIC, sampled at each wake while stamps are on
    cdef Streams connections
    cdef Cadence cadence
    cdef Truth truth
    cdef Intake intake
    cdef Responder responder
    cdef Timers timers                  # of connections
    cdef uint8_t* buffer                # owned; a read lands here unless the connection has bytes of its own
    cdef uint8_t* records               # its second half: reads of TLS connections
    cdef object pages
    cdef object controls                # routes that control the engine, or None
    cdef public bint asleep             # completions are refused
    cdef object visits                  # what is noted and answered of sessions, or None
    cdef bytes bearer                   # the Authorization value that is asked for, or None
    cdef int64_t arrival                # instant that counts as the arrival of the request being read
    cdef int64_t flush_at               # the truth log is written then, unless tokens keep flowing; 0 = nothing to write
    cdef uint32_t serial
    cdef uint64_t[4] finished           # stop, length, abort, error
    cdef uint64_t[3] handshakes         # of TLS: full, resumed, failed
    cdef readonly uint64_t requests
    cdef readonly uint64_t refused
    cdef int ready_to_read(self, Connection* c) except -1
    cdef Py_ssize_t unseal(self, Connection* c, size_t size, uint8_t* plain) except -1
    cdef int break_handshake(self, Connection* c) except -1
    cdef int ready_to_write(self, Connection* c) except -1
    cdef int consume(self, Connection* c, uint8_t* data, size_t size) except -1
    cdef int ahead(self, Connection* c, uint8_t* data, size_t size) except -1
    cdef size_t take(self, Connection* c, uint8_t* data, size_t size) except? 0
    # WebSocket: the connection is upgraded; a frame of its client is there, perhaps.
    cdef int upgrade(self, Connection* c, Request* r, int number) except -1
    cdef size_t take_frame(self, Connection* c, uint8_t* data, size_t size) except? 0
    cdef int say(self, Connection* c, bytes frame, bint close) except -1
    cdef size_t headless(self, Connection* c, uint8_t* data, size_t size) except? 0
    cdef size_t incomplete(self, Connection* c, Request* r, size_t head, size_t need) except? 0
    cdef int open_row(self, Connection* c, Request* r) except -1
    cdef bint admitted(self, Request* r) except? False
    cdef int serve(self, Connection* c, Request* r, const uint8_t* body, size_t size) except -1
    cdef int generate(self, Connection* c, Request* r, int number, const uint8_t* body, size_t size) except -1
    cdef int answer_page(self, Connection* c, Request* r, str path, bytes body) except -1
    cdef int give_page(self, Connection* c, int status, str content_type, bytes body) except -1
    cdef int refuse(self, Connection* c, int status, str kind, str message, bint close) except -1
    cdef int settle(self, Connection* c, Outcome outcome) except -1
    cdef int complete(self, Connection* c) except -1
    cdef int resume(self, Connection* c) except -1
    cdef int close(self, Connection* c, bint reset, uint8_t flags) except -1
    cdef int end_row(self, Connection* c, uint8_t flags) except -1
    cdef int set_timer(self, Connection* c, int64_t due, uint32_t purpose) except -1
