# Sessions while they go on: which request comes next, when, and the body that it will have. No socket, no clock.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from fastllmload._ext.events.calls cimport Calls, CallList, Text
from fastllmload._ext.plan.bodies cimport Bodies
from fastllmload._ext.plan.dues cimport Dues

cdef enum TurnFlag:
    TURN_LAST = 1           # nothing waits for its end
    TURN_STITCHED = 2       # its body is the body so far and its own messages; else it is whole in the plan
    TURN_REPLY = 4          # with the reply to the turn before, as it came
    TURN_STORED = 8         # the server has all before it, and its body has the reply's id

cdef packed struct Turn:    # an item of turns.npy
    int64_t think_ns        # from the latest of the instants that it waits for
    uint32_t skip           # bytes at the start of its body in the plan that a stitched one does not repeat
    uint32_t reply_at       # where in its body the reply's text goes; 0: in front, as a message of its own
    uint32_t tail           # bytes at the end of its body that are not part of the conversation
    uint32_t session
    uint16_t turn           # replies that come before it, on the longest path; 0: it begins its session
    uint16_t flags          # TurnFlag
    uint32_t waits_for      # of a graph: the edges that lead to it

cdef enum EdgeFlag:
    EDGE_START = 1          # its wait begins when the source was due, not when its reply has ended
    EDGE_CONTEXT = 2        # the target continues the source's conversation

cdef packed struct Edge:    # an item of edges.npy, by source
    int64_t wait_ns
    uint32_t source         # requests of the plan
    uint32_t target
    uint32_t flags          # EdgeFlag
    uint32_t spare

cdef packed struct Piece:   # an item of pieces.npy: bytes of the plan's bodies
    uint64_t at
    uint64_t size

cdef struct Waiting:        # a request of a session that is not due yet
    int64_t due             # the latest instant of those that are known
    Talk* talk              # its conversation so far; owned; NULL: none
    uint32_t known          # edges whose instant is known

cdef struct Session:        # of a graph, until all of it has ended
    Waiting* requests       # owned; all of the session, in the order of the plan
    uint32_t first          # in the plan
    uint32_t count
    uint32_t open           # in flight or due
    bint cut                # something of it was due after the end of sending

cdef struct Talk:
    Session* session        # of a graph; NULL: the turns follow each other
    uint32_t request        # the turn that comes next
    int32_t slot            # closed loop: the slot that the conversation fills; -1 otherwise
    unsigned char* body     # of the latest stitched turn; owned
    size_t size             # 0 before the first one
    size_t cap

cdef inline void session_leave(Session* session) noexcept nogil:
    # One of its requests is neither in flight nor due any more; the last one frees it.
    cdef uint32_t i
    session.open -= 1
    if session.open:
        return
    for i in range(session.count):
        if session.requests[i].talk != NULL:
            free(session.requests[i].talk.body)
            free(session.requests[i].talk)
    free(session.requests)
    free(session)

cdef inline void talk_free(Talk* talk) noexcept nogil:
    if talk.session != NULL:
        session_leave(talk.session)
    free(talk.body)
    free(talk)

cdef class Talks:
    # The conversations of a phase. One per worker.
    cdef const Turn[::1] turns
    cdef const Edge[::1] edges              # None: in each session the turns follow each other
    cdef const uint32_t[::1] first_edge     # of each request, and of one more
    cdef const uint32_t[::1] first_request  # of each session, and of one more
    cdef const Piece[::1] pieces            # None: a body lies in one piece; else *body_offset* counts pieces
    cdef const uint64_t[::1] body_offset
    cdef const uint8_t[::1] bodies
    cdef Bodies near                        # the same, where they can be read
    cdef list joints                        # (before, closing, between) of each class: around a reply, and between messages
    cdef list tools                         # ToolTurns of each class, or None
    cdef const uint16_t[::1] request_class  # None: there is one class
    cdef uint32_t sessions                  # in the whole plan
    cdef Text scratch                       # owned
    cdef readonly uint32_t alive            # begun and not ended
    cdef bint cut                           # of the session that has ended last: the end of sending ended it
    cdef bint follows(self, uint32_t planned) noexcept              # a turn comes after this one
    cdef bint wants_reply(self, uint32_t planned) noexcept          # and carries the reply to it
    cdef int64_t think_ns(self, uint32_t planned) noexcept          # before the turn after this one
    cdef Talk* begin(self, int32_t slot) except NULL
    cdef Talk* begin_session(self, uint32_t planned, int32_t slot) except NULL      # of a graph, with its first request
    cdef void end(self, Talk* talk) noexcept
    cdef int gather(self, Talk* talk, uint32_t planned) except -1   # the pieces of its body
    # The body of the turn *planned*, after that of *previous*, whose reply is *reply*, the inside of a JSON string, and *calls* with
    # its thoughts, NULL for none.
    cdef int stitch(self, Talk* talk, uint32_t previous, uint32_t planned, const unsigned char* reply, size_t size,
                    Calls* calls) except -1
    # What waits for the instant *t* of request *planned* of a graph, when it was due (*when* is EDGE_START) or its reply has ended
    # (0): all whose instants are known are due, *until* that instant (0: without end). The talk may now be that of another request.
    cdef bint advance_session(self, Talk* talk, uint32_t planned, int64_t t, uint32_t when, int64_t until, Dues* dues,
                              const unsigned char* reply, size_t size, Calls* calls) except? True
    cdef int _is_due(self, Session* session, uint32_t planned, uint32_t request, int32_t slot, int64_t until, Dues* dues) except -1
    cdef Talk* _copy(self, Talk* talk) except NULL
    cdef void _leave(self, Session* session) noexcept
    cdef int _reserve(self, Talk* talk, size_t size) except -1
    cdef uint32_t _continued(self, uint32_t planned) noexcept
    cdef bint _stitch_calls(self, Talk* talk, uint32_t planned, const unsigned char* reply, size_t size,
                            Calls* calls) except? False
    cdef int _stitch_stored(self, Talk* talk, uint32_t planned, Calls* calls) except -1
    cdef Py_ssize_t _class(self, uint32_t planned) noexcept
    cdef int _add_planned(self, Talk* talk, uint64_t at, size_t size) except -1       # bytes of the plan's bodies
    cdef int _add(self, Talk* talk, const unsigned char* data, size_t size) except -1
