# When which sequence gets its next token. Sans-IO: instants in, a list of sequences with new tokens out.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastllmload._ext.sim.sequence cimport Sequence
from fastllmload._ext.sim.timer cimport Timers

cdef struct Places:             # an ordered list of borrowed sequences; NULL where one left since the last pass
    Sequence** items            # owned
    size_t count                # places used, holes included
    size_t cap
    size_t live                 # sequences in it

cdef int places_add(Places* p, Sequence* s) except -1
cdef void places_remove(Places* p, Sequence* s) noexcept nogil     # leaves a hole
cdef void places_pack(Places* p) noexcept nogil                    # closes the holes, keeps the order
cdef void places_free(Places* p) noexcept nogil

cdef class Cadence:
    cdef Sequence** ready       # owned; what advance() found: these sequences' `produced` has grown
    cdef size_t ready_count
    cdef size_t ready_cap
    cdef readonly int64_t late_max_ns       # how late advance() was for the instant it served, at worst
    cdef int submit(self, Sequence* s, int64_t now) except -1
    cdef int abort(self, Sequence* s) except -1         # the sequence will not be in `ready` again; idle ones are left alone
    cdef int64_t due(self) noexcept                     # next instant at which advance() has work; NEVER
    cdef int advance(self, int64_t now) except -1       # fills `ready`; one step or a bounded number of streams a call
    cdef int hold(self, Sequence* s) except -1          # its socket is full: only a flood stops for that
    cdef int release(self, Sequence* s) except -1
    cdef size_t running(self) noexcept
    cdef size_t waiting(self) noexcept
    cdef int make_ready(self, Sequence* s, int64_t at) except -1

cdef class Spread(Cadence):
    # Constant TTFT and ITL; each stream has its own phase, so that each event has an instant of its own.
    cdef uint64_t seed
    cdef int64_t ttft_ns, itl_ns
    cdef Timers timers
    cdef size_t live
    cdef int token(self, Sequence* s) except -1

cdef class Lockstep(Cadence):
    # Constant ITL on one grid: all streams get their token at the same instant.
    cdef int64_t ttft_ns, itl_ns, step_ns
    cdef Places streams
    cdef int token(self, Sequence* s, int64_t step) except -1

cdef class Flood(Cadence):
    # As fast as the sockets take it: streams in turn, *burst* tokens each.
    cdef int64_t burst
    cdef Places streams
    cdef size_t turn
    cdef size_t held
    cdef int token(self, Sequence* s, int64_t now) except -1
