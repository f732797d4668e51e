# Slots of a closed loop: which are free since when, and which rest after errors.
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef class Slots:
    # Of a phase. One per worker; in an open loop nothing is ever free.
    cdef uint64_t issued                # requests of this worker so far
    cdef uint64_t limit                 # requests that this worker may send; 0 = no bound
    cdef list freed                     # (slot, ns) to fill again
    cdef list resting                   # (ns, slot), the earliest first
    cdef int32_t[::1] errors            # in a row, of each slot
    cdef int begin(self, Py_ssize_t count, uint64_t limit) except -1            # a phase
    cdef int clear(self) except -1                                              # nothing will be filled again
    cdef bint left(self) noexcept                                               # one more may be sent
    cdef int free(self, int32_t slot, bint failed, int64_t now) except -1       # its request has ended
    cdef int wake(self, int64_t now) except -1                                  # who has rested is free
