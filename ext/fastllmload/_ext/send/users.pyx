"""What users do besides waiting.

A user who leaves does so at an instant, or when a deadline has passed without what was waited for, or after that many
tokens. Instants count from t_submit, which is not known yet when they are noted: some are looked at again. Who leaves
after tokens is found where tokens are counted (`RequestStream.leave_tokens`).

A slow reader reads what the rate allows since the first bytes came, and leaves the rest where the server feels it.
"""

from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free, realloc

cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.plan.dues cimport dues_first, dues_free, dues_pop, dues_push
from fastllmload._ext.plan.leaving cimport CLIENT_ABANDONS, CLIENT_CANCELS, CLIENT_SLOW
from fastllmload._ext.record.recorder cimport RequestRow

cdef enum:
    SIP = 256                   # bytes that a slow reader of tokens reads at once: about one event


cdef class Users:
    """The users of a worker's requests, one phase after the other."""

    def __cinit__(self):
        self.only_wait = True

    def __dealloc__(self):
        dues_free(&self.leaves)
        free(self.slow)

    cdef int begin(self, const Leaving[::1] ways) except -1:
        self.ways = ways
        self.only_wait = ways is None
        self.leaves.count = 0
        return 0

    cdef bint reads_slowly(self, uint32_t planned) noexcept:
        return not self.only_wait and self.ways[planned].read_rate > 0

    cdef int send(self, RequestStream* s, uint32_t planned, int64_t now) except -1:
        cdef const Leaving* user = &self.ways[planned]
        cdef int64_t first = min(user.cancel_ns if user.cancel_ns else user.abandon_ns,
                                 user.abandon_ns if user.abandon_ns else user.cancel_ns)
        s.leave_tokens = user.cancel_tokens
        if user.cancel_ns or user.cancel_tokens:
            s.x.row.client |= CLIENT_CANCELS
        if user.abandon_ns:
            s.x.row.client |= CLIENT_ABANDONS
        if first:
            dues_push(&self.leaves, now + first, <uint64_t>s.connection.number << 32 | s.x.number)
        if user.read_rate > 0:
            s.x.row.client |= CLIENT_SLOW
            s.connection.read_rate = user.read_rate
            s.connection.read_bytes = user.read_bytes != 0
            s.connection.read_from = 0
            self._note_slow(s.connection)
        return 0

    cdef int _note_slow(self, Connection* c) except -1:
        cdef uint64_t* grown
        if self.slow_count == self.slow_cap:
            grown = <uint64_t*>realloc(self.slow, (self.slow_cap * 2 + 64) * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError("slow readers")
            self.slow = grown
            self.slow_cap = self.slow_cap * 2 + 64
        self.slow[self.slow_count] = <uint64_t>c.generation << 32 | c.number
        self.slow_count += 1
        return 0

    cdef RequestStream* leaver(self, Pool pool, uint32_t plan_size, int64_t now, uint8_t* why) except? NULL:
        cdef uint64_t what
        cdef int64_t since, cancel, abandon
        cdef bint waits
        cdef const Leaving* user
        cdef RequestStream* s
        while dues_first(&self.leaves) <= now:
            what = dues_pop(&self.leaves)
            s = pool.stream(<uint32_t>(what >> 32), <uint32_t>what)
            if s == NULL:
                continue
            user = &self.ways[s.request % plan_size]
            since = s.x.row.t_submit if s.x.row.t_submit else s.x.row.t_dispatch
            cancel = since + user.cancel_ns if user.cancel_ns else INT64_MAX
            waits = user.abandon_ns and (user.abandon_e2e or s.x.row.t_first == 0)
            abandon = since + user.abandon_ns if waits else INT64_MAX
            if cancel <= now or abandon <= now:
                why[0] = r.ERROR_CLIENT_CANCELLED if cancel <= now else r.ERROR_CLIENT_ABANDONED
                return s
            if min(cancel, abandon) < INT64_MAX:
                dues_push(&self.leaves, min(cancel, abandon), what)
        return NULL

    cdef Connection* slow_reader(self, Pool pool, uint32_t place) noexcept:
        cdef Connection* c = pool.find(self.slow[place])
        if c == NULL:
            self.slow_count -= 1
            self.slow[place] = self.slow[self.slow_count]
        return c

    cdef size_t may_read(self, Connection* c, int64_t now, size_t most) noexcept:
        cdef double allowed = c.read_rate * (now - c.read_from) * 1e-9 if c.read_from else 0
        cdef RequestRow* row = c.stream.x.row
        if row == NULL:
            return SIP
        if c.read_bytes:
            allowed += SIP
            if allowed < row.bytes_received + 1:
                return 0
            return min(most, <size_t>allowed - row.bytes_received)
        return 0 if row.content_events > allowed else SIP
