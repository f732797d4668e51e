# All streams of a worker: own epoll set (sockets and timers), the loop's entries, housekeeping.
cimport cython
from libc.stdint cimport int64_t, uint32_t

from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.plan.pacer cimport Beat, Pacer
from fastllmload._ext.send.pool cimport Pool
from fastllmload._ext.send.releases cimport Releases
from fastllmload._ext.send.transport cimport Transport
from fastllmload._ext.send.users cimport Users
from fastllmload._ext.system.wire cimport epoll_event

@cython.final
cdef class Reactor:
    cdef readonly Pacer pacer
    cdef Pool pool
    cdef Users users
    cdef Transport transport
    cdef Releases releases
    cdef int64_t* words                 # borrowed from the protocol
    cdef int epfd                       # sockets, the pacer's timer and the beat; owned
    cdef Beat beat
    cdef epoll_event* events            # owned
    cdef Hdr lateness                   # of the beat
    cdef bint staying                   # wait for the next batch ourselves: no connection is the event loop's, the clock runs
    cdef bint leave                     # the event loop's turn has come
    cdef bint alone                     # no other thread of the process runs Python
    cdef uint32_t beats                 # since its last one
    cdef int64_t beat_due
    cdef bint times_due                 # they are to be taken at the end of the batch
    cdef int64_t times_stops            # wire_stops() when they were taken
    cdef int64_t clear                  # when a poll last returned, having found no more than it could return
    cdef int64_t looked                 # when a socket or the clock was last polled
    cdef uint32_t reserve               # idle connections to keep ahead of the schedule
    cdef int64_t house_at               # next housekeeping

    cdef object call_soon               # the event loop's; None: it has no connections
    cdef object end_turn                # turn_ended, bound
    cdef bint in_turn                   # the loop has called since its latest poll, or since what it does before the next one
    cdef int64_t polled                 # that poll returned then at the earliest, and the one before it
    cdef int64_t polled_before
    cdef int64_t woken_at               # the thread did not wake earlier from its latest sleep; 0: not known
    cdef int64_t ended_at               # of the latest turn, before the poll; 0: none
    cdef int64_t ended_delay            # the thread's waits and time on a processor then, and the stops of its process
    cdef int64_t ended_cpu
    cdef int64_t ended_stops
    # When data that the event loop hands over at *user_t* came at the earliest.
    cdef int64_t loop_earliest(self, int64_t user_t) except -1
    cdef int loop_called(self, int64_t now) except -1       # by each callback of the loop first
    cdef readonly object failure        # what a callback of the event loop raised first; None: nothing
    cdef int loop_read(self, int64_t user_t) except -1          # after each event of a connection that the event loop owns
    cdef int _poll(self) noexcept nogil         # wait for events; how many there are
    cdef int _batch(self, int n, int64_t since) except -1
    cdef void _woken(self, int64_t now, int64_t asleep) noexcept
    cdef void _stalled(self, int64_t begin, int64_t end, int64_t asleep) noexcept
    cdef void _take_times(self) noexcept        # run_delay and cpu_time, for what comes after this batch
    cdef int _on_beat(self, int64_t now) except -1
    cdef int _next_beat(self, int64_t now) except -1
    cdef int _house(self, int64_t now) except -1
    cdef int _open_ahead(self, int64_t now) except -1
