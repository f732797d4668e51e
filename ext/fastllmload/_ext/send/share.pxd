# This worker's share of a phase's plan: which release is which request, what its row says of the plan, and its bytes.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.plan.talk cimport Talk, Talks
from fastllmload._ext.record.recorder cimport RequestRow
from fastllmload._ext.send.connection cimport Head, RequestStream
from fastllmload._ext.send.identity cimport Identity

cdef enum:
    NAME_LONGEST = 64           # bytes of a request's X-Fastllmload-Request line before its number

cdef class Share:
    # One per worker; everything of the plan is borrowed.
    cdef bytes run_id
    cdef uint32_t worker, workers
    cdef Head* heads                    # of each class of requests and, within, each target; owned
    cdef uint32_t head_classes          # a class that has no heads takes those of class 0
    cdef uint32_t target_count
    cdef uint8_t phase                  # recorder.Phase
    cdef char[NAME_LONGEST] name        # what every X-Fastllmload-Request line of the phase begins with
    cdef size_t name_size
    cdef const uint64_t[::1] body_offset
    cdef const uint8_t[::1] bodies
    cdef const int32_t[::1] input_tokens
    cdef const int32_t[::1] output_tokens
    cdef const uint16_t[::1] request_class
    cdef const uint32_t[::1] numbers    # requests of this worker's releases; unused where there are no conversations
    cdef const uint16_t[::1] target     # of each request of the plan; None: dealt round robin over all of them
    cdef uint32_t slots, own            # closed loop: of all workers, and this one's; 0: releases are dealt one by one
    cdef bint own_first                 # its slots begin with the first *own* of *numbers*, at instants of their own, and no round repeats these
    cdef uint32_t plan_size             # requests in the plan; a used-up plan starts again, with higher numbers
    cdef Talks talks                    # None: every request stands alone
    cdef Identity identity              # None: requests do not name their session
    cdef const int32_t[::1] chain       # agent of each request in its session; None: there is one, and the next two say nothing
    cdef const int32_t[::1] parent      # chain of the agent that started it; -1: none
    cdef const int32_t[::1] place       # of the request in its chain, from 0; -1 - place: it is the last one there

    cdef int begin(self, uint8_t phase, int phase_number) except -1             # a phase
    cdef int add_target(self, bytes head, uint8_t dialect, uint8_t id_tag) except -1        # *head* is empty over WebSocket
    cdef int add_class(self, list heads, uint8_t dialect, uint8_t id_tag) except -1
    cdef uint32_t numbered(self, uint64_t release) noexcept     # the request that this worker's *release*-th one is
    cdef int fill(self, RequestRow* row, uint32_t request) noexcept             # what the plan knows; row.url is its target
    # The pieces of a request: the target's head, the lines that are its own, its body: in the plan, or as its talk has it.
    cdef int compose(self, RequestStream* s) except -1
    cdef int answered(self, RequestStream* s, bint goes_on) except -1         # it has ended; *goes_on*: another turn follows
    # The request has ended; unless its session *goes_on*, that has too, or else its agent with its last request.
    cdef int over(self, uint32_t request, bint goes_on) except -1
    cdef int _name(self, uint32_t request, int32_t slot) noexcept             # who identity speaks of
    cdef uint8_t* _own_lines(self, RequestStream* s) except NULL      # where they go
    cdef int _set_head(self, Py_ssize_t place, bytes head, uint8_t dialect, uint8_t id_tag) except -1
