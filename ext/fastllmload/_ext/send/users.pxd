# What users do besides waiting: who leaves when, and who reads no faster than a rate.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.plan.dues cimport Dues
from fastllmload._ext.plan.leaving cimport Leaving
from fastllmload._ext.send.connection cimport Connection, RequestStream
from fastllmload._ext.send.pool cimport Pool

cdef class Users:
    # Of a phase, by the plan. One per worker.
    cdef const Leaving[::1] ways        # of each request of the plan; empty where everybody waits
    cdef readonly bint only_wait        # *ways* is empty
    cdef Dues leaves                    # when to check whether a user leaves: connection and row number; owned
    cdef uint64_t* slow                 # generation and number of connections with a slow reader; owned
    cdef uint32_t slow_count, slow_cap
    cdef int begin(self, const Leaving[::1] ways) except -1             # a phase
    cdef bint reads_slowly(self, uint32_t planned) noexcept
    cdef int send(self, RequestStream* s, uint32_t planned, int64_t now) except -1       # the request's user, from its release on
    cdef int _note_slow(self, Connection* c) except -1
    # A user who leaves now, and why (ErrorClass); NULL: none.
    cdef RequestStream* leaver(self, Pool pool, uint32_t plan_size, int64_t now, uint8_t* why) except? NULL
    # The slow reader that is noted at *place*; NULL: the connection is gone, and another one is noted there, if any.
    cdef Connection* slow_reader(self, Pool pool, uint32_t place) noexcept
    cdef size_t may_read(self, Connection* c, int64_t now, size_t most) noexcept      # bytes that a slow reader reads now
