"""All streams of a worker.

Theory of operation. One epoll set holds every socket and the pacer's timer; its descriptor is registered with the event
loop once. The loop calls `on_ready` when anything is ready; inside, everything is C: `epoll_wait`, `recvmsg`, frame,
classify, stamp, record. Between two reads of a batch every release that is due is sent. A beat every 5 ms does what can wait
(time-outs, users who leave or read slowly, connections ahead of the schedule) and measures how late it comes itself, which is
how long what is ready waits for its turn. A stall is something else: a time in which neither sockets nor clock were polled.

The Reactor has the epoll set, the timers and the life cycle, and three parts: a Pool of connections, a Transport that moves bytes
over them, and Releases, which decide what is sent when and what follows the end of a request.
"""

import os

from libc.stdint cimport INT64_MAX, int32_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc

from fastllmload._ext.http.block import request_block

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.plan.bodies cimport Bodies
from fastllmload._ext.plan.leaving cimport Leaving
from fastllmload._ext.plan.talk cimport Talks
from fastllmload._ext.receive.protocol cimport Protocol
from fastllmload._ext.record.histogram cimport HDR_WORDS, hdr_record
from fastllmload._ext.send.connection cimport connection_fetch
from fastllmload._ext.send.identity cimport Identity
from fastllmload._ext.send.share cimport Share
from fastllmload._ext.send.transport cimport STOPPED_NS, WAKE_NS
from fastllmload._ext.system.clock cimport mono_ns, thread_cpu_ns
from fastllmload._ext.tls.session cimport TlsContext
from fastllmload._ext.system.wire cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLLET, EPOLLIN, epoll_create1, epoll_ctl, wire_run_delay, wire_stops, wire_wait,
)

cdef extern from *:
    """
    #include <Python.h>
    /* Whether the calling thread is the only one that has anything to do with the interpreter. */
    static int fll_one_thread(void) {
        PyThreadState *first = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
        return first == PyThreadState_Get() && PyThreadState_Next(first) == NULL;
    }
    """
    bint fll_one_thread()

cdef enum:
    BATCH = 256                 # events taken from the kernel at once
    AHEAD = 3                   # the memory of a connection is asked for that many events before its own
    SLEPT_NS = 50_000           # time neither on a processor nor waiting for one: the thread slept
    POLL_NS = 5_000             # a poll has looked at every socket at most this long before it returned
    BEAT_NS = 5_000_000         # between two beats
    LOOP_BEATS = 8              # the event loop gets its turn after that many of them
    TIMER = 0xFFFFFFFF          # epoll tag of the pacer's timer
    BEAT = 0xFFFFFFFE           # and of the beat
    UNREAD_NS = 1_000_000_000   # a request whose socket was not looked at since its deadline is given this long
    HOUSE_NS = 5_000_000        # housekeeping at most this often
    AHEAD_NS = 30_000_000       # connections are opened for releases this far ahead
    NEAR = 4096                 # and for that many of them
    MARGIN = 8                  # spare connections beyond those
    CONNECTS_AT_ONCE = 64       # pre-connects per housekeeping: connecting must not hold up releases


cdef class Reactor:
    """Drives one worker's load. Life cycle: targets, load(phase), preconnect, start_at, on_ready ..., close."""

    def __init__(self, Protocol protocol not None, Pacer pacer not None, *, bytes run_id, int worker, int workers,
                 int64_t timeout_ns, bint kernel_stamps, bint fresh_connections, sources=()):
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError("epoll_create1 failed: out of file descriptors")
        self.words = protocol.words
        self.pacer = pacer
        self.users = Users()
        self.pool = Pool(self.epfd, protocol.shared, protocol.max_event, kernel_stamps, fresh_connections, sources)
        self.transport = Transport(protocol, self.pool, self.users)
        self.releases = Releases(self.transport, pacer, Share(run_id, worker, workers), timeout_ns)
        self.beat = Beat()
        self.lateness.counts = self.words + k.WORDS + k.H_BEAT * HDR_WORDS
        self.beat_due = INT64_MAX
        self.events = <epoll_event*>malloc(BATCH * sizeof(epoll_event))
        if self.events == NULL:
            raise MemoryError("events")
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLET
        event.data.u64 = TIMER
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, pacer.fd, &event) != 0:
            raise OSError("the pacer's timer cannot be watched")
        event.data.u64 = BEAT
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, self.beat.fd, &event) != 0:
            raise OSError("the beat's timer cannot be watched")

    def __dealloc__(self):
        free(self.events)
        if self.epfd > 0:
            os.close(self.epfd)

    def fileno(self) -> int:
        """The epoll descriptor: readable whenever a socket or the timer is ready."""
        return self.epfd

    def use_tls(self, TlsContext context not None) -> None:
        """The settings of all targets with a *server_name* that are added after this."""
        self.transport.use_tls(context)

    def add_target(self, str family, address, int port, bytes head, bint over_asyncio, double weight=1.0,
                   bytes server_name=None, uint32_t http2_streams=0, bytes websocket_accept=None, uint8_t id_tag=0) -> None:
        """*head*: the request head from the request line to the last fixed header, each line ended by CRLF. *weight*: its
        part of the requests, relative to the weights of the others. *server_name*: of the certificate, ASCII; None: no TLS.
        *http2_streams*: HTTP/2 is spoken, with at most that many streams on a connection; 0: HTTP/1.1. *websocket_accept*: each
        connection begins with *head*, which asks for an upgrade, and this is the answer to its key; None: no WebSocket. *id_tag*:
        bodies are messages of gRPC, and this the tag of the field with the request's id.
        """
        own = b"" if websocket_accept is not None else request_block(head, server_name is not None) if http2_streams else head
        self.releases.share.add_target(own, 0, id_tag)
        self.pool.add_target(family, address, port, over_asyncio, weight, server_name)
        if http2_streams:
            self.pool.use_http2(<uint16_t>(self.pool.target_count - 1), http2_streams)
        if websocket_accept is not None:
            self.pool.use_websocket(<uint16_t>(self.pool.target_count - 1), head + b"\r\n")
            self.transport.protocol.websocket.accept = websocket_accept

    def add_class(self, list heads, uint8_t dialect=0, uint8_t id_tag=0) -> None:
        """One more class of requests, numbered from 0 (which the targets' own heads are): a head per target. *dialect*: the
        number of that of its answers in the classifier.
        """
        self.releases.share.add_class(
            [b"" if self.pool.targets[i].upgrade != NULL
             else request_block(head, self.pool.targets[i].tls) if self.pool.targets[i].http2 else head
             for i, head in enumerate(heads)], dialect, id_tag)

    def use_identity(self, Identity identity not None) -> None:
        """Requests name their sessions; before the first phase is loaded."""
        self.releases.share.identity = identity

    def set_connector(self, connector, call_soon) -> None:
        """*connector(target, number, generation)* begins a connection of the event loop and returns its Stream. *call_soon* is
        the loop's: it calls before the next poll.
        """
        self.pool.connector = connector
        self.call_soon = call_soon
        self.end_turn = self.turn_ended

    def load(self, *, int phase, int phase_number, schedule, const uint64_t[::1] body_offset, const uint8_t[::1] bodies,
             const int32_t[::1] input_tokens, const int32_t[::1] output_tokens, const uint16_t[::1] request_class,
             bint closed, uint64_t limit=0, uint32_t cap=0, uint32_t most_waiting=0, uint32_t reserve=MARGIN, const uint32_t[::1] numbers=None,
             Talks talks=None, const Leaving[::1] client=None, const uint16_t[::1] target=None, uint32_t slots=0,
             Bodies near=None, const int32_t[::1] chain=None, const int32_t[::1] parent=None, const int32_t[::1] place=None,
             const int64_t[::1] closings=None, uint32_t own=0, pools=None,
             bint mixed=False, bint own_first=False) -> None:
        """Take over one phase.

        *schedule*: int64 ns offsets of this worker's releases (open loop), or of the instants at which a slot opens: ascending, zeros
        where nothing else is asked. Where the number of slots changes, *closings* are the instants at which one slot less is wanted,
        and *own* is the most that this worker has at once. *own_first*: each slot begins with a request of its own, in the middle of a
        session. *pools*: where classes are closed loops, eight arrays: the most slots that this worker has of each, how many requests
        it has, how many of them it may send, the requests; places in *schedule* at which a slot opens, ascending, and the class of each
        of these; how many of *closings* each class has; with how many requests its slots begin. The rest of *schedule* is an open loop.
        The other arrays cover the whole plan. *limit*: releases of this worker in a closed loop, 0 without bound. *cap*: its most in
        flight in an open loop, *most_waiting*: its most that wait for their first token; 0: no cap.
        *numbers*: with *talks*, the requests that its releases are, in order; else they are worker, worker + workers ...,
        again in each round of *slots*, which are those of all workers in a closed loop.
        *client*: what users do besides waiting. *target*: of each request of the plan; None: dealt round robin.
        *near*: the same bodies, in their file; None: *bodies* is memory of this process. *chain*: the agent of each request in its
        session; *parent*: chain of the agent that started it, -1: none; *place*: in the chain, -1 - place for the last one there.
        None: a session has one agent. *mixed*: some classes are closed loops and others are not.
        """
        cdef Share share = self.releases.share
        self.releases.end_talks()
        share.begin(<uint8_t>phase, phase_number)
        share.body_offset = body_offset
        share.bodies = bodies
        self.transport.bodies = self.transport.streams.bodies = Bodies(bodies) if near is None else near
        share.input_tokens = input_tokens
        share.output_tokens = output_tokens
        share.request_class = request_class
        share.plan_size = <uint32_t>(body_offset.shape[0] - 1)
        share.slots = slots
        own = own if own else <uint32_t>len(schedule)
        share.own = own if closed and slots and pools is None else 0
        share.numbers = numbers
        share.target = target
        share.talks = talks
        share.chain = chain
        share.parent = parent
        share.place = place
        self.users.begin(client)
        share.own_first = own_first and closed and pools is None
        if pools is None:
            self.releases.open_at(None, None, len(schedule) if closed else 0)
            self.releases.slots.begin(own if closed else len(schedule), limit, closings)
        else:
            self.releases.open_at(pools[4], pools[5], len(pools[4]))
            self.releases.slots.begin(int(pools[0].sum()), limit, closings)
            self.releases.slots.divide(pools[0], pools[1], pools[2], pools[3], pools[6], pools[7], share.plan_size)
        if share.own_first:
            self.releases.slots.kept = own
        self.pacer.load(schedule)
        self.releases.closed = closed
        self.releases.mixed = mixed
        self.releases.cap = cap
        self.releases.most_waiting = most_waiting
        self.reserve = reserve
        self.releases.stop_at = 0
        self.releases.sending = True

    def start_at(self, int64_t start, int64_t stop_sending_ns=0) -> None:
        """Time zero (CLOCK_MONOTONIC ns). A closed loop sends nothing from *stop_sending_ns* after it on (0: no bound)."""
        self.releases.stop_at = start + stop_sending_ns if stop_sending_ns else 0
        self.staying = not self.pool.foreign
        self.looked = mono_ns()
        self._take_times()
        self.words[k.W_STALL_MAX_NS] = 0
        self._next_beat(self.looked)
        self.pacer.start_at(start)

    def shift(self, int64_t ns) -> None:
        """After start_at(): move the releases of the schedule that are still to come, and the end of a closed loop, to *ns* after
        where start_at() put them. This is W_CLOCK_SHIFT: how the schedule follows the driver's clock on a host.

        What was released stays so, and nothing is released twice. A release that is now due in the past is sent at once, and is
        late by that. Turns of a conversation follow replies, which this host's clock has measured, and are not moved.
        """
        if self.releases.stop_at:
            self.releases.stop_at += ns - self.pacer.shifted
        self.pacer.shift(ns)
        self.releases.arm(mono_ns())

    def preconnect(self, uint32_t count) -> None:
        """Begin connections until the targets have *count* between them, idle or under way."""
        self.pool.open_ahead(count, count)

    @property
    def in_flight(self) -> int:
        return self.releases.flight.count

    @property
    def connecting(self) -> int:
        return self.pool.connecting()

    @property
    def idle(self) -> int:
        return self.pool.idle()

    @property
    def released(self) -> int:
        cdef Py_ssize_t arrived = self.pacer.next - self.releases.opened
        if not self.releases.closed:
            return self.pacer.next
        return arrived + self.releases.slots.issued

    @property
    def finished(self) -> bool:
        """Nothing more will be sent and nothing is in flight."""
        if self.releases.flight.count or self.releases.slots.freed:
            return False
        if not self.releases.sending or self.words[k.W_DISK_FULL]:
            return True
        if self.pacer.followers.count or self.pacer.next < self.pacer.size:
            return False
        return not self.releases.closed or not self.releases.may_issue(mono_ns())

    @property
    def sending_over(self) -> bool:
        """Nothing more will be sent."""
        cdef int64_t now = mono_ns()
        if self.releases.sending and self.releases.share.talks is not None and self.releases.share.talks.alive and (
                not self.releases.stop_at or now < self.releases.stop_at):
            return False
        return not self.releases.sending or (self.pacer.next >= self.pacer.size
                                    and not self.pacer.followers.count
                                    and not (self.releases.closed and self.releases.may_issue(now)))

    def drain(self) -> None:
        """Send no more; what is in flight continues."""
        self.releases.sending = False
        self.releases.slots.clear()
        self.releases.end_talks()
        self.pacer.stop()

    def cancel_all(self) -> None:
        """End everything in flight as cancelled."""
        cdef int64_t now = mono_ns()
        self.drain()
        self.releases.cancel_all(now)

    def rest(self) -> None:
        """The phase is over: the event loop has its own time again."""
        if self.releases.share.identity is not None:
            self.releases.share.identity.tell_all()
        self.staying = False
        self.beat_due = INT64_MAX
        self.beat.after(0)

    def close_connections(self) -> None:
        """Close what is not in flight (between phases: the pool; at the end: everything)."""
        self.pool.close_idle()

    # -- the loop's entries -------------------------------------------------------------------------------------------

    def on_ready(self) -> None:
        """The epoll descriptor is readable: handle batches, and stay for more while the clock runs.

        Returning to the event loop after every batch would cost its own wait, a call and a second wake-up through the
        nested descriptor. So the reactor waits for the next batch itself until a beat gives the loop its turn (`resumes`).
        Where no other thread runs Python, nothing could use the interpreter meanwhile, and it is not given up.
        Connections that the loop owns would starve meanwhile, so with any of those it returns at once. The wait has no
        time-out: arming a kernel timer for each would cost a microsecond.
        """
        cdef int64_t now, since
        cdef int n
        self.alone = fll_one_thread()
        self.leave = False
        if self.pool.foreign:
            self.loop_called(mono_ns())
        while True:
            self.transport.stops = wire_stops()
            since = mono_ns() if self.staying else 0
            if self.alone:
                n = self._poll()
            else:
                with nogil:
                    n = self._poll()
            if n <= 0:
                break
            self._batch(n, since)
            if self.leave or not self.staying:
                break
        now = mono_ns()
        if now >= self.house_at:
            self._house(now)
            self.releases.follow(now)
        self.releases.arm(now)

    @property
    def resumes(self) -> bool:
        """on_ready() returned to give the event loop its turn, and is to be called again right after that."""
        return self.leave and self.staying

    def tick(self) -> None:
        """What the beat does while the clock runs, for a worker whose clock does not run yet: clock, releases, pool."""
        cdef int64_t now = mono_ns()
        self.transport.clock()
        self._woken(now, 0)
        if now >= self.house_at:
            self._house(now)
        self.releases.refill(now)
        self.releases.follow(now)
        self.releases.arm(mono_ns())

    def fail(self, error: BaseException) -> None:
        """Keep the first exception of a callback, which the event loop would only log; nothing is handled after it."""
        if self.failure is None:
            self.failure = error

    cdef int64_t loop_earliest(self, int64_t user_t) except -1:
        """Not before the loop's poll of the turn before, which did not find them; nor before the thread last woke, since nothing
        was ready when it went to sleep.
        """
        self.loop_called(user_t)
        return max(self.polled_before, self.woken_at)

    cdef int loop_called(self, int64_t now) except -1:
        """The first callback of a turn tells when the loop's poll returned: since the turn before had ended, the thread has run,
        or waited for a processor, or slept in that poll, so it was no longer ago than it did of the first two. Where the thread
        stood still, all that is known is that the poll came after that turn.
        """
        cdef int64_t delay, busy
        if self.in_turn or self.call_soon is None:
            return 0
        self.in_turn = True
        self.call_soon(self.end_turn)
        self.polled_before = self.polled
        self.polled = self.ended_at
        delay = wire_run_delay(self.transport.schedstat)
        busy = delay - self.ended_delay + thread_cpu_ns() - self.ended_cpu
        if (self.ended_at and delay >= 0 and self.ended_delay >= 0 and wire_stops() == self.ended_stops
                and now - self.beat_due <= busy + STOPPED_NS):
            self.polled = max(self.ended_at, now - busy - POLL_NS)
            if now - self.ended_at - busy > SLEPT_NS:
                self.woken_at = now - busy - WAKE_NS
        return 0

    def turn_ended(self) -> None:
        """The event loop calls what its turn has left for later; its poll is next."""
        self.in_turn = False
        self.ended_stops = wire_stops()
        self.ended_delay = wire_run_delay(self.transport.schedstat)
        self.ended_cpu = thread_cpu_ns()
        self.ended_at = mono_ns()

    cdef int loop_read(self, int64_t user_t) except -1:
        self._woken(user_t, 0)
        self.releases.follow(mono_ns())
        return self.releases.arm(mono_ns())

    cdef int _poll(self) noexcept nogil:
        cdef int n = wire_wait(self.epfd, self.events, BATCH, -1 if self.staying else 0)
        if n > 0:
            connection_fetch(self.events[0].data.u64)
        return n

    cdef int _batch(self, int n, int64_t since) except -1:
        """One batch: read every socket that is ready, and between two reads send what is due. *since*: when the thread began
        to wait for it, 0 when the event loop did that.
        """
        cdef int i
        cdef int64_t begun, now
        for i in range(1, min(n, AHEAD)):
            connection_fetch(self.events[i].data.u64)
        begun = now = self.transport.check_clock()
        self.transport.empty_at = self.clear - POLL_NS
        self.transport.begun = begun
        self.transport.slept_from = since if wire_stops() == self.transport.stops else 0
        self.transport.awaited = self.beat_due
        self.transport.ready = -1
        if n < BATCH:
            # A thread that stood still may have done so between the poll and this line.
            self.clear = begun if wire_stops() == self.transport.stops and self.transport.on_time(0) else max(since, self.clear)
        self._woken(now, self.transport.slept_from if self.alone else 0)
        for i in range(n):
            if i + AHEAD < n:
                connection_fetch(self.events[i + AHEAD].data.u64)
            if self.events[i].data.u64 == BEAT:
                now = mono_ns()
                self._on_beat(now)
            elif self.events[i].data.u64 == TIMER:
                if since and self.pacer.armed > since:
                    self.pacer.woke(begun)
            else:
                self.transport.read_at = 0
                self.transport.event(&self.events[i])
                now = self.transport.read_at if self.transport.read_at else mono_ns()
            if now - self.looked > k.STALL_LEAST_NS:
                self._stalled(self.looked, now, 0)
            self.looked = now
            self.releases.follow(now)
        now = self.pacer.spin(now)
        if self.pacer.due() <= now and not self.releases.held():
            if now - self.pacer.due() > k.STALL_LEAST_NS:       # it reads the clock all the time, unless it is held up
                self._stalled(self.pacer.due(), now, 0)
                self.looked = now
            self.releases.release(now, now)
            now = mono_ns()
        self.words[k.W_BATCHES] += 1
        if now - begun > self.words[k.W_BATCH_MAX_NS]:
            self.words[k.W_BATCH_MAX_NS] = now - begun
        if self.times_due:
            self._take_times()
        if now >= self.house_at:
            self._house(now)
            self.releases.follow(now)
        return self.releases.arm(now)

    cdef int _on_beat(self, int64_t now) except -1:
        """It was ready since the instant that it was due, and waited for its turn like a socket (H_BEAT)."""
        hdr_record(&self.lateness, now - self.beat_due)
        self.times_due = True
        self.beats += 1
        if self.beats >= LOOP_BEATS:
            self.beats = 0
            self.leave = True
        self.releases.refill(now)
        return self._next_beat(now)

    cdef void _woken(self, int64_t now, int64_t asleep) noexcept:
        """The first poll after a wait: there need not have been anything to poll before the beat or a release was due.
        *asleep*: since when the thread slept for that; 0: it may have done something else.
        """
        cdef int64_t begin = max(self.looked, min(self.beat_due, self.pacer.due()))
        if now - begin > k.STALL_LEAST_NS:
            self._stalled(begin, now, asleep)
        self.looked = now

    cdef void _stalled(self, int64_t begin, int64_t end, int64_t asleep) noexcept:
        """Neither sockets nor clock were polled from *begin* to *end*. *asleep*: since when the thread slept although a timer
        of its own was due (the kernel or the hypervisor woke it late), which is a wait for a processor, too; 0: it did not.
        """
        cdef int64_t* at
        cdef int64_t delay
        if end - begin > self.words[k.W_STALL_MAX_NS]:
            self.words[k.W_STALL_MAX_AT] = begin
            self.words[k.W_STALL_MAX_NS] = end - begin
        if end - begin > k.STALL_NS:
            # Of the time since these were taken last, which is a few ms more than the stall.
            delay = wire_run_delay(self.transport.schedstat)
            at = self.words + k.WORDS + k.HISTOGRAMS * HDR_WORDS + k.STALL_WORDS * (self.words[k.W_STALLS] % k.STALL_RING)
            at[0] = begin
            at[1] = end - begin
            at[2] = -1 if delay < 0 or self.transport.run_delay < 0 else max(1, min(delay - self.transport.run_delay, end - begin))
            at[3] = min(thread_cpu_ns() - self.transport.cpu_time, end - begin)
            if asleep:
                at[2] = max(at[2], end - max(begin, asleep) - at[3])
            if wire_stops() != self.times_stops:
                at[2] = 0  # a signal stopped the thread, whatever it waited for besides; 0 in no other case
            self.words[k.W_STALLS] += 1
            self.times_due = True

    cdef void _take_times(self) noexcept:
        self.times_due = False
        self.times_stops = wire_stops()
        self.transport.run_delay = wire_run_delay(self.transport.schedstat)
        self.transport.cpu_time = thread_cpu_ns()

    cdef int _next_beat(self, int64_t now) except -1:
        self.beat_due = now + BEAT_NS
        return self.beat.after(BEAT_NS)

    cdef int _house(self, int64_t now) except -1:
        """What need not be done at once: time-outs, users who leave or read slowly, connections ahead, counters."""
        cdef int64_t until
        self.house_at = now + HOUSE_NS
        self.words[k.W_HEARTBEAT_NS] = now
        self.words[k.W_SPIN_NS] = self.pacer.spun
        self.words[k.W_BY_TEMPLATE] = <int64_t>self.transport.protocol.classifier.by_template
        self.words[k.W_BY_SCAN] = <int64_t>self.transport.protocol.classifier.by_scan
        self.words[k.W_BY_MSGSPEC] = <int64_t>self.transport.protocol.classifier.by_msgspec
        # A poll that found more than it could return has left sockets unread: what lies there may be the answer in time.
        until = now if self.pool.foreign else max(self.clear, now - UNREAD_NS)
        self.releases.cancel_overdue(until, now)
        self.releases.cancel_left(now)
        if self.users.slow_count:
            self.transport.sip_all(now)
        self.pool.end_tails(now)
        self.transport.streams.end_tails(now)
        self.releases.handle_ends()
        return self._open_ahead(now)

    cdef int _open_ahead(self, int64_t now) except -1:
        """Open connections ahead of the schedule: as many idle ones as releases are near, and a margin."""
        cdef Py_ssize_t near = 0
        cdef uint32_t spare = self.reserve
        if not self.releases.sending:
            return 0
        if self.releases.closed and self.releases.openings == self.pacer.size:
            # Every slot that ends gives its connection back. More connections than slots are for a server that has
            # dropped a kept one: one that serves a single connection at a time would never answer on the others.
            if not self.words[k.W_IDLE_DROPPED] and not self.words[k.W_ERROR0 + r.ERROR_REUSED_CONNECTION_LOST]:
                spare = min(spare, self.releases.slots.count - min(self.releases.flight.count, self.releases.slots.count))
        elif self.pacer.start:
            if self.pacer.next >= self.pacer.size and not self.releases.closed:
                return 0
            near = self.pacer.near(now + AHEAD_NS, self.releases.most_waiting if self.releases.most_waiting else <uint32_t>NEAR)
        return self.pool.open_ahead(<uint32_t>near + spare, CONNECTS_AT_ONCE)
