"""Segments of the tap → times of events and rows, by place in the stream.

Segments come in the order of their times and are read once. A connection begins with its handshake: a byte's place in the
stream is its sequence number less that of the handshake, unwrapped beyond 32 bits. A byte can be read when it and everything
before it has come, so its time is that of the segment that closed the last gap before it: `Flow.top` is how far the stream
is whole, and moves on; what lies beyond a gap is held until the gap is closed. Each connection has its rows in the order of
their requests and their events in the order of their offsets, so as `top` moves on, whatever it passes gets the time.

What the ring lost leaves a gap that nothing closes. When the ring says that it lost frames then, the gap is passed over: the
bytes in it have no time, and an event after it has one only if the ring lost nothing between that time and the one at which
the worker had read the event, because all that came before it was there by then.

Offsets of TLS connections count plain bytes, so their events are placed by time: only segments between the two ends of an
event's bracket can have completed it. If there is one, that is it; else the bracket narrows to the first and the last.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from fastllmload._ext.events.delta cimport EVENT_CONTENT, EVENT_REASONING, EVENT_REFUSAL, EVENT_TOOL, EVENT_WHITESPACE
from fastllmload._ext.receive.timeline cimport STAMP_CLASS
from fastllmload._ext.record.histogram cimport Hdr, hdr_record
from fastllmload._ext.record.recorder cimport (
    BRACKET_OPEN, ERROR_CLIENT_ABANDONED, ERROR_CLIENT_CANCELLED, ERROR_CLOSED_BEFORE_RESPONSE, ERROR_CLOSED_IN_BODY,
    ERROR_DEADLINE, ERROR_DRAIN, ERROR_RESET, ERROR_REUSED_CONNECTION_LOST, ERROR_SEND_FAILED, FLAG_CLAMPED, FLAG_DONE,
    STAMP_COALESCED, STAMP_KERNEL, STAMP_TAP, STAMP_USER, EventRow, RequestRow,
)
from fastllmload._ext.tap.segment cimport SEG_FIN, SEG_LOST, SEG_RST, SEG_SENT, SEG_SYN, SEG_UNSURE, Segment

cdef enum:
    EARLY_NS = 100_000              # a request is handed over before its segment leaves; clocks are read one after the other
    LATE_NS = 1_000_000             # a segment cannot have come later than its bytes were read: such a match is wrong
    AGREE_NS = 5_000                # between the ring's time of a segment and the stamp that a read had of it
    PATIENCE_NS = 5_000_000_000     # a gap in which the ring lost frames is not closed by a retransmission after so long

# How much later than an event's time its segment may have come by the ring's: of the process's own stamps nothing.
cdef inline int64_t agree_ns(const EventRow* e) noexcept nogil:
    return 0 if e.stamp & STAMP_CLASS == STAMP_USER else AGREE_NS

cdef enum Trust:                    # of the time at which a stream moved on
    SURE = 0
    BEHIND_GAP = 1                  # bytes before are missing: only with what the ring lost is it known
    NO_TIME = 2

cdef enum FlowBit:
    KNOWS_IN = 1                    # base of what comes in is known
    KNOWS_OUT = 2
    ENDED = 4                       # either side has closed
    GAP = 8                         # a gap was passed over
    REORDERED = 32                  # segments came in another order than they were sent in
    WIRE_KEPT = 16                  # TLS: an answer came, so the request had left before

cdef struct Held:                   # bytes beyond a gap
    int64_t begin
    int64_t end
    int64_t t
    uint8_t unsure

cdef struct Flow:                   # one connection
    uint8_t bits                    # FlowBit
    uint8_t stage                   # of the row at *at*: 0 head, 1 events, 2 end
    uint16_t local
    uint32_t in_base
    uint32_t out_base
    int64_t opened
    int64_t top                     # bytes that came without a gap
    int64_t t                       # when the last of them came
    int64_t sent                    # bytes that left
    int64_t fin                     # place of the other side's end; 0: not seen
    int64_t closed                  # when that came
    int64_t chain                   # its rows; -1: not known yet
    int64_t at                      # in *order*: the row that is answered
    int64_t end                     # after its last row
    int64_t event
    int64_t base                    # stream offset at which the answer of the row at *at* begins
    int64_t wire_at                 # in *order*: the row that is sent
    int64_t wire_base
    Held* held                      # by begin; owned
    uint32_t first_held
    uint32_t holding
    uint32_t held_room
    int64_t* recent                 # TLS: when the latest segments came, below 0 where that is not sure; owned
    uint32_t first_recent
    uint32_t recents
    uint32_t recent_room
    int64_t exact                   # TLS: the one segment of the event before, and when that was read
    int64_t exact_read

cdef struct Key:                    # a port of this host and a watched side
    int64_t chain                   # the next one that has no connection
    int64_t last                    # after its last chain
    uint8_t tls
    uint8_t mixed                   # two addresses of this host use the port at once: rows do not say which
    Flow* flow                      # owned; NULL before its first handshake


cdef class Join:
    """Joins the segments of a run to its merged rows and events, which are changed in place.

    *rows*, *events*: bytes of the records. *order*: rows that have a connection, by connection and time. *chains*: where in
    *order* each connection begins, and its end. *keys*: per chain its key, ascending; *tls*: per key. *places*: the key of
    remote << 16 | port, -1 for none. *lost*: int64[n, 2], from and until when the ring lost frames.
    """

    cdef RequestRow* rows
    cdef EventRow* events
    cdef const int64_t[::1] first
    cdef const int64_t[::1] order
    cdef const int64_t[::1] chains
    cdef const int64_t[::1] chain_key
    cdef const int32_t[::1] places
    cdef const int64_t[:, ::1] lost
    cdef Key* keys                  # owned
    cdef int64_t key_count
    cdef int64_t[:, ::1] times      # per row: head, end, close of the connection, last byte sent; 0: not known
    cdef object _held
    cdef object _difference
    cdef Hdr difference             # of the kernel's stamp of exact events and the tap's
    cdef uint8_t[::1] bound         # per chain
    cdef readonly int64_t joined    # events that have the time of their segment
    cdef readonly int64_t narrowed  # events of TLS connections with several segments in their bracket
    cdef readonly int64_t lost_events, unsure, late, early, no_segment, missing, no_handshake, mixed
    cdef readonly int64_t retransmitted, reordered, gaps, strays, sent_again

    def __init__(self, uint8_t[::1] rows, uint8_t[::1] events, const int64_t[::1] first, const int64_t[::1] order,
                 const int64_t[::1] chains, const int64_t[::1] chain_key, const uint8_t[::1] tls,
                 const int32_t[::1] places, const int64_t[:, ::1] lost, int64_t[:, ::1] times, int64_t[::1] difference):
        cdef int64_t i, count = first.shape[0] - 1
        if rows.shape[0] != count * <Py_ssize_t>sizeof(RequestRow) or times.shape[0] != count or times.shape[1] != 4:
            raise ValueError(f"{rows.shape[0]} bytes of rows and {times.shape[0]} times do not fit {count} rows")
        if count and first[count] * <Py_ssize_t>sizeof(EventRow) != events.shape[0]:
            raise ValueError(f"{events.shape[0]} bytes of events do not fit {first[count]} events")
        if chains.shape[0] != chain_key.shape[0] + 1 or lost.shape[1] != 2:
            raise ValueError("chains and keys differ")
        for i in range(order.shape[0]):
            if not 0 <= order[i] < count:
                raise IndexError(f"row {order[i]} is ordered, but there are {count}")
        for i in range(chain_key.shape[0]):
            if not (0 <= chains[i] < chains[i + 1] <= order.shape[0] and 0 <= chain_key[i] < tls.shape[0]
                    and (i == 0 or chain_key[i - 1] <= chain_key[i])):
                raise IndexError(f"chain {i} has no rows or no key")
        for i in range(places.shape[0]):
            if places[i] >= tls.shape[0]:
                raise IndexError(f"place {i} has key {places[i]}, but there are {tls.shape[0]}")
        for i in range(count):
            if not 0 <= first[i] <= first[i + 1]:
                raise IndexError(f"row {i} has events {first[i]} to {first[i + 1]}")
        self._held = (rows, events)
        self.rows = <RequestRow*>&rows[0] if rows.shape[0] else NULL
        self.events = <EventRow*>&events[0] if events.shape[0] else NULL
        self.first, self.order, self.chains, self.chain_key = first, order, chains, chain_key
        self.places, self.lost, self.times = places, lost, times
        self.bound = np.zeros(chain_key.shape[0], np.uint8)
        self._difference = difference
        self.difference.counts = &difference[0]
        self.key_count = tls.shape[0]
        self.keys = <Key*>calloc(max(1, self.key_count), sizeof(Key))
        if self.keys == NULL:
            raise MemoryError()
        for i in range(self.key_count):
            self.keys[i].chain = self.keys[i].last = -1
            self.keys[i].tls = tls[i]
        for i in range(chain_key.shape[0]):
            if self.keys[chain_key[i]].chain < 0:
                self.keys[chain_key[i]].chain = i
            self.keys[chain_key[i]].last = i + 1

    def __dealloc__(self):
        cdef int64_t i
        if self.keys == NULL:
            return
        for i in range(self.key_count):
            if self.keys[i].flow != NULL:
                free(self.keys[i].flow.held)
                free(self.keys[i].flow.recent)
                free(self.keys[i].flow)
        free(self.keys)

    # -- segments -----------------------------------------------------------------------------------------------------

    def read(self, const uint8_t[::1] segments) -> None:
        """The next segments, bytes of whole records, in the order in which they were captured."""
        cdef Py_ssize_t i, n = segments.shape[0] // <Py_ssize_t>sizeof(Segment)
        cdef const Segment* at
        cdef int64_t place
        cdef int32_t key
        if n == 0:
            return
        at = <const Segment*>&segments[0]
        for i in range(n):
            if at[i].flags & SEG_LOST:
                continue
            place = <int64_t>at[i].remote << 16 | at[i].port
            key = self.places[place] if place < self.places.shape[0] else -1
            if key < 0:
                self.strays += 1            # of the preflight, or of a connection that never had a request
            else:
                self.segment(&self.keys[key], &at[i])

    cdef int segment(self, Key* key, const Segment* s) except -1:
        cdef Flow* f = key.flow
        if s.flags & SEG_SYN:
            return self.handshake(key, s)
        if f == NULL or f.local != s.local or key.mixed:
            return 0
        if s.flags & SEG_SENT:
            if s.flags & (SEG_FIN | SEG_RST):
                f.bits |= ENDED
            if s.length and f.bits & KNOWS_OUT:
                self.bind(key, f, s.t_ns)
                self.left(key, f, s)
            return 0
        if not f.bits & KNOWS_IN:
            return 0
        if s.flags & SEG_RST:
            f.bits |= ENDED
            self.bind(key, f, s.t_ns)
            return self.close(f, 0 if s.flags & SEG_UNSURE else s.t_ns)
        if s.flags & SEG_FIN:
            f.bits |= ENDED
        if s.length or s.flags & SEG_FIN:
            self.bind(key, f, s.t_ns)
            return self.came(key, f, s)
        return 0

    cdef int handshake(self, Key* key, const Segment* s) except -1:
        cdef Flow* f = key.flow
        cdef uint32_t base = s.seq + 1
        cdef bint sent = s.flags & SEG_SENT
        cdef bint mine = f != NULL and f.local == s.local
        if mine and sent and f.bits & KNOWS_OUT and f.out_base == base:
            return 0                        # once more: the answer to the first one was lost or slow
        if mine and not sent and f.bits & KNOWS_IN and f.in_base == base:
            return 0
        if not (mine and not sent and not f.bits & KNOWS_IN):
            if f != NULL and f.local != s.local and not f.bits & ENDED:
                key.mixed = 1
            self.done(key)
            f = key.flow
            if f == NULL:
                f = key.flow = <Flow*>calloc(1, sizeof(Flow))
                if f == NULL:
                    raise MemoryError()
            self.renew(f)
            f.local = s.local
            f.opened = s.t_ns
        if sent:
            f.out_base = base
            f.bits |= KNOWS_OUT
        else:
            f.in_base = base
            f.bits |= KNOWS_IN
        return 0

    cdef int renew(self, Flow* f) noexcept:
        # For another connection; what it owns is used again.
        f.bits = f.stage = 0
        f.top = f.t = f.sent = f.fin = f.closed = f.base = f.wire_base = 0
        f.at = f.end = f.wire_at = f.event = f.exact = f.exact_read = 0
        f.chain = -1
        f.first_held = f.holding = f.first_recent = f.recents = 0
        return 0

    cdef int bind(self, Key* key, Flow* f, int64_t t) except -1:
        """Find the rows of a connection that had none at *t*: they are the next ones, if their first was sent by then."""
        cdef int64_t begun
        while f.chain < 0 and key.chain >= 0 and key.chain < key.last:
            begun = self.rows[self.order[self.chains[key.chain]]].t_submit_start
            if begun > t + EARLY_NS:
                return 0
            if begun >= f.opened - EARLY_NS:
                f.chain = key.chain
                self.bound[f.chain] = 1
                f.at = f.wire_at = self.chains[f.chain]
                f.end = self.chains[f.chain + 1]
                self.answer(f)
            key.chain += 1                  # else it was opened before the tap, or its handshake was lost
        return 0

    # -- what leaves --------------------------------------------------------------------------------------------------

    cdef int left(self, Key* key, Flow* f, const Segment* s) except -1:
        """A sent segment: the first one with the last byte of a request is when that left."""
        cdef int64_t begin = f.sent + <int32_t>(s.seq - (f.out_base + <uint32_t>f.sent))
        cdef int64_t end = begin + s.length
        cdef RequestRow* row
        if end <= f.sent:
            self.sent_again += 1
            return 0
        f.sent = end
        if f.chain < 0:
            return 0
        if key.tls:
            return self.left_tls(f, s)
        while f.wire_at < f.end:
            row = &self.rows[self.order[f.wire_at]]
            if end < f.wire_base + <int64_t>row.bytes_sent:
                return 0
            if begin < f.wire_base + <int64_t>row.bytes_sent and row.t_submit and not s.flags & SEG_UNSURE:
                self.times[self.order[f.wire_at], 3] = s.t_ns
            f.wire_base += row.bytes_sent
            f.wire_at += 1
        return 0

    cdef int left_tls(self, Flow* f, const Segment* s) except -1:
        """Plain bytes are not counted in segments: the request left with the last segment before the first of its answer."""
        while f.wire_at + 1 < f.end and self.rows[self.order[f.wire_at + 1]].t_submit_start <= s.t_ns:
            f.wire_at += 1
            f.bits &= ~<uint8_t>WIRE_KEPT
        if not f.bits & WIRE_KEPT and self.rows[self.order[f.wire_at]].t_submit_start <= s.t_ns and not s.flags & SEG_UNSURE:
            self.times[self.order[f.wire_at], 3] = s.t_ns
        return 0

    # -- what comes in ------------------------------------------------------------------------------------------------

    cdef int came(self, Key* key, Flow* f, const Segment* s) except -1:
        cdef int64_t begin = f.top + <int32_t>(s.seq - (f.in_base + <uint32_t>f.top))
        cdef int64_t end = begin + s.length + (s.flags & SEG_FIN != 0)
        if s.flags & SEG_FIN:
            f.fin = end
        if end <= f.top:
            self.retransmitted += 1
            return 0
        if f.holding and s.t_ns - f.held[f.first_held].t > <int64_t>PATIENCE_NS and self.explained(f):
            self.skip(key, f)
            if end <= f.top:
                return 0
        if begin > f.top:
            return self.hold(f, begin, end, s)
        self.moved(key, f, end, s.t_ns, NO_TIME if s.flags & SEG_UNSURE else self.trust(f))
        while f.holding and f.held[f.first_held].begin <= f.top:
            if f.held[f.first_held].end > f.top:
                self.moved(key, f, f.held[f.first_held].end, s.t_ns, NO_TIME if s.flags & SEG_UNSURE else self.trust(f))
            self.let_go(f)
        return 0

    cdef Trust trust(self, Flow* f) noexcept:
        return BEHIND_GAP if f.bits & GAP else SURE

    cdef int hold(self, Flow* f, int64_t begin, int64_t end, const Segment* s) except -1:
        cdef uint32_t i
        cdef Held* more
        self.reordered += 1
        f.bits |= REORDERED
        if f.first_held + f.holding == f.held_room:
            if f.first_held > f.held_room // 2:
                memmove(f.held, f.held + f.first_held, f.holding * sizeof(Held))
                f.first_held = 0
            else:
                more = <Held*>realloc(f.held, (2 * <size_t>f.held_room + 16) * sizeof(Held))
                if more == NULL:
                    raise MemoryError()
                f.held = more
                f.held_room = 2 * f.held_room + 16
        i = f.first_held + f.holding
        while i > f.first_held and f.held[i - 1].begin > begin:
            f.held[i] = f.held[i - 1]
            i -= 1
        f.held[i].begin = begin
        f.held[i].end = end
        f.held[i].t = s.t_ns
        f.held[i].unsure = s.flags & SEG_UNSURE != 0
        f.holding += 1
        return 0

    cdef int let_go(self, Flow* f) noexcept:
        f.first_held += 1
        f.holding -= 1
        if f.holding == 0:
            f.first_held = 0
        return 0

    cdef bint explained(self, Flow* f) noexcept:
        """Whether the ring lost frames while the gap came about."""
        cdef int64_t i, until = f.held[f.first_held].t
        for i in range(f.holding):
            until = max(until, f.held[f.first_held + i].t)
        return self.losses(f.t, until)

    cdef bint losses(self, int64_t begin, int64_t end) noexcept:
        cdef Py_ssize_t i
        for i in range(self.lost.shape[0]):
            if self.lost[i, 0] <= end and self.lost[i, 1] >= begin:
                return True
        return False

    cdef int skip(self, Key* key, Flow* f) except -1:
        """Pass over a gap that nothing closes: what is held after it has its own time, as far as the next gap."""
        cdef Held* h = &f.held[f.first_held]
        cdef int64_t t = h.t
        self.gaps += 1
        self.moved(key, f, h.begin, f.t, NO_TIME)
        f.bits |= GAP
        while f.holding and f.held[f.first_held].begin <= f.top:
            h = &f.held[f.first_held]
            t = max(t, h.t)
            if h.end > f.top:
                self.moved(key, f, h.end, t, NO_TIME if h.unsure else BEHIND_GAP)
            self.let_go(f)
        return 0

    cdef int moved(self, Key* key, Flow* f, int64_t top, int64_t t, Trust trust) except -1:
        """The stream is whole up to *top* since *t*."""
        f.top = top
        if t > f.t:
            f.t = t
        if f.chain >= 0:
            if key.tls:
                self.pass_tls(f, trust)
            else:
                self.pass_rows(f, trust)
        if f.fin and f.top >= f.fin and f.closed == 0:
            self.close(f, 0 if trust == NO_TIME else f.t)
        return 0

    cdef int answer(self, Flow* f) noexcept:
        """The row at *at* is answered next: its place in the stream."""
        cdef int64_t row
        if f.at >= f.end:
            return 0
        row = self.order[f.at]
        f.base += <uint32_t>(self.rows[row].stream_begin - <uint32_t>f.base)
        f.event = self.first[row]
        f.stage = 0
        return 0

    cdef int answered(self, Flow* f) noexcept:
        f.base += self.rows[self.order[f.at]].bytes_received
        f.at += 1
        return self.answer(f)

    cdef int pass_rows(self, Flow* f, Trust trust) except -1:
        """Rows and events that `top` has passed get its time."""
        cdef RequestRow* row
        cdef int64_t number
        while f.at < f.end:
            number = self.order[f.at]
            row = &self.rows[number]
            if row.t_submit_start > f.t + EARLY_NS:
                return 0                    # not sent yet: the bytes are the end of the message before
            if f.stage == 0:
                if row.head_end:
                    if f.top < f.base + <uint32_t>(row.head_end - row.stream_begin):
                        return 0
                    self.times[number, 0] = self.time(f, trust, row.t_headers, row)
                f.stage = 1
            while f.event < self.first[number + 1]:
                if f.top < f.base + <uint32_t>(self.events[f.event].offset - row.stream_begin):
                    return 0
                self.stamp(f, &self.events[f.event], row, trust)
                f.event += 1
            if f.top < f.base + <int64_t>row.bytes_received:
                return 0
            if row.bytes_received:
                self.times[number, 1] = self.time(f, trust, row.t_end, row)
            self.answered(f)
        return 0

    cdef int64_t latest(self, Flow* f, int64_t stamp, RequestRow* row) noexcept:
        """No segment can have come later than this for what has *stamp*. The kernel's is that of the last byte read, which may
        have come before the one that all waited for.
        """
        if not f.bits & REORDERED:
            return stamp + LATE_NS
        return max(stamp, row.t_end_user if row.t_end_user else <int64_t>1 << 62) + LATE_NS

    cdef int64_t time(self, Flow* f, Trust trust, int64_t read_at, RequestRow* row) noexcept:
        """When the stream moved on, where that may be used for what has the stamp *read_at*, else 0."""
        if trust == NO_TIME or f.t > self.latest(f, read_at, row) or (trust == BEHIND_GAP and self.losses(f.t, read_at)):
            return 0
        return f.t

    cdef int stamp(self, Flow* f, EventRow* e, RequestRow* row, Trust trust) noexcept:
        cdef int64_t t = f.t
        if trust == NO_TIME:
            self.unsure += 1
        elif trust == BEHIND_GAP and self.losses(t, e.t_ns):
            self.lost_events += 1
        elif t > self.latest(f, e.t_ns, row):
            self.late += 1
        else:
            if e.bracket_ns != BRACKET_OPEN and t < e.t_ns - <int64_t>e.bracket_ns - LATE_NS and not row.flags & FLAG_CLAMPED:
                self.early += 1
            if (e.stamp & STAMP_CLASS == STAMP_KERNEL and e.bracket_ns == 0 and not row.flags & FLAG_CLAMPED
                    and not f.bits & REORDERED):
                hdr_record(&self.difference, abs(e.t_ns - t))
            self.joined += 1
            e.t_ns = t
            e.bracket_ns = 0
            e.stamp = (e.stamp & ~<uint8_t>STAMP_CLASS) | STAMP_TAP
        return 0

    # -- TLS ----------------------------------------------------------------------------------------------------------

    cdef int pass_tls(self, Flow* f, Trust trust) except -1:
        """A segment came at `t`: what was read before that had its segments already."""
        cdef int64_t* more
        self.read_before(f, f.t)
        if self.times[self.order[f.wire_at], 3] and f.t >= self.rows[self.order[f.wire_at]].t_submit_start:
            f.bits |= WIRE_KEPT
        if f.first_recent + f.recents == f.recent_room:
            if f.first_recent > f.recent_room // 2:
                memmove(f.recent, f.recent + f.first_recent, f.recents * sizeof(int64_t))
                f.first_recent = 0
            else:
                more = <int64_t*>realloc(f.recent, (2 * <size_t>f.recent_room + 16) * sizeof(int64_t))
                if more == NULL:
                    raise MemoryError()
                f.recent = more
                f.recent_room = 2 * f.recent_room + 16
        f.recent[f.first_recent + f.recents] = -f.t if trust == NO_TIME else f.t
        f.recents += 1
        return 0

    cdef int read_before(self, Flow* f, int64_t t) except -1:
        """Heads, events and ends that the worker had read before *t*."""
        cdef RequestRow* row
        cdef int64_t number
        while f.at < f.end:
            number = self.order[f.at]
            row = &self.rows[number]
            if row.t_submit_start >= t:
                return 0
            if f.stage == 0:
                if row.t_headers + AGREE_NS >= t:
                    return 0
                if row.t_headers:
                    self.times[number, 0] = self.newest(f, row.t_submit_start, row.t_headers)
                f.stage = 1
            while f.event < self.first[number + 1]:
                if self.events[f.event].t_ns + agree_ns(&self.events[f.event]) >= t:
                    return 0
                self.narrow(f, &self.events[f.event], row)
                f.event += 1
            if row.t_end + AGREE_NS >= t:
                return 0
            if row.bytes_received:
                self.times[number, 1] = self.newest(f, row.t_submit_start, row.t_end)
            self.answered(f)
        return 0

    cdef int64_t newest(self, Flow* f, int64_t begin, int64_t end) noexcept:
        """When the newest segment came that was read at *end*; 0 when none is known."""
        cdef uint32_t count = self.until(f, end + AGREE_NS)
        cdef int64_t t
        if count == 0 or self.losses(begin, end):
            return 0
        t = f.recent[f.first_recent + count - 1]
        return t if begin <= t else 0

    cdef uint32_t until(self, Flow* f, int64_t t) noexcept:
        """How many of the latest segments came at *t* or before."""
        cdef uint32_t count = f.recents
        while count and abs(f.recent[f.first_recent + count - 1]) > t:
            count -= 1
        return count

    cdef int narrow(self, Flow* f, EventRow* e, RequestRow* row) noexcept:
        cdef int64_t low = row.t_submit if e.bracket_ns == BRACKET_OPEN else e.t_ns - <int64_t>e.bracket_ns
        cdef int64_t newest
        cdef uint32_t i, count
        low -= agree_ns(e)
        while f.recents and abs(f.recent[f.first_recent]) < low:
            f.first_recent += 1             # brackets begin one after the other
            f.recents -= 1
        # A read takes all that is there, so what one read had is not what a later one waited for.
        count = self.until(f, e.t_ns + agree_ns(e))
        if f.exact and e.t_ns > f.exact_read:
            while count > 1 and abs(f.recent[f.first_recent]) <= f.exact:
                f.first_recent += 1
                f.recents -= 1
                count -= 1
        if count == 0:
            self.no_segment += 1
            return 0
        if self.losses(low, e.t_ns):
            self.lost_events += 1
            return 0
        for i in range(count):
            if f.recent[f.first_recent + i] < 0:
                self.unsure += 1
                return 0
        newest = f.recent[f.first_recent + count - 1]
        f.exact = newest if count == 1 else 0
        f.exact_read = e.t_ns
        e.bracket_ns = <uint32_t>min(newest - f.recent[f.first_recent], <int64_t>BRACKET_OPEN - 1)
        e.t_ns = newest
        e.stamp = (e.stamp & ~<uint8_t>STAMP_CLASS) | (STAMP_TAP if e.bracket_ns == 0 else STAMP_COALESCED)
        if e.bracket_ns == 0:
            self.joined += 1
        else:
            self.narrowed += 1
        return 0

    # -- ends ---------------------------------------------------------------------------------------------------------

    cdef int close(self, Flow* f, int64_t t) noexcept:
        """The other side closed: that ends the answer that was under way, or had just come."""
        cdef int64_t at = f.at
        if f.closed:
            return 0
        f.closed = t
        if f.chain < 0:
            return 0
        if at == f.end or self.rows[self.order[at]].t_submit_start > t:
            at -= 1
        if at >= self.chains[f.chain]:
            self.times[self.order[at], 2] = t
        return 0

    cdef int done(self, Key* key) except -1:
        """Nothing more comes on the connection of *key*."""
        cdef Flow* f = key.flow
        cdef int64_t i
        if f == NULL:
            return 0
        while f.holding and self.explained(f):
            self.skip(key, f)
        if f.chain < 0:
            return 0
        if key.tls:
            self.read_before(f, <int64_t>1 << 62)
        for i in range(f.at, f.end):
            self.missing += self.first[self.order[i] + 1] - (f.event if i == f.at else self.first[self.order[i]])
        f.chain = -1
        return 0

    def finish(self) -> None:
        """No more segments: connections end, and rows take over the times of their events."""
        cdef int64_t i, at, n
        for i in range(self.key_count):
            self.done(&self.keys[i])
        for i in range(self.chain_key.shape[0]):
            if self.bound[i]:
                continue
            n = 0
            for at in range(self.chains[i], self.chains[i + 1]):
                n += self.first[self.order[at] + 1] - self.first[self.order[at]]
            if self.keys[self.chain_key[i]].mixed:
                self.mixed += n
            else:
                self.no_handshake += n
        for i in range(self.first.shape[0] - 1):
            settle_row(&self.rows[i], self.events, self.first[i], self.first[i + 1], &self.times[i, 0])


cdef bint textual(uint8_t kind) noexcept nogil:
    return (kind == EVENT_CONTENT or kind == EVENT_TOOL or kind == EVENT_REASONING or kind == EVENT_WHITESPACE
            or kind == EVENT_REFUSAL)


cdef int settle_row(RequestRow* row, EventRow* events, int64_t begin, int64_t end, int64_t* times) noexcept nogil:
    """Times of one row out of what the tap gave (*times*: head, end, close, last byte sent), in the order in which things
    happen: an event that has no time of its own came between its neighbours.
    """
    cdef int64_t i, t, low, ending
    cdef int64_t floor = row.t_submit
    cdef bint clamped = False, any_tap = False, all_tap = True
    cdef EventRow* e
    if times[3]:
        row.t_wire = times[3]
    for i in range(begin, end):
        if events[i].stamp & STAMP_CLASS == STAMP_TAP:
            any_tap = True
        else:
            all_tap = False
    if not (any_tap or times[0] or times[1] or times[2]):
        return 0
    # Backwards: nothing came after what follows it.
    t = row.t_end_user if row.t_end_user else <int64_t>1 << 62
    for i in range(end - 1, begin - 1, -1):
        e = &events[i]
        if e.t_ns > t:
            if e.stamp & STAMP_CLASS != STAMP_TAP and e.bracket_ns != BRACKET_OPEN:
                # A bracket that begins after that was wrong.
                e.bracket_ns = BRACKET_OPEN if e.t_ns - t > <int64_t>e.bracket_ns else e.bracket_ns - <uint32_t>(e.t_ns - t)
            e.t_ns = t
        t = e.t_ns
    if row.t_headers:
        if times[0]:
            row.t_headers = times[0]
        if row.t_headers > t:
            row.t_headers = t
        if row.t_headers < floor:           # loopback: the answer was stamped before send() had returned
            row.t_headers = floor
            clamped = True
        floor = row.t_headers
    # Forwards: nothing came before what it follows.
    low = 0
    for i in range(begin, end):
        e = &events[i]
        if e.t_ns < floor:
            clamped = clamped or e.t_ns < row.t_submit
            e.t_ns = floor
        if e.stamp & STAMP_CLASS != STAMP_TAP and low and e.t_ns - <int64_t>e.bracket_ns < low:
            e.bracket_ns = <uint32_t>min(e.t_ns - low, <int64_t>BRACKET_OPEN)
        floor = e.t_ns
        if e.stamp & STAMP_CLASS == STAMP_TAP:
            low = e.t_ns
    if clamped:
        row.flags |= FLAG_CLAMPED
    elif all_tap and times[0]:
        row.flags &= ~<uint8_t>FLAG_CLAMPED
    repeat(row, events, begin, end)
    ending = row.t_end
    if row.error in (ERROR_DEADLINE, ERROR_DRAIN, ERROR_CLIENT_CANCELLED, ERROR_CLIENT_ABANDONED, ERROR_SEND_FAILED):
        pass                                # we ended it
    elif row.error in (ERROR_RESET, ERROR_REUSED_CONNECTION_LOST, ERROR_CLOSED_BEFORE_RESPONSE, ERROR_CLOSED_IN_BODY):
        ending = times[2] if times[2] else ending
    elif row.flags & FLAG_DONE and end > begin:
        ending = events[end - 1].t_ns       # [DONE] ends it, whatever closes the message came with it or later
    elif times[2] and row.t_end == row.t_end_user and times[2] <= row.t_end_user:
        ending = times[2]                   # a body as long as the connection
    elif times[1]:
        ending = times[1]
    if row.t_end:
        row.t_end = max(min(ending, row.t_end_user), floor)
    return 0


cdef int repeat(RequestRow* row, EventRow* events, int64_t begin, int64_t end) noexcept nogil:
    """What the row repeats of its events."""
    cdef int64_t i, first = 0, last = 0, any_ = 0
    for i in range(begin, end):
        if not textual(events[i].kind):
            continue
        if any_ == 0:
            any_ = events[i].t_ns
        if events[i].kind == EVENT_CONTENT or events[i].kind == EVENT_TOOL:
            if first == 0:
                first = events[i].t_ns
            last = events[i].t_ns
        elif first == 0:                    # of an answer that is all reasoning, the last of it
            last = events[i].t_ns
    if row.t_any and any_:
        row.t_any = any_
    if row.t_first and first:
        row.t_first = first
    if row.t_last and last:
        row.t_last = last
    return 0


def losses(const uint8_t[::1] segments) -> list[tuple[int, int]]:
    """From and until when the ring lost frames, by the marks in the file."""
    cdef Py_ssize_t i, n = segments.shape[0] // <Py_ssize_t>sizeof(Segment)
    cdef const Segment* at
    found = []
    if n == 0:
        return found
    at = <const Segment*>&segments[0]
    for i in range(n):
        if at[i].flags & SEG_LOST:
            found.append((at[i].t_ns - 1000 * <int64_t>at[i].length, at[i].t_ns))
    return found
