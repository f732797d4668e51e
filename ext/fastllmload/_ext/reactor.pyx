"""All streams of a worker.

Theory of operation. One epoll set holds every socket and the pacer's timer; its descriptor is registered with the event
loop once. The loop calls `on_ready` when anything is ready; inside, everything is C: `epoll_wait`, `recvmsg`, frame,
classify, stamp, record. Between two reads of a batch every release that is due is sent. Sockets are registered once,
edge-triggered for both directions: a read shorter than the buffer means that the socket is empty.

A connection goes C_CONNECTING -> C_IDLE -> C_SENDING -> C_WAITING -> C_IDLE. Idle ones stay in the epoll set, so one that
the server closes is dropped before it is used. In an open loop nothing is ever waited for: without an idle connection a
release opens one, and the row says so. Connections that the event loop owns (TLS) run through the same states; only the
three verbs connect, send and close differ.

Conversations: the schedule releases their first turns. When a reply has ended, the turn after it is stitched and put among
the pacer's followers, due some time to think later; so it is released like everything else, and is late like everything
else. What users do besides waiting (leave, read slowly) is looked after by the housekeeping, every 5 ms.
"""

import os

import numpy

from libc.errno cimport EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, EMFILE, ENFILE, ETIMEDOUT
from libc.stdint cimport INT64_MAX
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

cimport fastllmload._ext.counters as k
cimport fastllmload._ext.recorder as r
from fastllmload._ext.clock cimport mono_ns, real_minus_mono
from fastllmload._ext.conn cimport (
    C_CONNECTING,
    C_FREE,
    C_IDLE,
    C_SENDING,
    C_TAIL,
    C_WAITING,
    list_add,
    list_remove,
)
from fastllmload._ext.dues cimport dues_first, dues_free, dues_pop, dues_push
from fastllmload._ext.exchange cimport V_MORE, V_REUSE, exchange_free, exchange_init
from fastllmload._ext.histogram cimport HDR_WORDS, hdr_record
from fastllmload._ext.leaving cimport CLIENT_ABANDONS, CLIENT_CANCELS, CLIENT_SLOW
from fastllmload._ext.pacer cimport Beat
from fastllmload._ext.recorder cimport Chunk, FLAG_LATE_CONNECT, FLAG_REUSED, RequestRow
from fastllmload._ext.talk cimport Talk, talk_free
from fastllmload._ext.wire cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLLERR,
    EPOLLET,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    address_of,
    epoll_create1,
    epoll_ctl,
    epoll_wait,
    wire_close,
    wire_connect,
    wire_connect_error,
    wire_local_port,
    wire_recv,
    wire_send,
)

cdef enum:
    BUFFER = 262144             # shared read buffer, bytes
    BATCH = 256                 # events taken from the kernel at once
    STAY_NS = 4_000_000         # the event loop gets its turn at least this often
    TIMER = 0xFFFFFFFF          # epoll tag of the pacer's timer
    BEAT = 0xFFFFFFFE           # and of the beat
    HOUSE_NS = 5_000_000        # housekeeping at most this often
    TICK_NS = 10_000_000        # the worker calls tick() every 5 ms: the loop's millisecond grid and one stay come on top
    AHEAD_NS = 30_000_000       # connections are opened for releases this far ahead
    MARGIN = 8                  # spare connections beyond those
    RETRY_NS = 100_000_000      # pause after a failed pre-connect, and of a slot after ERRORS_IN_A_ROW
    ERRORS_IN_A_ROW = 10
    CONNECTS_AT_ONCE = 64       # pre-connects per housekeeping: connecting must not hold up releases
    SIP = 256                   # bytes that a slow reader of tokens reads at once: about one event
    SLOW_BUFFER = 4096          # bytes that the kernel may hold for a slow reader


cdef class Reactor:
    """Drives one worker's load. Life cycle: targets, load(phase), preconnect, start_at, on_ready/tick ..., close."""

    def __init__(self, Protocol protocol not None, Pacer pacer not None, *, bytes run_id, int worker, int workers,
                 int64_t timeout_ns, bint kernel_stamps, bint fresh_connections, sources=()):
        self.protocol = protocol
        self.pacer = pacer
        self.run_id = run_id
        self.worker = worker
        self.workers = workers
        self.timeout = timeout_ns
        self.stamps = kernel_stamps
        self.fresh = fresh_connections
        self.words = protocol.words
        self.lag.counts = self.words + k.WORDS + k.H_LAG * HDR_WORDS
        self.socket_to_user.counts = self.words + k.WORDS + k.H_SOCKET_TO_USER * HDR_WORDS
        self.stall.counts = self.words + k.WORDS + k.H_STALL * HDR_WORDS
        self.streams = {}
        self.spare = []
        self.freed = []
        self.waiting = []
        self.stay = True
        self.offset = real_minus_mono()
        self.buffer = <unsigned char*>malloc(BUFFER)
        self.events = <epoll_event*>malloc(BATCH * sizeof(epoll_event))
        self.sources = <Address*>calloc(max(1, len(sources)), sizeof(Address))
        if self.buffer == NULL or self.events == NULL or self.sources == NULL:
            raise MemoryError("read buffer")
        for family, text in sources:
            address_of(&self.sources[self.source_count], family, text, 0)
            self.source_count += 1
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError("epoll_create1 failed: out of file descriptors")
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLET
        event.data.u64 = TIMER
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, pacer.fd, &event) != 0:
            raise OSError("the pacer's timer cannot be watched")
        self.beat = Beat()
        event.data.u64 = BEAT
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, self.beat.fd, &event) != 0:
            raise OSError("the beat's timer cannot be watched")

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.conn_count):
            if self.conns[i].fd >= 0:
                wire_close(self.conns[i].fd, False)
            exchange_free(&self.conns[i].x)
            if self.conns[i].talk != NULL:
                talk_free(self.conns[i].talk)
            free(self.conns[i])
        for i in range(self.head_classes * <uint32_t>self.target_count):
            free(self.heads[i].text)
        free(self.heads)
        dues_free(&self.leaves)
        free(self.slow)
        free(self.targets)
        free(self.conns)
        free(self.sources)
        free(self.buffer)
        free(self.events)
        if self.epfd > 0:
            os.close(self.epfd)

    def fileno(self) -> int:
        """The epoll descriptor: readable whenever a socket or the timer is ready."""
        return self.epfd

    def add_target(self, str family, address, int port, bytes head, bint over_asyncio) -> None:
        """*head*: the request head from the request line to the last fixed header, each line ended by CRLF."""
        cdef Head* grown_heads
        if self.head_classes > 1:
            raise ValueError("targets come before the heads of classes")
        cdef TargetState* grown = <TargetState*>realloc(self.targets, (self.target_count + 1) * sizeof(TargetState))
        if grown == NULL:
            raise MemoryError("targets")
        self.targets = grown
        cdef TargetState* t = &self.targets[self.target_count]
        memset(t, 0, sizeof(TargetState))
        address_of(&t.address, family, address, port)
        t.over_asyncio = over_asyncio
        if over_asyncio:
            self.stay = False
        grown_heads = <Head*>realloc(self.heads, (self.target_count + 1) * sizeof(Head))
        if grown_heads == NULL:
            raise MemoryError("request heads")
        self.heads = grown_heads
        self.heads[self.target_count].text = NULL
        self.target_count += 1
        self.head_classes = 1
        self._set_head(self.target_count - 1, head)

    def _set_head(self, Py_ssize_t place, bytes head) -> None:
        cdef Head* h = &self.heads[place]
        h.size = len(head)
        h.text = <char*>malloc(h.size)
        if h.text == NULL:
            raise MemoryError("request head")
        memcpy(h.text, <const char*>head, h.size)

    def add_class(self, list heads) -> None:
        """One more class of requests, numbered from 0 (which the targets' own heads are): a head per target."""
        cdef Py_ssize_t first = self.head_classes * self.target_count
        cdef Head* grown = <Head*>realloc(self.heads, (first + self.target_count) * sizeof(Head))
        if grown == NULL:
            raise MemoryError("request heads")
        self.heads = grown
        memset(&self.heads[first], 0, self.target_count * sizeof(Head))
        self.head_classes += 1
        for i in range(self.target_count):
            self._set_head(first + i, heads[i])

    def set_connector(self, connector) -> None:
        """*connector(target, number, generation)* begins a connection of the event loop and returns its Stream."""
        self.connector = connector

    def read_buffer(self):
        """The shared read buffer, for connections of the event loop: BUFFER writable bytes."""
        return memoryview(<unsigned char[:BUFFER]>self.buffer)

    def load(self, *, int phase, int phase_number, schedule, const uint64_t[::1] body_offset, const uint8_t[::1] bodies,
             const int32_t[::1] input_tokens, const int32_t[::1] output_tokens, const uint16_t[::1] request_class,
             bint closed, uint64_t limit=0, uint32_t cap=0, uint32_t reserve=MARGIN, const uint32_t[::1] numbers=None,
             Talks talks=None, const Leaving[::1] client=None) -> None:
        """Take over one phase.

        *schedule*: int64 ns offsets of this worker's releases (open loop), or zeros, one per slot (closed loop).
        The other arrays cover the whole plan. *limit*: releases of this worker in a closed loop, 0 without bound.
        *numbers*: with *talks*, the requests that its releases are, in order; else they are worker, worker + workers ...
        *client*: what users do besides waiting.
        """
        self._end_talks()
        self.numbers = numbers
        self.talks = talks
        self.client = client
        self.has_client = client is not None
        self.leaves.count = 0
        self.pacer.load(schedule)
        self.body_offset = body_offset
        self.bodies = bodies
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.request_class = request_class
        self.plan_size = <uint32_t>(body_offset.shape[0] - 1)
        self.phase = <uint8_t>phase
        self.phase_number = phase_number
        self.closed = closed
        self.limit = limit
        self.cap = cap
        self.reserve = reserve
        self.issued = 0
        self.stop_at = 0
        self.sending = True
        self.freed = []
        self.waiting = []
        self.slot_errors = numpy.zeros(max(1, len(schedule)), dtype=numpy.int32)

    def start_at(self, int64_t start, int64_t stop_sending_ns=0) -> None:
        """Time zero (CLOCK_MONOTONIC ns). A closed loop sends nothing from *stop_sending_ns* after it on (0: no bound)."""
        self.stop_at = start + stop_sending_ns if stop_sending_ns else 0
        self.tick_due = 0
        self.staying = self.stay
        self.beat.after(STAY_NS if self.stay else 0)
        self.pacer.start_at(start)

    def preconnect(self, uint32_t count) -> None:
        """Begin connections until the targets have *count* between them, idle or under way."""
        cdef int64_t now = mono_ns()
        cdef TargetState* t
        cdef uint32_t share
        if self.fresh:
            return
        share = (count + self.target_count - 1) // self.target_count
        for i in range(self.target_count):
            t = &self.targets[i]
            while t.idle.count + t.connecting < share and t.retry_at <= now:
                self._connect(self._new(<uint16_t>i))

    @property
    def in_flight(self) -> int:
        return self.flight.count

    @property
    def connecting(self) -> int:
        return sum(self.targets[i].connecting for i in range(self.target_count))

    @property
    def idle(self) -> int:
        return sum(self.targets[i].idle.count for i in range(self.target_count))

    @property
    def released(self) -> int:
        return self.issued if self.closed else self.pacer.next

    @property
    def finished(self) -> bool:
        """Nothing more will be sent and nothing is in flight."""
        if self.flight.count or self.freed:
            return False
        if not self.sending or self.words[k.W_DISK_FULL]:
            return True
        if self.pacer.followers.count:
            return False
        if not self.closed:
            return self.pacer.next >= self.pacer.size
        return self.pacer.next >= self.pacer.size and not self._may_issue(mono_ns())

    @property
    def sending_over(self) -> bool:
        """Nothing more will be sent."""
        cdef int64_t now = mono_ns()
        if self.sending and self.talks is not None and self.talks.alive and not (self.stop_at and now >= self.stop_at):
            return False
        return not self.sending or (self.pacer.next >= self.pacer.size
                                    and not self.pacer.followers.count
                                    and not (self.closed and self._may_issue(now)))

    def drain(self) -> None:
        """Send no more; what is in flight goes on."""
        self.sending = False
        self.freed = []
        self.waiting = []
        self._end_talks()
        self.pacer.stop()

    def cancel_all(self) -> None:
        """End everything in flight as cancelled."""
        cdef int64_t now = mono_ns()
        self.drain()
        while self.flight.oldest != NULL:
            self._cancel(self.flight.oldest, r.STATUS_CANCELLED, r.ERROR_DRAIN, now)

    def rest(self) -> None:
        """The phase is over: the event loop has its own time again."""
        self.staying = False
        self.beat.after(0)

    def close_connections(self) -> None:
        """Close what is not in flight (between phases: the pool; at the end: everything)."""
        cdef uint32_t i
        for i in range(self.conn_count):
            if self.conns[i].state in (C_IDLE, C_TAIL) or (
                    self.conns[i].state == C_CONNECTING and self.conns[i].x.row == NULL):
                self._drop(self.conns[i], False)

    # -- the loop's two entries ---------------------------------------------------------------------------------------

    def on_ready(self) -> None:
        """The epoll descriptor is readable: handle batches, and stay for more while the clock runs.

        Returning to the event loop after every batch would cost its own wait, a call and a second wake-up through the
        nested descriptor. So the reactor waits for the next batch itself until its beat gives the loop a turn, every
        STAY_NS. Connections that the loop owns would starve meanwhile, so with any of those it returns at once. The wait
        has no time-out: arming a kernel timer for each would cost a microsecond.
        """
        cdef int64_t now
        cdef int n
        self.leave = False
        while True:
            with nogil:
                n = epoll_wait(self.epfd, self.events, BATCH, -1 if self.staying else 0)
            if n <= 0:
                break
            self._batch(n)
            if self.leave or not self.staying:
                break
        now = mono_ns()
        if now >= self.house_at:
            self._house(now)
        self._arm(now)

    cdef int64_t _batch(self, int n) except -1:
        """One batch: read every socket that is ready, and between two reads send what is due. Returns the time."""
        cdef int i
        cdef int64_t begun, now
        self._clock()
        begun = now = mono_ns()
        for i in range(n):
            if self.events[i].data.u64 == BEAT:
                self.leave = True
                self.beat.after(STAY_NS)
            elif self.events[i].data.u64 != TIMER:
                self._event(&self.events[i])
                now = mono_ns()
            if self.freed:
                self._refill(now)
            if self.pacer.due() <= now:
                self._release(now)
        now = self.pacer.spin(now)
        if self.pacer.due() <= now:
            self._release(now)
            now = mono_ns()
        self.words[k.W_BATCHES] += 1
        if now - begun > self.words[k.W_BATCH_MAX_NS]:
            self.words[k.W_BATCH_MAX_NS] = now - begun
        if now >= self.house_at:
            self._house(now)
        self._arm(now)
        return now

    def tick(self) -> None:
        """Called by the worker every 5 ms: time-outs, pool, and the measure of how late that call is (H_STALL)."""
        cdef int64_t now = mono_ns()
        if self.tick_due and now > self.tick_due:
            hdr_record(&self.stall, now - self.tick_due)
        self.tick_due = now + TICK_NS
        self._clock()
        if self.pacer.due() <= now:
            self._release(now)
        if now >= self.house_at:
            self._house(now)
        self._refill(now)
        self._arm(mono_ns())

    cdef int _clock(self) except -1:
        cdef int64_t offset = real_minus_mono()
        if offset - self.offset > 1_000_000 or self.offset - offset > 1_000_000:
            self.words[k.W_CLOCK_STEPS] += 1
        self.offset = offset
        return 0

    cdef int _house(self, int64_t now) except -1:
        self.house_at = now + HOUSE_NS
        self.words[k.W_HEARTBEAT_NS] = now
        self.words[k.W_SPIN_NS] = self.pacer.spun
        self.words[k.W_BY_TEMPLATE] = <int64_t>self.protocol.classifier.by_template
        self.words[k.W_BY_SCAN] = <int64_t>self.protocol.classifier.by_scan
        self.words[k.W_BY_MSGSPEC] = <int64_t>self.protocol.classifier.by_msgspec
        self._expire(now)
        if self.leaves.count:
            self._see_who_leaves(now)
        if self.slow_count:
            self._sip_all(now)
        self._top_up(now)
        return 0

    # -- releases -----------------------------------------------------------------------------------------------------

    cdef int _arm(self, int64_t now) except -1:
        """Wake when the next release is due; a loop that is at its cap is woken by the end of a request alone."""
        if self.cap and self.flight.count >= self.cap:
            return 0
        return self.pacer.arm(now)

    cdef int _release(self, int64_t now) except -1:
        """Send everything that is due: never wait, never skip, never re-anchor."""
        cdef int64_t due
        cdef uint32_t request
        cdef int64_t backlog = 0
        cdef Talk* talk
        while self.sending:
            due = self.pacer.due()
            if due > now or (self.cap and self.flight.count >= self.cap):
                break
            backlog += 1
            if self.pacer.follower_is_next():
                talk = <Talk*><size_t>dues_pop(&self.pacer.followers)
                self._dispatch(talk.request, due, mono_ns(), talk.slot, talk)
                continue
            if self.closed:
                request = self._numbered(self.issued)
                self.issued += 1
            else:
                request = self._numbered(<uint64_t>self.pacer.next)
            self.pacer.next += 1
            self._dispatch(request, due, mono_ns(), <int32_t>(self.pacer.next - 1) if self.closed else -1, NULL)
        if backlog > self.words[k.W_BACKLOG_MAX]:
            self.words[k.W_BACKLOG_MAX] = backlog
        return 0

    cdef uint32_t _numbered(self, uint64_t release) noexcept:
        """The request that this worker's *release*-th one is; a used-up plan starts again with higher numbers."""
        cdef uint64_t count
        if self.talks is None:
            return <uint32_t>(self.worker + release * self.workers)
        count = <uint64_t>self.numbers.shape[0]
        return <uint32_t>(self.numbers[release % count] + release // count * self.plan_size)

    cdef bint _may_issue(self, int64_t now):
        if not self.sending or self.words[k.W_DISK_FULL]:
            return False
        if self.limit and self.issued >= self.limit:
            return False
        return not self.stop_at or now < self.stop_at

    cdef int _refill(self, int64_t now) except -1:
        """Closed loop: freed slots send at once; a slot with ten errors in a row waits (procedures 0.5)."""
        cdef int64_t t_free
        cdef uint32_t request
        while self.waiting and self.waiting[0][0] <= now:
            self.freed.append((self.waiting[0][1], self.waiting[0][0]))
            del self.waiting[0]
        while self.freed:
            slot, t_free = self.freed.pop()
            if not self._may_issue(now):
                continue
            request = self._numbered(self.issued)
            self.issued += 1
            self._dispatch(request, t_free, mono_ns(), slot, NULL)
        return 0

    cdef int _dispatch(self, uint32_t request, int64_t t_sched, int64_t now, int32_t slot, Talk* talk) except -1:
        """Send a request. *talk*: the conversation that it goes on; the one that it begins is made here."""
        cdef uint32_t number
        cdef Chunk* chunk
        cdef RequestRow* row = self.protocol.recorder.open_row(&number, &chunk)
        cdef uint32_t planned = request % self.plan_size
        cdef TargetState* target
        cdef uint16_t t = <uint16_t>(request % <uint32_t>self.target_count)
        cdef Conn* c
        cdef bint slow = self.has_client and self.client[planned].read_rate > 0
        if row == NULL:
            self.words[k.W_DISK_FULL] = 1
            self.sending = False
            if talk != NULL:
                self.talks.end(talk)
            return 0
        if self.talks is not None:
            row.session = self.talks.turns[planned].session + request // self.plan_size * self.talks.sessions
            row.turn = self.talks.turns[planned].turn
            t = <uint16_t>(row.session % <uint32_t>self.target_count)       # a conversation stays where it began
            if talk == NULL and self.talks.follows(planned):
                talk = self.talks.begin(slot)
        else:
            row.session = request
        row.t_sched = t_sched
        row.t_dispatch = now
        row.request = request
        row.input_target = <uint32_t>self.input_tokens[planned]
        row.output_target = <uint32_t>self.output_tokens[planned]
        row.request_class = self.request_class[planned]
        row.prompt_tokens = row.completion_tokens = row.reasoning_tokens = row.cached_tokens = -1
        row.retry_after_ms = -1
        row.url = t
        row.worker = <uint16_t>self.worker
        row.phase = self.phase
        row.status = r.STATUS_IN_FLIGHT
        self.words[k.W_RELEASED] += 1
        if self.phase == r.PHASE_MEASURE:
            hdr_record(&self.lag, now - t_sched)
            if t_sched - now > 1000:
                self.words[k.W_EARLY] += 1
        target = &self.targets[t]
        if target.idle.count and not self.fresh and not slow:
            c = target.idle.oldest
            self._unpool(c)
        else:
            c = self._new(t)
            if not self.fresh and not slow:
                row.flags |= FLAG_LATE_CONNECT
                self.words[k.W_LATE_CONNECTS] += 1
        c.x.row = row
        c.x.chunk = chunk
        c.x.number = number
        c.x.reused = c.served > 0
        if c.served:
            row.flags |= FLAG_REUSED
        c.request = request
        c.slot = slot
        c.deadline = now + self.timeout
        list_add(&self.flight, c)
        self.words[k.W_IN_FLIGHT] = self.flight.count
        self.protocol.open(&c.x)
        c.talk = NULL
        if talk != NULL:
            self._compose(c, talk)
            c.x.keep = self.talks.wants_reply(planned)
            if self.talks.follows(planned):
                c.talk = talk
            else:
                talk.request = request      # the body lives in it until it is sent
                c.talk = talk
        else:
            self._compose(c, NULL)
        if self.has_client:
            self._own_ways(c, row, now)
        if c.state == C_IDLE:
            return self._send(c, now)
        return self._connect(c)

    cdef int _compose(self, Conn* c, Talk* talk) except -1:
        """The three pieces of a request: the target's head, the lines that are its own, its body: in the plan, or as it was
        stitched.
        """
        cdef uint32_t planned = c.request % self.plan_size
        cdef uint64_t at = self.body_offset[planned]
        cdef uint64_t size = self.body_offset[planned + 1] - at
        cdef uint32_t of_class = self.request_class[planned]
        cdef Head* head
        cdef bint stitched = talk != NULL and talk.size > 0
        if of_class >= self.head_classes:
            of_class = 0
        head = &self.heads[of_class * <uint32_t>self.target_count + c.target]
        if stitched:
            size = talk.size
        c.lines_size = snprintf(c.lines, sizeof(c.lines), b"X-Request-Id: %s-%d-%u\r\nContent-Length: %llu\r\n\r\n",
                                <const char*>self.run_id, self.phase_number, c.request, <unsigned long long>size)
        if c.lines_size >= <int>sizeof(c.lines):
            raise ValueError(f"run id {self.run_id!r} is too long for a request head")
        c.pieces[0].iov_base = head.text
        c.pieces[0].iov_len = head.size
        c.pieces[1].iov_base = c.lines
        c.pieces[1].iov_len = c.lines_size
        c.pieces[2].iov_base = <void*>talk.body if stitched else <void*>(&self.bodies[0] + at)
        c.pieces[2].iov_len = size
        c.piece = 0
        return 0

    cdef int _send(self, Conn* c, int64_t now) except -1:
        """Hand what is left of the request to the socket; the rest follows when it takes more."""
        cdef Py_ssize_t sent
        cdef size_t part
        if c.x.row.t_submit_start == 0:
            c.x.row.t_submit_start = now
            c.x.row.local_port = wire_local_port(c.fd) if c.fd >= 0 else 0
        c.state = C_SENDING
        if c.fd < 0:
            self.streams[c.number].send(b"".join(
                [(<char*>c.pieces[i].iov_base)[:c.pieces[i].iov_len] for i in range(3)]))
            return 0
        while c.piece < 3:
            sent = wire_send(c.fd, &c.pieces[c.piece], 3 - c.piece)
            if sent == -EAGAIN:
                return 0
            if sent < 0:
                return self._broken(c, <int>-sent)
            c.x.row.bytes_sent += sent
            self.words[k.W_BYTES_OUT] += sent
            while c.piece < 3 and <size_t>sent >= c.pieces[c.piece].iov_len:
                sent -= c.pieces[c.piece].iov_len
                c.piece += 1
            if sent:
                part = <size_t>sent
                c.pieces[c.piece].iov_base = <char*>c.pieces[c.piece].iov_base + part
                c.pieces[c.piece].iov_len -= part
        return self._submitted(c)

    cdef int _submitted(self, Conn* c) except -1:
        """The last byte of the request is with the kernel (IETF B.1.1)."""
        c.x.row.t_submit = mono_ns()
        c.state = C_WAITING
        return 0

    # -- connections --------------------------------------------------------------------------------------------------

    cdef Conn* _new(self, uint16_t target) except NULL:
        cdef Conn* c
        cdef Conn** grown
        if self.spare:
            c = self.conns[<uint32_t>self.spare.pop()]
        else:
            if self.conn_count == self.conn_cap:
                grown = <Conn**>realloc(self.conns, (self.conn_cap * 2 + 256) * sizeof(Conn*))
                if grown == NULL:
                    raise MemoryError("connections")
                self.conns = grown
                self.conn_cap = self.conn_cap * 2 + 256
            c = <Conn*>calloc(1, sizeof(Conn))
            if c == NULL:
                raise MemoryError("connection")
            exchange_init(&c.x, self.protocol.max_event)
            c.number = self.conn_count
            self.conns[self.conn_count] = c
            self.conn_count += 1
        c.fd = -1
        c.generation += 1
        c.state = C_FREE
        c.target = target
        c.served = 0
        c.slot = -1
        c.talk = NULL
        c.leave_tokens = 0
        c.read_rate = 0
        c.x.row = NULL
        c.x.state = 0
        return c

    cdef int _connect(self, Conn* c) except -1:
        cdef TargetState* t = &self.targets[c.target]
        cdef Address* source = NULL
        cdef epoll_event event
        c.state = C_CONNECTING
        self.words[k.W_CONNECTIONS] += 1
        self.words[k.W_CONNECTS] += 1
        if c.x.row == NULL:
            t.connecting += 1
        if t.over_asyncio:
            self.streams[c.number] = self.connector(c.target, c.number, c.generation)
            return 0
        if self.source_count:
            source = &self.sources[self.source_next]
            self.source_next = (self.source_next + 1) % self.source_count
        c.fd = wire_connect(&t.address, source, self.stamps, SLOW_BUFFER if c.read_rate > 0 else 0)
        if c.fd < 0:
            return self._connect_failed(c, -c.fd, r.ERROR_NONE)
        event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
        event.data.u64 = (<uint64_t>c.generation << 32) | c.number
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, c.fd, &event) != 0:
            return self._connect_failed(c, EMFILE, r.ERROR_NONE)
        return 0

    cdef int _connected(self, Conn* c) except -1:
        cdef int64_t now = mono_ns()
        if c.x.row == NULL:
            self.targets[c.target].connecting -= 1
            c.state = C_IDLE
            return self._pool(c)
        c.x.row.t_connected = now
        return self._send(c, now)

    cdef int _connect_failed(self, Conn* c, int error_number, uint8_t error) except -1:
        cdef int64_t now = mono_ns()
        cdef TargetState* t = &self.targets[c.target]
        self.words[k.W_CONNECT_FAILURES] += 1
        if error == r.ERROR_NONE:
            if error_number == ECONNREFUSED:
                error = r.ERROR_CONNECT_REFUSED
            elif error_number == ETIMEDOUT:
                error = r.ERROR_CONNECT_TIMEOUT
            elif error_number == EADDRNOTAVAIL:
                error = r.ERROR_NO_PORT
            elif error_number == EMFILE or error_number == ENFILE:
                error = r.ERROR_NO_FD
            else:
                error = r.ERROR_CONNECT_FAILED
        if c.fd < 0:
            c.fd = -1
        t.retry_at = now + RETRY_NS
        if c.x.row != NULL:
            c.x.row.error_number = error_number
            self.protocol.fail(&c.x, r.STATUS_CONNECTION_ERROR, error, now, now)
            self._ended(c, now)
        return self._drop(c, False)

    cdef int _pool(self, Conn* c) except -1:
        self.words[k.W_IDLE] += 1
        c.state = C_IDLE
        list_add(&self.targets[c.target].idle, c)
        return 0

    cdef int _unpool(self, Conn* c) noexcept:
        self.words[k.W_IDLE] -= 1
        list_remove(&self.targets[c.target].idle, c)
        return 0

    cdef int _drop(self, Conn* c, bint reset) except -1:
        """Close and forget. The caller has ended the request, if there was one."""
        if c.state == C_FREE:
            return 0
        if c.state == C_IDLE:
            self._unpool(c)
        elif c.state == C_CONNECTING and c.slot == -1 and c.deadline == 0:
            self.targets[c.target].connecting -= 1
        if c.fd >= 0:
            wire_close(c.fd, reset)
            c.fd = -1
        elif c.number in self.streams:
            self.streams.pop(c.number).close(reset)
        c.state = C_FREE
        c.deadline = 0
        c.generation += 1
        self.words[k.W_CONNECTIONS] -= 1
        self.spare.append(c.number)
        return 0

    cdef int _top_up(self, int64_t now) except -1:
        """Open connections ahead of the schedule: as many idle ones as releases are near, and a margin."""
        cdef Py_ssize_t i, near = 0
        cdef int64_t horizon = now + AHEAD_NS - self.pacer.start
        cdef uint32_t share, begun = 0
        cdef TargetState* t
        if self.fresh or not self.sending:
            return 0
        if self.closed:
            # Spares only: every slot that ends gives its connection back, and the one that rested longest goes next.
            near = 0
        elif self.pacer.start:
            while self.pacer.next + near < self.pacer.size and self.pacer.schedule[self.pacer.next + near] <= horizon:
                near += 1
                if near >= 4096:
                    break
            if self.pacer.next >= self.pacer.size:
                return 0
        share = <uint32_t>((near + self.reserve + self.target_count - 1) // self.target_count)
        for i in range(self.target_count):
            t = &self.targets[i]
            while t.idle.count + t.connecting < share and begun < CONNECTS_AT_ONCE and t.retry_at <= now:
                self._connect(self._new(<uint16_t>i))
                begun += 1
        return 0

    cdef int _expire(self, int64_t now) except -1:
        """Request time-outs: every request has the same, so the in-flight list is in deadline order."""
        cdef Conn* c
        while self.flight.oldest != NULL and self.flight.oldest.deadline <= now:
            c = self.flight.oldest
            self._cancel(c, r.STATUS_TIMEOUT,
                         r.ERROR_CONNECT_TIMEOUT if c.state == C_CONNECTING else r.ERROR_DEADLINE, now)
        return 0

    cdef int _cancel(self, Conn* c, uint8_t status, uint8_t error, int64_t now) except -1:
        self.protocol.fail(&c.x, status, error, now, now)
        self._ended(c, now)
        return self._drop(c, True)

    # -- events -------------------------------------------------------------------------------------------------------

    cdef int _event(self, epoll_event* event) except -1:
        cdef uint32_t number = <uint32_t>event.data.u64
        cdef uint32_t flags = event.events
        cdef Conn* c = self.conns[number]
        cdef int failed
        if c.generation != <uint32_t>(event.data.u64 >> 32):
            return 0                # of a connection that was dropped earlier in this batch
        if c.state == C_CONNECTING:
            if not flags & (EPOLLOUT | EPOLLERR | EPOLLHUP):
                return 0
            failed = wire_connect_error(c.fd)
            if failed:
                return self._connect_failed(c, failed, r.ERROR_NONE)
            self._connected(c)
            if c.generation != <uint32_t>(event.data.u64 >> 32):
                return 0
        elif c.state == C_SENDING and flags & EPOLLOUT:
            self._send(c, 0)
            if c.generation != <uint32_t>(event.data.u64 >> 32):
                return 0
        if flags & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) and c.read_rate == 0:
            return self._read(c, flags)
        return 0

    cdef int _read(self, Conn* c, uint32_t flags) except -1:
        """Read until the socket is empty: one recvmsg, unless it filled the buffer or the peer has closed."""
        cdef int64_t stamp
        cdef Py_ssize_t got
        cdef uint32_t generation = c.generation
        while True:
            got = wire_recv(c.fd, self.buffer, BUFFER, &stamp)
            if got == -EAGAIN:
                return 0
            if got <= 0:
                return self._broken(c, <int>-got)
            self._got(c, got, stamp)
            if c.generation != generation or (got < BUFFER and not flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)):
                return 0

    cdef int _got(self, Conn* c, Py_ssize_t got, int64_t stamp) except -1:
        """*got* bytes are in the buffer; *stamp* is the kernel's, 0 when it gave none."""
        cdef int64_t t, user_t = mono_ns()
        cdef uint8_t stamp_class
        cdef bint had
        cdef Verdict verdict
        self.words[k.W_READS] += 1
        self.words[k.W_BYTES_IN] += got
        if stamp and c.read_rate == 0:      # a slow reader has it when it reads it, however long it lay in the kernel
            t = stamp - self.offset
            if t > user_t:
                t = user_t
            stamp_class = r.STAMP_KERNEL
            self.words[k.W_KERNEL_STAMPS] += 1
            hdr_record(&self.socket_to_user, user_t - t)
        else:
            t = user_t
            stamp_class = r.STAMP_USER
            self.words[k.W_USER_STAMPS] += 1
        had = c.x.row != NULL
        verdict = self.protocol.feed(&c.x, self.buffer, <size_t>got, t, stamp_class, user_t)
        return self._fed(c, verdict, had, user_t)

    cdef int _fed(self, Conn* c, Verdict verdict, bint had, int64_t user_t) except -1:
        """What the exchange says about the connection."""
        cdef bint ended = had and c.x.row == NULL
        if verdict == V_MORE:
            if ended:
                c.state = C_TAIL
                self._ended(c, user_t)
            elif had and c.leave_tokens and c.x.row.content_events >= c.leave_tokens:
                return self._leave(c, r.ERROR_CLIENT_CANCELLED, mono_ns())
            return 0
        # A request whose response came before it was sent whole leaves the connection in an unknown state.
        if verdict == V_REUSE and c.state != C_SENDING and not self.fresh and c.read_rate == 0:
            c.served += 1
            c.deadline = 0
            if ended:
                self._ended(c, user_t)      # leaves the in-flight list before the connection enters the idle one
            return self._pool(c)
        if ended:
            c.state = C_TAIL
            self._ended(c, user_t)
        elif c.state == C_IDLE:
            self.words[k.W_IDLE_DROPPED] += 1
        return self._drop(c, False)

    cdef int _ended(self, Conn* c, int64_t user_t) except -1:
        """The request is over, in whatever status: its slot is free, and a capped open loop may release."""
        cdef int32_t slot = c.slot
        cdef bint goes_on = c.talk != NULL and self._goes_on(c, slot)
        list_remove(&self.flight, c)
        self.words[k.W_IN_FLIGHT] = self.flight.count
        c.slot = -1
        if not self.closed:
            if self.cap and self.pacer.due() <= user_t:
                self._release(user_t)
            return 0
        if slot < 0 or not self.sending or goes_on:
            return 0
        if self.protocol.last_ok or self.protocol.last_left:
            self.slot_errors[slot] = 0
        else:
            self.slot_errors[slot] += 1
            if self.slot_errors[slot] >= ERRORS_IN_A_ROW:
                self.waiting.append((user_t + RETRY_NS, slot))
                return 0
        self.freed.append((slot, user_t))
        return 0

    cdef bint _goes_on(self, Conn* c, int32_t slot) except -1:
        """Whether another turn follows: it is stitched now, and due after some time to think (metrics: t_sched).

        A turn that was not answered well ends its conversation, and so does the end of sending.
        """
        cdef Talk* talk = c.talk
        cdef uint32_t planned = c.request % self.plan_size
        cdef int64_t due
        c.talk = NULL
        if self.sending and self.protocol.last_ok and self.talks.follows(planned):
            due = self.protocol.last_t + self.talks.think_ns(planned)
            if not self.stop_at or due < self.stop_at:
                self.talks.stitch(talk, planned, c.x.reply, c.x.reply_size)
                talk.request = c.request + 1
                talk.slot = slot
                dues_push(&self.pacer.followers, due, <uint64_t><size_t>talk)
                return True
        self.talks.end(talk)
        return False

    cdef int _end_talks(self) noexcept:
        """Turns that were still to come are not sent."""
        while self.pacer.followers.count:
            self.talks.end(<Talk*><size_t>dues_pop(&self.pacer.followers))
        return 0

    # -- what users do besides waiting --------------------------------------------------------------------------------

    cdef int _own_ways(self, Conn* c, RequestRow* row, int64_t now) except -1:
        """How the user of this request will behave, by the plan."""
        cdef const Leaving* user = &self.client[c.request % self.plan_size]
        cdef int64_t first = min(user.cancel_ns if user.cancel_ns else user.abandon_ns,
                                 user.abandon_ns if user.abandon_ns else user.cancel_ns)
        c.leave_tokens = user.cancel_tokens
        if user.cancel_ns or user.cancel_tokens:
            row.client |= CLIENT_CANCELS
        if user.abandon_ns:
            row.client |= CLIENT_ABANDONS
        if first:
            dues_push(&self.leaves, now + first, <uint64_t>c.number << 32 | c.x.number)
        if user.read_rate > 0:
            row.client |= CLIENT_SLOW
            c.read_rate = user.read_rate
            c.read_bytes = user.read_bytes != 0
            c.read_from = 0
            self._slow_reader(c)
        return 0

    cdef int _see_who_leaves(self, int64_t now) except -1:
        """Times count from t_submit, which was not known when the instant was noted: some are looked at again."""
        cdef uint64_t what
        cdef int64_t since, cancel, abandon
        cdef bint waits
        cdef const Leaving* user
        cdef Conn* c
        while dues_first(&self.leaves) <= now:
            what = dues_pop(&self.leaves)
            c = self.conns[<uint32_t>(what >> 32)]
            if c.x.row == NULL or c.x.number != <uint32_t>what:
                continue                    # it has ended
            user = &self.client[c.request % self.plan_size]
            since = c.x.row.t_submit if c.x.row.t_submit else c.x.row.t_dispatch
            cancel = since + user.cancel_ns if user.cancel_ns else INT64_MAX
            waits = user.abandon_ns and (user.abandon_e2e or c.x.row.t_first == 0)
            abandon = since + user.abandon_ns if waits else INT64_MAX
            if cancel <= now:
                self._leave(c, r.ERROR_CLIENT_CANCELLED, now)
            elif abandon <= now:
                self._leave(c, r.ERROR_CLIENT_ABANDONED, now)
            elif min(cancel, abandon) < INT64_MAX:
                dues_push(&self.leaves, min(cancel, abandon), what)
        return 0

    cdef int _leave(self, Conn* c, uint8_t error, int64_t now) except -1:
        return self._cancel(c, r.STATUS_CANCELLED, error, now)

    cdef int _slow_reader(self, Conn* c) except -1:
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

    cdef int _sip_all(self, int64_t now) except -1:
        cdef uint32_t i, kept = 0, count = self.slow_count
        cdef Conn* c
        for i in range(count):
            c = self.conns[<uint32_t>self.slow[i]]
            if c.generation != <uint32_t>(self.slow[i] >> 32):
                continue
            if c.state == C_WAITING or c.state == C_SENDING or c.state == C_TAIL:
                self._sip(c, now)
            self.slow[kept] = self.slow[i]
            kept += 1
        self.slow_count = kept
        return 0

    cdef int _sip(self, Conn* c, int64_t now) except -1:
        """Read as much as the rate allows since the first bytes came, and leave the rest where the server feels it."""
        cdef uint32_t generation = c.generation
        cdef int64_t stamp
        cdef Py_ssize_t got
        cdef double allowed
        cdef size_t most
        while c.generation == generation:
            allowed = c.read_rate * (now - c.read_from) * 1e-9 if c.read_from else 0
            most = SIP
            if c.x.row != NULL and c.read_bytes:
                allowed += SIP
                if allowed < c.x.row.bytes_received + 1:
                    return 0
                most = min(<size_t>BUFFER, <size_t>allowed - c.x.row.bytes_received)
            elif c.x.row != NULL and c.x.row.content_events > allowed:
                return 0
            got = wire_recv(c.fd, self.buffer, most, &stamp)
            if got == -EAGAIN:
                return 0
            if got <= 0:
                return self._broken(c, <int>-got)
            if c.read_from == 0:
                c.read_from = now
            self._got(c, got, stamp)
        return 0

    cdef int _broken(self, Conn* c, int error_number) except -1:
        """The peer closed (0) or the connection failed (errno)."""
        cdef int64_t now = mono_ns()
        cdef bint had = c.x.row != NULL
        if c.state == C_IDLE:
            self.words[k.W_IDLE_DROPPED] += 1
        elif had:
            self.protocol.eof(&c.x, now, now, error_number)
            c.state = C_TAIL
            self._ended(c, now)
        return self._drop(c, False)

    # -- connections of the event loop --------------------------------------------------------------------------------

    def stream_connected(self, uint32_t number, uint32_t generation) -> bool:
        """False: the connection is no longer wanted."""
        cdef Conn* c = self.conns[number]
        if c.generation != generation or c.state != C_CONNECTING:
            return False
        self._connected(c)
        self._refill(mono_ns())
        return True

    def stream_connect_failed(self, uint32_t number, uint32_t generation, int error_number, bint tls) -> None:
        cdef Conn* c = self.conns[number]
        if c.generation == generation and c.state == C_CONNECTING:
            self._connect_failed(c, error_number, r.ERROR_TLS if tls else r.ERROR_NONE)
            self._refill(mono_ns())

    def stream_sent(self, uint32_t number, uint32_t generation, Py_ssize_t size) -> None:
        cdef Conn* c = self.conns[number]
        if c.generation == generation and c.state == C_SENDING and c.x.row != NULL:
            c.x.row.bytes_sent += size
            self.words[k.W_BYTES_OUT] += size
            self._submitted(c)

    def stream_lost(self, uint32_t number, uint32_t generation, int error_number) -> None:
        cdef Conn* c = self.conns[number]
        if c.generation == generation and c.state != C_FREE:
            self._broken(c, error_number)
            self._refill(mono_ns())

    def stream_data(self, uint32_t number, uint32_t generation, Py_ssize_t size) -> None:
        cdef Conn* c = self.conns[number]
        cdef int64_t user_t = mono_ns()
        cdef bint had
        if c.generation != generation or c.state == C_FREE:
            return
        had = c.x.row != NULL
        self.words[k.W_READS] += 1
        self.words[k.W_BYTES_IN] += size
        self.words[k.W_USER_STAMPS] += 1
        self._fed(c, self.protocol.feed(&c.x, self.buffer, <size_t>size, user_t, r.STAMP_USER, user_t), had, user_t)
        if self.freed:
            self._refill(user_t)
        user_t = mono_ns()
        if self.pacer.due() <= user_t:
            self._release(user_t)
            user_t = mono_ns()
        self._arm(user_t)
