"""When which request is sent, and what follows its end.

In an open loop the pacer's schedule says when: nothing is ever waited for. Without an idle connection a release opens one,
and the row says so; only a cap on what is in flight (--max-concurrency) or on what waits for its first token (--max-prefill)
makes a release late on purpose. In a closed loop the schedule opens slots, most often each once and all at time zero, and the
end of a slot's request sends its next. Classes that are closed loops next to open ones have slots of their own, whose openings
stand among the arrivals. Held back by --max-prefill, what has been due longest goes first.

Sessions: the schedule releases their first requests. When a reply has ended, the turn after it, or what else waits for it and
for nothing more, is stitched and put among the pacer's followers, due some time later; so it is released like everything
else, and is late like everything else.

An end is a value: what ends requests puts them into `Protocol.ended`, and `handle_ends` takes them from there, before the next
connection is taken. So nothing is sent from inside of what has just failed.
"""

from libc.stdint cimport uint8_t, uint64_t

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.plan.dues cimport dues_pop, dues_push
from fastllmload._ext.plan.slots cimport Slot
from fastllmload._ext.plan.talk cimport EDGE_START, Talks
from fastllmload._ext.receive.exchange cimport Exchange, ended_take, left_by_user
from fastllmload._ext.record.histogram cimport HDR_WORDS, hdr_record
from fastllmload._ext.record.recorder cimport FLAG_LATE_CONNECT, RequestRow
from fastllmload._ext.send.connection cimport C_CONNECTING, list_add, list_remove
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.system.life cimport LIFE_IN_FLIGHT, life_begins, life_ends


cdef class Releases:
    """What a worker sends of a phase, by *transport*. *timeout_ns*: of each request."""

    def __init__(self, Transport transport not None, Pacer pacer not None, Share share not None, int64_t timeout_ns):
        self.transport = transport
        self.protocol = transport.protocol
        self.pool = transport.pool
        self.users = transport.users
        self.pacer = pacer
        self.share = share
        self.slots = Slots()
        self.timeout = timeout_ns
        self.words = transport.words
        self.lag.counts = self.words + k.WORDS + k.H_LAG * HDR_WORDS

    cdef int arm(self, int64_t now) except -1:
        """Wake when the next release is due; a loop that is at its cap is woken by an end or a first token alone."""
        if self.held():
            return 0
        return self.pacer.arm(now)

    cdef int release(self, int64_t until, int64_t now) except -1:
        """Send everything that is due at *until*: never wait, never skip, never re-anchor. What --max-prefill has held back in a
        slot up to its end is not sent.
        """
        cdef int64_t due, backlog = 0
        cdef Py_ssize_t place
        cdef Talk* talk
        cdef bint over = self.most_waiting and self.closed and self.stop_at and now >= self.stop_at
        while self.sending:
            due = self.pacer.due()
            if due > until or (self.held() and not (over and self.of_slot())):
                break
            backlog += 1
            if self.pacer.follower_is_next():
                talk = <Talk*><size_t>dues_pop(&self.pacer.followers)
                if over and talk.slot >= 0:
                    self._end_talk(talk)
                    continue
                self._dispatch(talk.request, due, talk.slot, talk)
                continue
            place = self.pacer.next
            self.pacer.next += 1
            if place != self.opening:
                self._dispatch(self.share.numbered(<uint64_t>(place - self.opened)), due, -1, NULL)
                continue
            self._open_slot(place, due, now, over)
        if backlog > self.words[k.W_BACKLOG_MAX]:
            self.words[k.W_BACKLOG_MAX] = backlog
        return 0

    cdef int _open_slot(self, Py_ssize_t place, int64_t due, int64_t now, bint over) except -1:
        cdef uint32_t pool = self.opening_pool
        cdef bint own = self.slots.keeps(pool)
        cdef int32_t slot
        self.opened += 1
        self._next_opening()
        slot = self.slots.open(pool, due - self.pacer.start)
        if over or (self.slots.varies and not own
                    and (slot < 0 or not self.may_issue(now) or not self.slots.pool_left(slot))):
            return 0
        return self._dispatch(self._own_request(pool, place) if own else self.next_request(slot), due, slot, NULL)

    cdef bint of_slot(self) noexcept:
        if self.pacer.follower_is_next():
            return (<Talk*><size_t>self.pacer.followers.at[0].what).slot >= 0
        return self.pacer.next == self.opening

    cdef int open_at(self, const int64_t[::1] places, const uint32_t[::1] pools, Py_ssize_t count) except -1:
        self.opening_places = places
        self.opening_pools = pools
        self.openings = count
        self.opened = 0
        return self._next_opening()

    cdef int _next_opening(self) noexcept:
        self.opening = -1
        if self.opened < self.openings:
            self.opening = self.opened if self.opening_places is None else self.opening_places[self.opened]
            self.opening_pool = 0 if self.opening_pools is None else self.opening_pools[self.opened]
        return 0

    cdef uint32_t next_request(self, int32_t slot) noexcept:
        if self.slots.pools != NULL:
            return self.slots.next_request(slot)
        self.slots.issued += 1
        return self.share.numbered(self.slots.issued + self.slots.kept - 1)

    cdef uint32_t _own_request(self, uint32_t pool, Py_ssize_t place) noexcept:
        self.slots.kept -= 1
        self.slots.issued += 1
        return self.share.numbered(<uint64_t>place) if self.slots.pools == NULL else self.slots.own_request(pool)

    cdef bint may_issue(self, int64_t now) noexcept:
        """Slots may send one more request."""
        return (self.sending and not self.words[k.W_DISK_FULL] and self.slots.left()
                and (not self.stop_at or now < self.stop_at))

    cdef int refill(self, int64_t now) except -1:
        """Freed slots send at once, or, where --max-prefill holds them back, in the order in which all became due."""
        cdef Slot slot
        self.slots.wake(now)
        while self.slots.freed:
            if self.most_waiting:
                self.release(self.slots.first_at(), now)
                if self.held() and self.may_issue(now):
                    break
            slot = self.slots.take()
            if self.slots.varies and not self.slots.stays(slot.number, (now if self.most_waiting else slot.at) - self.pacer.start):
                continue
            if self.may_issue(now) and self.slots.pool_left(slot.number):
                self._dispatch(self.next_request(slot.number), slot.at, slot.number, NULL)
        return 0

    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int32_t slot, Talk* talk) except -1:
        """Send a request. *talk*: the conversation that it continues; the one that it begins is made here."""
        cdef int64_t now = mono_ns()
        cdef uint32_t number, planned = request % self.share.plan_size
        cdef RequestRow* row = self.protocol.recorder.open_row(&number)
        cdef RequestStream* stream = NULL
        cdef Talks talks = self.share.talks
        cdef bint pooled = not self.pool.fresh and not self.users.reads_slowly(planned)
        if row == NULL:
            self.words[k.W_DISK_FULL] = 1
            self.sending = False
            if talk != NULL:
                talks.end(talk)
            return 0
        if talk == NULL and talks is not None and (talks.follows(planned) or talks.pieces is not None):
            talk = talks.begin_session(planned, slot)
        self.share.fill(row, request)
        row.t_sched = t_sched
        row.t_dispatch = now
        self.words[k.W_RELEASED] += 1
        if row.phase == r.PHASE_MEASURE:
            if slot < 0 or not self.mixed:
                hdr_record(&self.lag, now - t_sched)
            if t_sched - now > 1000:
                self.words[k.W_EARLY] += 1
        if pooled:
            stream = self.pool.reuse(row.url)
            if stream == NULL or stream.connection.state == C_CONNECTING:
                row.flags |= FLAG_LATE_CONNECT
                self.words[k.W_LATE_CONNECTS] += 1
        if stream == NULL:
            stream = self.pool.begin(row.url)
        stream.x.row = row
        stream.x.number = number
        stream.request = request
        stream.slot = slot
        stream.deadline = now + self.timeout
        stream.leave_tokens = 0
        list_add(&self.flight, &stream.link)
        life_begins(LIFE_IN_FLIGHT)
        self.words[k.W_IN_FLIGHT] = self.flight.count
        self.words[k.W_WAITING] += 1
        self.transport.open(stream)
        stream.talk = talk
        if talk != NULL:
            stream.x.keep = talks.wants_reply(planned)
            talk.request = request          # the body lives in it until it is sent
            if talks.pieces is not None:
                talks.gather(talk, planned)
            if talk.session != NULL:
                talks.advance_session(talk, planned, t_sched, EDGE_START, self.stop_at, &self.pacer.followers, NULL, 0, NULL)
        self.share.compose(stream)
        if not self.users.only_wait:
            self.users.send(stream, planned, now)
        self.transport.submit(stream, now)
        return self.handle_ends()           # it may have failed

    cdef int handle_ends(self) except -1:
        """Their slots are free, and the next turns of their conversations follow."""
        cdef Exchange* x
        cdef RequestStream* s
        cdef bint goes_on, of_session
        while True:
            x = ended_take(&self.protocol.ended)
            if x == NULL:
                return 0
            s = <RequestStream*>x
            of_session = s.talk != NULL
            goes_on = of_session and self._goes_on(s)
            if self.share.identity is not None:
                self.share.answered(s, goes_on)
                self.share.over(s.request, goes_on)
            list_remove(&self.flight, &s.link)
            life_ends(LIFE_IN_FLIGHT)
            self.words[k.W_IN_FLIGHT] = self.flight.count
            if self.closed and s.slot >= 0 and self.sending and not goes_on and not (of_session and self.share.talks.cut):
                self.slots.free(s.slot, x.end.status != r.STATUS_OK and not left_by_user(&x.end), x.end.user_t)
            if s.many:
                self.pool.release(s)

    cdef bint _goes_on(self, RequestStream* s) except -1:
        """Whether more of the session follows: what comes next is stitched now, and due some time later (metrics: t_sched).

        What waits for a request that was not answered well is never sent, nor is anything after the end of sending: a session that is
        cut by that holds its slot as if it waited.
        """
        cdef Talk* talk = s.talk
        cdef Talks talks = self.share.talks
        cdef uint32_t planned = s.request % self.share.plan_size
        cdef bint good = self.sending and s.x.end.status == r.STATUS_OK and talks.follows(planned)
        cdef bint goes_on
        cdef int64_t due
        s.talk = NULL
        talks.cut = False
        if talk.session != NULL:
            if good:
                return talks.advance_session(talk, planned, s.x.end.t, 0, self.stop_at, &self.pacer.followers, s.x.reply,
                                     s.x.reply_size, s.x.calls)
            goes_on = talk.session.open > 1
            talks.cut = talk.session.cut
            talks.end(talk)
            return goes_on
        if good:
            due = s.x.end.t + talks.think_ns(planned)
            if not self.stop_at or due < self.stop_at:
                talks.stitch(talk, planned, planned + 1, s.x.reply, s.x.reply_size, s.x.calls)
                talk.request = s.request + 1
                talk.slot = s.slot
                dues_push(&self.pacer.followers, due, <uint64_t><size_t>talk)
                return True
            talks.cut = True
        talks.end(talk)
        return False

    cdef int cancel_overdue(self, int64_t until, int64_t now) except -1:
        cdef RequestStream* s
        while self.flight.oldest != NULL:
            s = <RequestStream*>self.flight.oldest.item
            if s.deadline > until:
                break
            self.transport.time_out(s, now)
            self.handle_ends()
        return 0

    cdef int cancel_left(self, int64_t now) except -1:
        cdef RequestStream* s
        cdef uint8_t why = r.ERROR_NONE
        while self.users.leaves.count:
            s = self.users.leaver(self.pool, self.share.plan_size, now, &why)
            if s == NULL:
                break
            self.transport.cancel(s, r.STATUS_CANCELLED, why, now)
        return self.handle_ends()

    cdef int cancel_all(self, int64_t now) except -1:
        while self.flight.oldest != NULL:
            self.transport.cancel(<RequestStream*>self.flight.oldest.item, r.STATUS_CANCELLED, r.ERROR_DRAIN, now)
            self.handle_ends()
        return 0

    cdef int end_talks(self) except -1:
        """Turns that were still to come are not sent."""
        while self.pacer.followers.count:
            self._end_talk(<Talk*><size_t>dues_pop(&self.pacer.followers))
        return 0

    cdef int _end_talk(self, Talk* talk) except -1:
        if talk.session == NULL or talk.session.open == 1:
            self.share.over(talk.request, False)
        self.share.talks.end(talk)
        return 0
