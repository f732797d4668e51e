# Slots of a closed loop: which are free since when, and which rest after errors.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef struct Slot:
    int64_t at                          # ns: free since, or rests until
    int32_t number

cdef struct SlotPool:
    uint64_t issued                     # requests of this pool so far
    uint64_t limit                      # that it may send
    uint32_t first, size                # its requests: *size* items of Slots.numbers from *first* on
    uint32_t own, kept                  # of these the first, with which its slots begin, and how many of them are still to come

cdef struct SlotRange:
    # The slots of the loop, or of one pool: which are open.
    int32_t first                       # its slots are numbered from here on
    int32_t opened                      # numbers that were given out
    Py_ssize_t closing, last            # of Slots.closings: its next one, and the end of its own
    uint32_t excess                     # slots that are to close when their requests end
    uint32_t closed_count               # of Slots.closed, from *first* on: slots that may open again

cdef class Slots:
    # Of a phase. One per worker; in an open loop nothing is ever free.
    cdef uint64_t issued                # requests of this worker so far
    cdef uint64_t limit                 # requests that this worker may send; 0 = no bound
    cdef uint64_t kept                  # requests with which slots begin that are still to open
    cdef uint32_t freed                 # how many wait to be filled again
    cdef uint32_t count                 # slots there are: a slot is free, rests, or holds a request
    cdef Slot* free_ones                # a ring of *count*: *freed* of them from *first_free* on, the earliest first; owned
    cdef uint32_t first_free
    cdef Slot* resting                  # a ring of *count* from *first_resting* on, the earliest first; owned
    cdef uint32_t first_resting, rest_count
    cdef int32_t* errors                # in a row, of each slot; owned
    cdef bint varies                    # slots also open and close during the phase
    cdef const int64_t[::1] closings    # ns from time zero at which one slot less is wanted, ascending within each range
    cdef SlotRange* ranges              # of each pool, or the only one; owned
    cdef int32_t* closed                # numbers of slots, see SlotRange; owned
    # Where classes of requests have slots of their own; slots are then numbered pool by pool.
    cdef SlotPool* pools                # NULL: all slots send requests of one sequence; owned
    cdef uint32_t* pool_of              # each slot; owned
    cdef const uint32_t[::1] numbers    # requests of the plan, of all pools
    cdef uint32_t plan_size             # requests in the plan: each time that a pool starts again, its numbers are higher by that
    cdef int divide(self, const uint32_t[::1] counts, const uint32_t[::1] sizes, const uint64_t[::1] limits,
                    const uint32_t[::1] numbers, const uint32_t[::1] closings, const uint32_t[::1] owns,
                    uint32_t plan_size) except -1                               # after begin()
    cdef bint pool_left(self, int32_t slot) noexcept                            # its pool, if it has one, may send one more
    cdef uint32_t next_request(self, int32_t slot) noexcept                     # it, which then is issued
    cdef bint keeps(self, uint32_t pool) noexcept                               # its next slot begins with a request of its own
    cdef uint32_t own_request(self, uint32_t pool) noexcept                     # it, of a pool, which then is issued
    cdef int begin(self, Py_ssize_t count, uint64_t limit, const int64_t[::1] closings) except -1        # a phase
    cdef int32_t open(self, uint32_t pool, int64_t since) noexcept      # slot that opens at *since*; -1: one that was to close stays
    cdef bint stays(self, int32_t slot, int64_t since) noexcept                 # a slot that is free at *since* is filled again
    cdef int _close(self, SlotRange* own, int64_t since) noexcept
    cdef int clear(self) noexcept                                               # nothing will be filled again
    cdef bint left(self) noexcept                                               # one more may be sent
    cdef int free(self, int32_t slot, bint failed, int64_t now) noexcept        # its request has ended
    cdef int64_t first_at(self) noexcept                                        # since when the one freed first is, while there is one
    cdef Slot take(self) noexcept                                               # it
    cdef int wake(self, int64_t now) noexcept                                   # who has rested is free
    cdef int _forget(self) noexcept
