# Conversations while they go on: which turn comes next, and the body that it will have. No socket, no clock.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from fastllmload._ext.events.calls cimport Calls, CallList, Text
from fastllmload._ext.plan.bodies cimport Bodies

cdef enum TurnFlag:
    TURN_LAST = 1           # nothing follows in this conversation
    TURN_STITCHED = 2       # its body is the body so far and its own messages; else it is whole in the plan
    TURN_REPLY = 4          # with the reply to the turn before, as it came
    TURN_STORED = 8         # the server has all before it, and its body has the reply's id

cdef packed struct Turn:    # an item of turns.npy
    int64_t think_ns        # from the end of the reply before it
    uint32_t skip           # bytes at the start of its body in the plan that a stitched one does not repeat
    uint32_t reply_at       # where in its body the reply's text goes; 0: in front, as a message of its own
    uint32_t tail           # bytes at the end of its body that are not part of the conversation
    uint32_t session
    uint16_t turn           # from 0
    uint16_t flags          # TurnFlag
    uint32_t spare

cdef struct Talk:
    uint32_t request        # the turn that comes next
    int32_t slot            # closed loop: the slot that the conversation fills; -1 otherwise
    unsigned char* body     # of the latest stitched turn; owned
    size_t size             # 0 before the first one
    size_t cap

cdef inline void talk_free(Talk* talk) noexcept nogil:
    free(talk.body)
    free(talk)

cdef class Talks:
    # The conversations of a phase. One per worker.
    cdef const Turn[::1] turns
    cdef const uint64_t[::1] body_offset
    cdef const uint8_t[::1] bodies
    cdef Bodies near                        # the same, where they can be read
    cdef list joints                        # (before, behind, between) of each class: around a reply, and between messages
    cdef list tools                         # ToolTurns of each class, or None
    cdef const uint16_t[::1] request_class  # None: there is one class
    cdef uint32_t sessions                  # in the whole plan
    cdef Text scratch                       # owned
    cdef readonly uint32_t alive            # begun and not ended
    cdef bint follows(self, uint32_t planned) noexcept              # a turn comes after this one
    cdef bint wants_reply(self, uint32_t planned) noexcept          # and carries the reply to it
    cdef int64_t think_ns(self, uint32_t planned) noexcept          # before the turn after this one
    cdef Talk* begin(self, int32_t slot) except NULL
    cdef void end(self, Talk* talk) noexcept
    # The body of the turn after *planned*, whose reply is *reply*, the inside of a JSON string, and *calls* with its
    # thoughts, NULL for none.
    cdef int stitch(self, Talk* talk, uint32_t planned, const unsigned char* reply, size_t size, Calls* calls) except -1
    cdef bint _stitch_calls(self, Talk* talk, uint32_t planned, const unsigned char* reply, size_t size,
                            Calls* calls) except? False
    cdef int _stitch_stored(self, Talk* talk, uint32_t planned, Calls* calls) except -1
    cdef Py_ssize_t _class(self, uint32_t planned) noexcept
    cdef int _add_planned(self, Talk* talk, uint64_t at, size_t size) except -1       # bytes of the plan's bodies
    cdef int _add(self, Talk* talk, const unsigned char* data, size_t size) except -1
