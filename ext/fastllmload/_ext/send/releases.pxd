# Which request is sent when: the schedule's releases, slots of a closed loop, turns that follow replies; what is in flight, and what
# follows the end of a request.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

cimport fastllmload._ext.record.counters as k
from fastllmload._ext.plan.pacer cimport Pacer
from fastllmload._ext.plan.slots cimport Slots
from fastllmload._ext.plan.talk cimport Talk
from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.receive.protocol cimport Protocol
from fastllmload._ext.send.connection cimport List, RequestStream
from fastllmload._ext.send.pool cimport Pool
from fastllmload._ext.send.share cimport Share
from fastllmload._ext.send.transport cimport Transport
from fastllmload._ext.send.users cimport Users

@cython.final
cdef class Releases:
    cdef Transport transport
    cdef Protocol protocol              # this and the next two: the transport's
    cdef Pool pool
    cdef Users users
    cdef Pacer pacer
    cdef Share share
    cdef Slots slots
    cdef List flight                    # streams by dispatch, which is also the order of deadlines
    cdef int64_t* words                 # counters.pxd; borrowed from the protocol
    cdef Hdr lag
    cdef int64_t timeout                # ns per request
    cdef bint closed                    # there are slots: a closed loop, or classes that are closed loops next to open ones
    cdef bint mixed                     # slots next to arrivals: then lag is that of arrivals and what follows them
    cdef Py_ssize_t openings            # instants of the schedule that open a slot; the others are arrivals
    cdef Py_ssize_t opened              # of them that have passed
    cdef Py_ssize_t opening             # place in the schedule of the next one; -1: none
    cdef const int64_t[::1] opening_places      # of all; None: the first of the schedule
    cdef const uint32_t[::1] opening_pools      # of each; None: there are no pools
    cdef uint32_t opening_pool          # of the next one
    cdef int64_t stop_at                # slots: no request after this instant; 0 = no bound
    cdef uint32_t cap                   # open loop: most in flight (--max-concurrency share); 0 = none
    cdef uint32_t most_waiting          # for their first token (--max-prefill share); 0 = no cap
    cdef bint sending                   # false once draining

    cdef int arm(self, int64_t now) except -1
    cdef int release(self, int64_t until, int64_t now) except -1        # send everything that is due at *until*
    cdef int refill(self, int64_t now) except -1                # freed slots send at once
    cdef bint may_issue(self, int64_t now) noexcept             # slots may send one more
    cdef int open_at(self, const int64_t[::1] places, const uint32_t[::1] pools, Py_ssize_t count) except -1    # the openings of a phase
    cdef int _next_opening(self) noexcept
    cdef bint of_slot(self) noexcept    # what is due next is the opening of a slot, or follows in one
    cdef uint32_t next_request(self, int32_t slot) noexcept     # what a slot sends, which then is issued
    cdef int _open_slot(self, Py_ssize_t place, int64_t due, int64_t now, bint over) except -1      # the *place*-th one
    cdef uint32_t _own_request(self, uint32_t pool, Py_ssize_t place) noexcept      # with which a slot begins, the *place*-th one
    cdef int handle_ends(self) except -1                        # of requests: before a connection is taken or made
    cdef int cancel_overdue(self, int64_t until, int64_t now) except -1         # whose deadline was *until* or before
    cdef int cancel_left(self, int64_t now) except -1           # whose user leaves
    cdef int cancel_all(self, int64_t now) except -1
    cdef int end_talks(self) except -1                           # turns that were still to come are not sent
    cdef int _end_talk(self, Talk* talk) except -1
    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int32_t slot, Talk* talk) except -1
    cdef bint _goes_on(self, RequestStream* s) except -1

    # A cap holds back what is due.
    cdef inline bint held(self) noexcept:
        return ((self.cap and self.flight.count >= self.cap)
                or (self.most_waiting and self.words[k.W_WAITING] >= self.most_waiting))

    # Send what ends of requests and the schedule have made due.
    cdef inline int follow(self, int64_t now) except -1:
        if self.protocol.ended.first != NULL:
            self.handle_ends()
        if self.slots.freed:
            self.refill(now)
        if self.pacer.due() <= now:
            self.release(now, now)
        return 0
