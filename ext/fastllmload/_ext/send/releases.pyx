"""When which request is sent, and what follows its end.

In an open loop the pacer's schedule says when: nothing is ever waited for. Without an idle connection a release opens one,
and the row says so; only a cap on what is in flight (--max-concurrency) makes a release late on purpose. In a closed loop
the schedule starts each slot once, and the end of a slot's request sends its next.

Conversations: the schedule releases their first turns. When a reply has ended, the turn after it is stitched and put among
the pacer's followers, due some time to think later; so it is released like everything else, and is late like everything
else.
"""

from libc.stdint cimport uint64_t

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.plan.dues cimport dues_pop, dues_push
from fastllmload._ext.plan.slots cimport Slot
from fastllmload._ext.plan.talk cimport Talks
from fastllmload._ext.receive.exchange cimport exchange_open
from fastllmload._ext.receive.protocol cimport Protocol
from fastllmload._ext.record.histogram cimport HDR_WORDS, hdr_record
from fastllmload._ext.record.recorder cimport FLAG_LATE_CONNECT, FLAG_REUSED, RequestRow
from fastllmload._ext.send.conn cimport C_IDLE, list_add, list_remove
from fastllmload._ext.system.clock cimport mono_ns


cdef class Releases(Transport):
    """What a worker sends of a phase. *timeout_ns*: of each request; the rest is the Transport's."""

    def __init__(self, Protocol protocol not None, Pacer pacer not None, *, bytes run_id, int worker, int workers,
                 int64_t timeout_ns, bint kernel_stamps, bint fresh_connections, sources=()):
        Transport.__init__(self, protocol, kernel_stamps, fresh_connections, sources)
        self.pacer = pacer
        self.share = Share(run_id, worker, workers)
        self.slots = Slots()
        self.timeout = timeout_ns
        self.lag.counts = self.words + k.WORDS + k.H_LAG * HDR_WORDS

    cdef int arm(self, int64_t now) except -1:
        """Wake when the next release is due; a loop that is at its cap is woken by the end of a request alone."""
        if self.cap and self.flight.count >= self.cap:
            return 0
        return self.pacer.arm(now)

    cdef int release(self, int64_t now) except -1:
        """Send everything that is due: never wait, never skip, never re-anchor."""
        cdef int64_t due, backlog = 0
        cdef uint32_t request
        cdef Talk* talk
        while self.sending:
            due = self.pacer.due()
            if due > now or (self.cap and self.flight.count >= self.cap):
                break
            backlog += 1
            if self.pacer.follower_is_next():
                talk = <Talk*><size_t>dues_pop(&self.pacer.followers)
                self._dispatch(talk.request, due, talk.slot, talk)
                continue
            request = self.share.numbered(self.slots.issued if self.closed else <uint64_t>self.pacer.next)
            if self.closed:
                self.slots.issued += 1
            self.pacer.next += 1
            self._dispatch(request, due, <int32_t>(self.pacer.next - 1) if self.closed else -1, NULL)
        if backlog > self.words[k.W_BACKLOG_MAX]:
            self.words[k.W_BACKLOG_MAX] = backlog
        return 0

    cdef bint may_issue(self, int64_t now) noexcept:
        """A closed loop may send one more request."""
        return (self.sending and not self.words[k.W_DISK_FULL] and self.slots.left()
                and (not self.stop_at or now < self.stop_at))

    cdef int refill(self, int64_t now) except -1:
        """Closed loop: freed slots send at once."""
        cdef Slot slot
        cdef uint32_t request
        self.slots.wake(now)
        while self.slots.freed:
            slot = self.slots.take()
            if self.may_issue(now):
                request = self.share.numbered(self.slots.issued)
                self.slots.issued += 1
                self._dispatch(request, slot.at, slot.number, NULL)
        return 0

    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int32_t slot, Talk* talk) except -1:
        """Send a request. *talk*: the conversation that it continues; the one that it begins is made here."""
        cdef int64_t now = mono_ns()
        cdef uint32_t number, planned = request % self.share.plan_size
        cdef RequestRow* row = self.protocol.recorder.open_row(&number)
        cdef Conn* c = NULL
        cdef Talks talks = self.share.talks
        cdef bint pooled = not self.pool.fresh and not self.users.reads_slowly(planned)
        if row == NULL:
            self.words[k.W_DISK_FULL] = 1
            self.sending = False
            if talk != NULL:
                talks.end(talk)
            return 0
        if talk == NULL and talks is not None and talks.follows(planned):
            talk = talks.begin(slot)
        self.share.fill(row, request)
        row.t_sched = t_sched
        row.t_dispatch = now
        self.words[k.W_RELEASED] += 1
        if row.phase == r.PHASE_MEASURE:
            hdr_record(&self.lag, now - t_sched)
            if t_sched - now > 1000:
                self.words[k.W_EARLY] += 1
        if pooled:
            c = self.pool.take(row.url)
            if c == NULL:
                row.flags |= FLAG_LATE_CONNECT
                self.words[k.W_LATE_CONNECTS] += 1
        if c == NULL:
            c = self.pool.make(row.url)
        if c.served:
            row.flags |= FLAG_REUSED
        c.x.row = row
        c.x.number = number
        c.x.reused = c.served > 0
        c.request = request
        c.slot = slot
        c.deadline = now + self.timeout
        list_add(&self.flight, c)
        self.words[k.W_IN_FLIGHT] = self.flight.count
        exchange_open(&c.x)
        c.x.row.stream_begin = c.x.now.end
        c.talk = talk
        if talk != NULL:
            c.x.keep = talks.wants_reply(planned)
            talk.request = request          # the body lives in it until it is sent
        self.share.compose(c, talk)
        if not self.users.only_wait:
            self.users.send(c, planned, now)
        return self.send(c, now) if c.state == C_IDLE else self.connect(c)

    cdef int ended(self, Conn* c, int64_t user_t) except -1:
        """Its slot is free, and the next turn of its conversation follows.

        What that makes due is not sent here: a request that fails at once ends inside of release() or refill(), as deep as
        that many fail in a row. The handler of an event calls these two afterwards, in every entry of the loop.
        """
        cdef int32_t slot = c.slot
        cdef bint goes_on = c.talk != NULL and self._goes_on(c)
        list_remove(&self.flight, c)
        self.words[k.W_IN_FLIGHT] = self.flight.count
        c.slot = -1
        if not self.closed or slot < 0 or not self.sending or goes_on:
            return 0
        return self.slots.free(slot, not self.protocol.last_ok and not self.protocol.last_left, user_t)

    cdef bint _goes_on(self, Conn* c) except -1:
        """Whether another turn follows: it is stitched now, and due after some time to think (metrics: t_sched).

        A turn that was not answered well ends its conversation, and so does the end of sending.
        """
        cdef Talk* talk = c.talk
        cdef Talks talks = self.share.talks
        cdef uint32_t planned = c.request % self.share.plan_size
        cdef int64_t due
        c.talk = NULL
        if self.sending and self.protocol.last_ok and talks.follows(planned):
            due = self.protocol.last_t + talks.think_ns(planned)
            if not self.stop_at or due < self.stop_at:
                talks.stitch(talk, planned, c.x.reply, c.x.reply_size, c.x.calls)
                talk.request = c.request + 1
                talk.slot = c.slot
                dues_push(&self.pacer.followers, due, <uint64_t><size_t>talk)
                return True
        talks.end(talk)
        return False

    cdef int end_talks(self) noexcept:
        """Turns that were still to come are not sent."""
        while self.pacer.followers.count:
            self.share.talks.end(<Talk*><size_t>dues_pop(&self.pacer.followers))
        return 0
