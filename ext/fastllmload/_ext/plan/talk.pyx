"""Sessions while they go on.

A conversation is a session in which each turn follows the one before it. A plan with edges has graphs of requests instead: a
request is due some time after the latest of the instants that it waits for, each the end of a reply, or the instant at which
another request was due. All requests of a session are consecutive in the plan.

A turn has a body of its own in the plan, as if it were the first. The body of a later turn is stitched when the reply before
it has ended, not when it is due: the body so far without its tail (the fields after the messages), then the reply, then the
turn's own body without its head. What a server streamed is the inside of JSON strings already, so nothing is decoded or
encoded. A body only grows, so one buffer per conversation does.
"""

from libc.stdlib cimport calloc, realloc
from libc.string cimport memcpy, memset

from fastllmload._ext.events.calls cimport text_add, text_free
from fastllmload._ext.plan.dues cimport Dues, dues_first, dues_free, dues_pop, dues_push
from fastllmload._ext.plan.leaving cimport Leaving
from fastllmload._ext.plan.toolturn cimport ToolTurns
from fastllmload._ext.system.life cimport LIFE_CONVERSATION, life_begins, life_ends

import numpy as np


def turn_dtype():
    """numpy dtype of Turn, taken from the compiled struct itself."""
    cdef Turn turn
    return np.asarray(<Turn[:1]>&turn).dtype


def leaving_dtype():
    """numpy dtype of Leaving, taken from the compiled struct itself."""
    cdef Leaving user
    return np.asarray(<Leaving[:1]>&user).dtype


def edge_dtype():
    """numpy dtype of Edge, taken from the compiled struct itself."""
    cdef Edge edge
    return np.asarray(<Edge[:1]>&edge).dtype


def piece_dtype():
    """numpy dtype of Piece, taken from the compiled struct itself."""
    cdef Piece piece
    return np.asarray(<Piece[:1]>&piece).dtype


def in_order(list instants) -> list:
    """*instants* as the heap of dues gives them back: for tests."""
    cdef Dues dues
    memset(&dues, 0, sizeof(Dues))
    for number, instant in enumerate(instants):
        dues_push(&dues, instant, number)
    found = []
    while dues.count:
        found.append((dues_first(&dues), dues_pop(&dues)))
    dues_free(&dues)
    return found


cdef inline bint has_more(const Calls* calls) noexcept nogil:
    # Than text.
    return calls != NULL and (calls.count or (calls.thoughts != NULL and calls.thoughts.count))


cdef class Talks:
    """*turns*, *body_offset* and *bodies* are a plan's; *joints*: what is before and after a reply and between
    messages, of each class of *request_class*; without that there is one. *near*: the bodies in their file. *tools*: how
    each class repeats tool calls; where it does not, the text of a reply alone is carried. *edges* and *first_edge*: of graphs,
    in which session s has the requests first_request[s] to first_request[s + 1]. *pieces*: of bodies, which *body_offset* counts.
    """

    def __init__(self, const Turn[::1] turns not None, const uint64_t[::1] body_offset not None,
                 const uint8_t[::1] bodies not None, list joints not None, uint32_t sessions,
                 const uint16_t[::1] request_class=None, Bodies near=None, list tools=None, const Edge[::1] edges=None,
                 const uint32_t[::1] first_edge=None, const uint32_t[::1] first_request=None, const Piece[::1] pieces=None):
        self.turns = turns
        self.body_offset = body_offset
        self.bodies = bodies
        self.near = Bodies(bodies) if near is None else near
        self.joints = joints
        self.tools = [None] * len(joints) if tools is None else tools
        self.request_class = request_class
        self.sessions = sessions
        self.edges = edges
        self.first_edge = first_edge
        self.first_request = first_request
        self.pieces = pieces

    def __dealloc__(self):
        text_free(&self.scratch)

    cdef Py_ssize_t _class(self, uint32_t planned) noexcept:
        return 0 if self.request_class is None else self.request_class[planned]

    cdef bint follows(self, uint32_t planned) noexcept:
        return not self.turns[planned].flags & TURN_LAST

    cdef bint wants_reply(self, uint32_t planned) noexcept:
        cdef uint32_t number
        if self.edges is None:
            return self.follows(planned) and self.turns[planned + 1].flags & TURN_REPLY
        for number in range(self.first_edge[planned], self.first_edge[planned + 1]):
            if self.edges[number].flags & EDGE_CONTEXT and self.turns[self.edges[number].target].flags & TURN_REPLY:
                return True
        return False

    cdef int64_t think_ns(self, uint32_t planned) noexcept:
        return self.turns[planned + 1].think_ns

    cdef Talk* begin(self, int32_t slot) except NULL:
        cdef Talk* talk = <Talk*>calloc(1, sizeof(Talk))
        if talk == NULL:
            raise MemoryError("conversation")
        talk.slot = slot
        self.alive += 1
        life_begins(LIFE_CONVERSATION)
        return talk

    cdef Talk* begin_session(self, uint32_t planned, int32_t slot) except NULL:
        cdef Talk* talk = self.begin(slot)
        cdef uint32_t number = self.turns[planned].session
        cdef Session* session
        if self.edges is None or not self.follows(planned):
            return talk
        session = <Session*>calloc(1, sizeof(Session))
        if session != NULL:
            session.first = self.first_request[number]
            session.count = self.first_request[number + 1] - session.first
            session.open = 1
            session.requests = <Waiting*>calloc(session.count, sizeof(Waiting))
        if session == NULL or session.requests == NULL:
            raise MemoryError("session")
        talk.session = session
        return talk

    cdef void end(self, Talk* talk) noexcept:
        cdef Session* session = talk.session
        talk.session = NULL
        if session != NULL:
            self._leave(session)
        talk_free(talk)
        self.alive -= 1
        life_ends(LIFE_CONVERSATION)

    cdef void _leave(self, Session* session) noexcept:
        cdef uint32_t i
        if session.open == 1:
            for i in range(session.count):
                if session.requests[i].talk != NULL:
                    self.alive -= 1
                    life_ends(LIFE_CONVERSATION)
        session_leave(session)

    cdef int gather(self, Talk* talk, uint32_t planned) except -1:
        cdef uint64_t number
        cdef size_t size = 0
        for number in range(self.body_offset[planned], self.body_offset[planned + 1]):
            size += self.pieces[number].size
        self._reserve(talk, size)
        talk.size = 0
        for number in range(self.body_offset[planned], self.body_offset[planned + 1]):
            self._add(talk, &self.bodies[0] + self.pieces[number].at, self.pieces[number].size)
        return 0

    cdef bint advance_session(self, Talk* talk, uint32_t planned, int64_t t, uint32_t when, int64_t until, Dues* dues,
                              const unsigned char* reply, size_t size, Calls* calls) except? True:
        cdef Session* session = talk.session
        cdef uint32_t earlier = talk.request - planned      # of rounds of the plan before this one
        cdef uint32_t number, target, continued = 0 if when else self._continued(planned)
        cdef int32_t slot = talk.slot
        cdef const Edge* edge
        cdef Waiting* waiting
        cdef bint goes_on
        for number in range(self.first_edge[planned], self.first_edge[planned + 1]):
            edge = &self.edges[number]
            if edge.flags & EDGE_START != when:
                continue
            target = edge.target
            waiting = &session.requests[target - session.first]
            waiting.known += 1
            waiting.due = max(waiting.due, t + edge.wait_ns)
            if edge.flags & EDGE_CONTEXT and self.turns[target].flags & TURN_STITCHED:
                continued -= 1
                waiting.talk = self._copy(talk) if continued else talk
                self.stitch(waiting.talk, planned, target, reply, size, calls)
                if not continued:
                    talk = NULL
            if waiting.known == self.turns[target].waits_for:
                self._is_due(session, target, target + earlier, slot, until, dues)
        if when:
            return True
        goes_on = session.open > 1
        self.cut = session.cut
        if talk != NULL:
            self.end(talk)
        else:
            self._leave(session)
        return goes_on

    cdef uint32_t _continued(self, uint32_t planned) noexcept:
        """Requests whose bodies are made from that of *planned*."""
        cdef uint32_t number, found = 0
        for number in range(self.first_edge[planned], self.first_edge[planned + 1]):
            if self.edges[number].flags & EDGE_CONTEXT and self.turns[self.edges[number].target].flags & TURN_STITCHED:
                found += 1
        return found

    cdef int _is_due(self, Session* session, uint32_t planned, uint32_t request, int32_t slot, int64_t until, Dues* dues) except -1:
        cdef Waiting* waiting = &session.requests[planned - session.first]
        cdef int64_t due = waiting.due + self.turns[planned].think_ns
        cdef Talk* talk = waiting.talk
        if until and due >= until:
            session.cut = True
            return 0
        if talk == NULL:
            talk = self.begin(slot)
        waiting.talk = NULL
        talk.session = session
        talk.request = request
        session.open += 1
        return dues_push(dues, due, <uint64_t><size_t>talk)

    cdef Talk* _copy(self, Talk* talk) except NULL:
        cdef Talk* copy = self.begin(talk.slot)
        self._add(copy, talk.body, talk.size)
        return copy

    cdef int stitch(self, Talk* talk, uint32_t previous, uint32_t planned, const unsigned char* reply, size_t size,
                    Calls* calls) except -1:
        cdef const Turn* after = &self.turns[planned]
        cdef uint64_t at = self.body_offset[previous]
        cdef uint64_t end = self.body_offset[previous + 1]
        cdef bytes before, closing, between
        if not after.flags & TURN_STITCHED:
            talk.size = 0
            return 0
        if after.flags & TURN_STORED and self.tools[self._class(planned)] is not None:
            return self._stitch_stored(talk, planned, calls)
        if talk.size:
            talk.size -= self.turns[previous].tail
        else:
            self._add_planned(talk, at, end - at - self.turns[previous].tail)
        at, end = self.body_offset[planned], self.body_offset[planned + 1]
        before, closing, between = self.joints[self._class(planned)]
        if after.flags & TURN_REPLY and has_more(calls) and self._stitch_calls(talk, planned, reply, size, calls):
            return 0
        if not after.flags & TURN_REPLY or after.reply_at:
            self._add(talk, between, len(between))
            if after.reply_at:
                self._add_planned(talk, at + after.skip, after.reply_at - after.skip)
                self._add(talk, reply, size)
                return self._add_planned(talk, at + after.reply_at, end - at - after.reply_at)
        else:
            self._add(talk, before, len(before))
            self._add(talk, reply, size)
            self._add(talk, closing, len(closing))
        return self._add_planned(talk, at + after.skip, end - at - after.skip)

    cdef bint _stitch_calls(self, Talk* talk, uint32_t planned, const unsigned char* reply, size_t size,
                            Calls* calls) except? False:
        """The same with *calls* and thoughts; False: the turn's own messages are such that the text alone can be carried."""
        cdef const Turn* after = &self.turns[planned]
        cdef uint64_t own = self.body_offset[planned] + after.skip
        cdef size_t own_size = <size_t>(self.body_offset[planned + 1] - own)
        cdef bytes between = self.joints[self._class(planned)][2]
        cdef ToolTurns tools = self.tools[self._class(planned)]
        if tools is None:
            return False
        self.scratch.size = 0
        if after.reply_at == 0:
            tools.add_reply(&self.scratch, reply, size, calls, after.turn)
        elif not tools.add_turn(&self.scratch, self.near.whole(own, own_size), own_size, after.reply_at - after.skip, reply, size,
                                calls, after.turn):
            return False
        self._add(talk, between, len(between))
        self._add(talk, self.scratch.at, self.scratch.size)
        if after.reply_at == 0:
            self._add(talk, between, len(between))
            self._add_planned(talk, own, own_size)
        return True

    cdef int _stitch_stored(self, Talk* talk, uint32_t planned, Calls* calls) except -1:
        """The turn's own body, without what is in the reply, and the reply's id."""
        cdef const Turn* after = &self.turns[planned]
        cdef uint64_t at = self.body_offset[planned]
        cdef size_t size = <size_t>(self.body_offset[planned + 1] - at)
        cdef const unsigned char* body = self.near.whole(at, size)
        cdef ToolTurns tools = self.tools[self._class(planned)]
        talk.size = self.scratch.size = 0
        text_add(&self.scratch, body, after.skip)
        tools.add_stored(&self.scratch, body + after.skip, size - after.skip, after.reply_at - after.skip if after.reply_at else 0,
                         calls, after.turn)
        return self._add(talk, self.scratch.at, self.scratch.size)

    cdef int _add_planned(self, Talk* talk, uint64_t at, size_t size) except -1:
        return self._add(talk, self.near.whole(at, size), size) if size else 0

    cdef int _reserve(self, Talk* talk, size_t size) except -1:
        cdef size_t cap = talk.cap if talk.cap else 4096
        cdef unsigned char* grown
        if size > talk.cap:
            while cap < size:
                cap *= 2
            grown = <unsigned char*>realloc(talk.body, cap)
            if grown == NULL:
                raise MemoryError(f"{cap} bytes for a conversation")
            talk.body = grown
            talk.cap = cap
        return 0

    cdef int _add(self, Talk* talk, const unsigned char* data, size_t size) except -1:
        self._reserve(talk, talk.size + size)
        memcpy(talk.body + talk.size, data, size)
        talk.size += size
        return 0

    def joined(self, int first, list replies, list called=None) -> list:
        """Bodies of the turns from request *first* on, with *replies* (escaped) as the server's and, where *called* has a
        CallList for one, its calls: for tests and previews.
        """
        cdef Talk* talk = self.begin(-1)
        cdef uint32_t planned = <uint32_t>first
        cdef CallList calls
        bodies = [bytes(self.bodies[self.body_offset[planned]:self.body_offset[planned + 1]])]
        try:
            for number, reply in enumerate(replies):
                calls = None if called is None else called[number]
                self.stitch(talk, planned, planned + 1, <const unsigned char*><bytes>reply, len(reply),
                            NULL if calls is None else calls.calls)
                planned += 1
                whole = bytes(self.bodies[self.body_offset[planned]:self.body_offset[planned + 1]])
                bodies.append(talk.body[:talk.size] if talk.size else whole)
        finally:
            self.end(talk)
        return bodies
