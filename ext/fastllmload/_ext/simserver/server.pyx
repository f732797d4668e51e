"""The simulated engine's server: one thread, one epoll set, one timerfd.

One turn: sleep until a socket, a signal or the next due instant; read what came; then let the cadence say which sequences
have new tokens, and write them.
"""

from libc.errno cimport ECONNABORTED, EINTR, EMFILE, ENFILE, errno
from posix.time cimport CLOCK_MONOTONIC
from posix.unistd cimport close

from fastllmload._ext.http.frames cimport CODE_NO_ERROR
from fastllmload._ext.sim.timer cimport NEVER, Timer, timers_due, timers_pop
from fastllmload._ext.simserver.connection cimport (
    CONNECTION_BUSY, CONNECTION_DRAINING, CONNECTION_READING, CONNECTION_SILENT, pending,
)
from fastllmload._ext.simserver.session cimport LINGER_END, RESUME_OUT
from fastllmload._ext.system.syscall cimport (
    SIGUSR1, SOCK_CLOEXEC, SOCK_NONBLOCK, TFD_CLOEXEC, TFD_NONBLOCK, arm, fll_accept4, fll_signal_fd, fll_signal_next,
    timerfd_create,
)
from fastllmload._ext.simserver.truth cimport TRUTH_ABORTED
from fastllmload._ext.simserver.writer cimport GOING, Outcome
from fastllmload._ext.system.clock cimport mono_ns, real_minus_mono
from fastllmload._ext.system.wire cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, epoll_ctl, epoll_event, epoll_wait,
)

cdef enum:
    BATCH = 64                  # epoll events per turn
    SPIN_NS = 10_000            # a sleep costs about as much as polling for so long

cdef enum Word:                 # epoll words that are not connections: no descriptor is that large
    WORD_LISTENER = 0xFFFFFFFF
    WORD_TIMER = 0xFFFFFFFE
    WORD_SIGNAL = 0xFFFFFFFD


cdef bint idle(Connection* c) noexcept nogil:
    return c.state == CONNECTION_READING and c.read_size == 0 and (c.many == NULL or c.many.count == 0)


cdef class Server(Http2Sessions):
    """*listener*: a listening non-blocking socket's descriptor, borrowed. *pages*: `(path, counters) -> (method, content
    type, body) or None`, for everything but completions. *api_key*: asked for when it is not None. *connection_faults*: of
    connections."""

    def __init__(self, listener: int, cadence: Cadence, truth: Truth, intake: Intake, responder: Responder,
                 connections: Streams, pages: object, api_key: str | None, connection_faults: Faults, visits: object = None,
                 controls: object = None):
        super().__init__(cadence, truth, intake, responder, connections, pages, api_key, visits, controls)
        self.connection_faults = connection_faults
        self.listener = listener
        self.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        self.signals = fll_signal_fd()
        self.epoll = connections.epoll
        if self.timer < 0 or self.signals < 0:
            raise OSError(errno, "the simulator's timer or signal descriptor could not be made")
        self.watch(self.timer, WORD_TIMER, EPOLLIN | EPOLLET)
        self.watch(self.signals, WORD_SIGNAL, EPOLLIN)
        self.watch(self.listener, WORD_LISTENER, EPOLLIN)
        self.listening = True

    def __cinit__(self, *_):
        self.timer = self.signals = -1

    def __dealloc__(self):
        for fd in (self.timer, self.signals):
            if fd >= 0:
                close(fd)

    def run(self) -> None:
        """Serves until SIGTERM, SIGINT or SIGHUP; then writes the truth log out. SIGUSR1 writes it at once."""
        try:
            while not self.stopping:
                self.turn()
        finally:
            self.finish()

    def finish(self) -> None:
        cdef size_t fd
        cdef Connection* c
        for fd in range(self.connections.cap):
            c = self.connections.by_fd[fd]
            if c != NULL and c.state in (CONNECTION_BUSY, CONNECTION_DRAINING, CONNECTION_SILENT):
                self.end_row(c, TRUTH_ABORTED)
            if c != NULL and c.many != NULL:
                self.connections.put_goaway(c, c.many.last_id, CODE_NO_ERROR)
                self.end_streams(c, 0, TRUTH_ABORTED)
        self.truth.flush()

    def counters(self) -> dict[str, float]:
        """Figures for /metrics; the batching engine adds its own."""
        stop, length, abort, error = self.finished
        full, resumed, failed = self.handshakes
        figures = {
            "running": self.cadence.running(), "waiting": self.cadence.waiting(), "connections": self.connections.open_count,
            "accepted": self.connections.accepted, "requests": self.requests, "refused": self.refused,
            "prompt_tokens": self.intake.prompt_tokens, "generation_tokens": self.responder.tokens,
            "stop": stop, "length": length, "abort": abort, "error": error,
            "tls_full": full, "tls_resumed": resumed, "tls_failed": failed, "late_max_s": self.cadence.late_max_ns / 1e9,
        }
        extra = getattr(self.cadence, "counters", None)
        return figures | (extra() if extra is not None else {})

    def drop_cached(self) -> int:
        """Forgets the cached blocks that no sequence holds; how many."""
        drop = getattr(self.cadence, "drop_cached", None)
        return 0 if drop is None else drop()

    cdef int watch(self, int fd, uint64_t word, uint32_t events) except -1:
        cdef epoll_event event
        event.events = events
        event.data.u64 = word
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &event):
            raise OSError(errno, "the simulator's epoll set refused a descriptor")
        return 0

    cdef int64_t next_due(self) noexcept:
        cdef int64_t due = min(self.cadence.due(), timers_due(&self.timers))
        return min(due, self.flush_at) if self.flush_at else due

    cdef int turn(self) except -1:
        cdef epoll_event[64] events
        cdef int64_t due = self.next_due()
        cdef int n, i
        cdef int timeout = 0
        if due > mono_ns() + SPIN_NS:
            timeout = -1
            if due != self.armed and due != NEVER:
                arm(self.timer, due)
                self.armed = due
        n = epoll_wait(self.epoll, events, BATCH, timeout)
        if n < 0 and errno != EINTR:
            raise OSError(errno, "the simulator's epoll set failed")
        if n > 0 and self.truth.on:
            self.real_offset = real_minus_mono()
        for i in range(n):
            self.dispatch(events[i].data.u64, events[i].events)
        self.expire(mono_ns())
        return self.advance(mono_ns())

    cdef int dispatch(self, uint64_t word, uint32_t events) except -1:
        cdef Connection* c
        if word == WORD_TIMER:
            self.armed = 0
            return 0
        if word == WORD_LISTENER:
            return self.accept()
        if word == WORD_SIGNAL:
            return self.signal()
        c = self.connections.of(word)
        if c != NULL and events & EPOLLOUT:
            self.ready_to_write(c)
            c = self.connections.of(word)
        if c != NULL and events & (EPOLLIN | EPOLLERR | EPOLLHUP):
            self.ready_to_read(c)
        return 0

    cdef int signal(self) except -1:
        cdef int number = fll_signal_next(self.signals)
        if number == SIGUSR1:
            self.truth.flush()
        elif number:
            self.stopping = True
        return 0

    cdef int accept(self) except -1:
        cdef Connection* c
        cdef int fd, i
        for i in range(256):
            fd = fll_accept4(self.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if fd >= 0:
                c = self.connections.adopt(fd)
                c.t_accept = mono_ns()
                c.fault = self.connection_faults.of(c.number, &c.fault_arg)
            elif errno in (EMFILE, ENFILE):
                # Heard again when a connection closes: what waits then is accepted late, not lost.
                epoll_ctl(self.epoll, EPOLL_CTL_DEL, self.listener, NULL)
                self.listening = False
                return 0
            elif errno not in (ECONNABORTED, EINTR):
                return 0
        return 0

    cdef int expire(self, int64_t now) except -1:
        cdef Timer t
        cdef Connection* c
        if self.flush_at and now >= self.flush_at:
            self.flush_at = 0
            self.truth.flush()
        while timers_due(&self.timers) <= now:
            t = self.timers.items[0]
            timers_pop(&self.timers)
            c = <Connection*>t.owner
            if c.generation != t.generation:
                continue
            if t.purpose == RESUME_OUT:
                c.out_timer = False
                self.ready_to_write(c)
            elif t.purpose == LINGER_END or idle(c) and now >= c.recv_last:
                self.close(c, False, 0)
        return 0

    cdef int advance(self, int64_t now) except -1:
        cdef Connection* c
        cdef Outcome outcome
        cdef size_t i
        if self.cadence.due() > now:
            return 0
        self.cadence.advance(now)
        for i in range(self.cadence.ready_count):
            c = <Connection*>self.cadence.ready[i]
            if c.state != CONNECTION_BUSY:
                continue
            outcome = self.responder.progress(c, now)
            if outcome != GOING or c.out_due or c.drip_ns:
                self.settle(c, outcome)
                self.resume(c)
            elif pending(c):
                self.cadence.hold(&c.sequence)
        return 0

    cdef int close(self, Connection* c, bint reset, uint8_t flags) except -1:
        Http2Sessions.close(self, c, reset, flags)
        if not self.listening:
            self.watch(self.listener, WORD_LISTENER, EPOLLIN)
            self.listening = True
        return 0
