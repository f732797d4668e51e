# Which request is sent when: the schedule's releases, slots of a closed loop, turns that follow replies; and what is in flight.
from libc.stdint cimport int32_t, int64_t, uint32_t

from fastllmload._ext.plan.pacer cimport Pacer
from fastllmload._ext.plan.slots cimport Slots
from fastllmload._ext.plan.talk cimport Talk
from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.send.conn cimport Conn, ConnList
from fastllmload._ext.send.share cimport Share
from fastllmload._ext.send.transport cimport Transport

cdef class Releases(Transport):
    cdef readonly Pacer pacer
    cdef Share share
    cdef Slots slots
    cdef ConnList flight                # by dispatch, which is also the order of deadlines; borrowed connections
    cdef Hdr lag
    cdef int64_t timeout                # ns per request
    cdef bint closed                    # closed loop
    cdef int64_t stop_at                # closed loop: no request after this instant; 0 = no bound
    cdef uint32_t cap                   # open loop: most in flight (--max-concurrency share); 0 = none
    cdef bint sending                   # false once draining

    cdef int arm(self, int64_t now) except -1
    cdef int release(self, int64_t now) except -1               # send everything that is due
    cdef int refill(self, int64_t now) except -1                # closed loop: freed slots send at once
    cdef bint may_issue(self, int64_t now) noexcept             # a closed loop may send one more
    cdef int ended(self, Conn* c, int64_t user_t) except -1
    cdef int end_talks(self) noexcept                           # turns that were still to come are not sent
    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int32_t slot, Talk* talk) except -1
    cdef bint _goes_on(self, Conn* c) except -1
