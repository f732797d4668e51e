# A heap of instants, each with a borrowed owner. Entries are never removed early: a stale one is recognized by its generation.
from libc.stdint cimport int64_t, uint32_t

cdef struct Timer:
    int64_t due             # CLOCK_MONOTONIC ns, or any other key: the least comes first
    void* owner             # borrowed
    uint32_t generation     # of the owner when the timer was set
    uint32_t purpose        # the owner's own word

cdef struct Timers:
    Timer* items            # owned; a 4-ary heap
    size_t count
    size_t cap

cdef enum:
    NEVER = 0x7FFFFFFFFFFFFFFF

cdef int timers_push(Timers* t, int64_t due, void* owner, uint32_t generation, uint32_t purpose) except -1
cdef void timers_pop(Timers* t) noexcept nogil      # drops items[0]; count must not be 0
cdef void timers_free(Timers* t) noexcept nogil

cdef inline int64_t timers_due(Timers* t) noexcept nogil:
    return t.items[0].due if t.count else <int64_t>NEVER
