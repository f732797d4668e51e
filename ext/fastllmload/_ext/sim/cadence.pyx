"""Constant cadences: spread, lockstep and flood. The batching engine is a cadence too, in `simengine`."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc

from fastllmload._ext.sim.sequence cimport DRAW_PHASE, SEQUENCE_IDLE, SEQUENCE_RUNNING, SEQUENCE_WAITING, draw, uniform
from fastllmload._ext.sim.timer cimport NEVER, Timer, timers_due, timers_free, timers_pop, timers_push

cdef enum:
    TURN = 64                   # streams served between two polls of the sockets


cdef int places_add(Places* p, Sequence* s) except -1:
    cdef Sequence** items
    cdef size_t cap
    if p.count == p.cap:
        places_pack(p)
    if p.count == p.cap:
        cap = p.cap * 2 if p.cap else 256
        items = <Sequence**>realloc(p.items, cap * sizeof(Sequence*))
        if items == NULL:
            raise MemoryError(f"no memory for {cap} sequences")
        p.items = items
        p.cap = cap
    p.items[p.count] = s
    s.place = <uint32_t>p.count
    p.count += 1
    p.live += 1
    return 0


cdef void places_remove(Places* p, Sequence* s) noexcept nogil:
    p.items[s.place] = NULL
    p.live -= 1


cdef void places_pack(Places* p) noexcept nogil:
    cdef size_t at, kept = 0
    if p.live == p.count:
        return
    for at in range(p.count):
        if p.items[at] != NULL:
            p.items[kept] = p.items[at]
            p.items[kept].place = <uint32_t>kept
            kept += 1
    p.count = kept


cdef void places_free(Places* p) noexcept nogil:
    free(p.items)
    p.items = NULL
    p.count = p.cap = p.live = 0


cdef class Cadence:
    def __dealloc__(self):
        free(self.ready)

    cdef int submit(self, Sequence* s, int64_t now) except -1:
        raise NotImplementedError("a cadence says how it takes a sequence")

    cdef int abort(self, Sequence* s) except -1:
        raise NotImplementedError("a cadence says how it drops a sequence")

    cdef int64_t due(self) noexcept:
        return NEVER

    cdef int advance(self, int64_t now) except -1:
        raise NotImplementedError("a cadence says when tokens come")

    cdef int hold(self, Sequence* s) except -1:
        return 0

    cdef int release(self, Sequence* s) except -1:
        return 0

    cdef size_t running(self) noexcept:
        return 0

    cdef size_t waiting(self) noexcept:
        return 0

    cdef int make_ready(self, Sequence* s, int64_t at) except -1:
        cdef Sequence** items
        cdef size_t cap
        if self.ready_count == self.ready_cap:
            cap = self.ready_cap * 2 if self.ready_cap else 256
            items = <Sequence**>realloc(self.ready, cap * sizeof(Sequence*))
            if items == NULL:
                raise MemoryError(f"no memory for {cap} sequences")
            self.ready = items
            self.ready_cap = cap
        self.ready[self.ready_count] = s
        self.ready_count += 1
        if s.t_first == 0:
            s.t_first = at
        return 0


cdef class Spread(Cadence):
    """Token k of a stream is due at arrival + ttft + phase + k * itl; the phase is drawn from [0, itl)."""

    def __init__(self, seed: int, ttft_ns: int, itl_ns: int):
        self.seed = seed
        self.ttft_ns = ttft_ns
        self.itl_ns = itl_ns

    def __dealloc__(self):
        timers_free(&self.timers)

    cdef int submit(self, Sequence* s, int64_t now) except -1:
        cdef double phase = uniform(draw(self.seed, s.serial, DRAW_PHASE))
        s.generation += 1
        s.state = SEQUENCE_RUNNING
        s.t_admitted = now
        s.due = now + self.ttft_ns + <int64_t>(phase * self.itl_ns)
        if s.whole:
            s.t_first = s.due
            s.due += self.itl_ns * (s.output_tokens - 1)
        timers_push(&self.timers, s.due, s, s.generation, 0)
        self.live += 1
        return 0

    cdef int abort(self, Sequence* s) except -1:
        if s.state != SEQUENCE_IDLE:
            s.generation += 1
            s.state = SEQUENCE_IDLE
            self.live -= 1
        return 0

    cdef int64_t due(self) noexcept:
        while self.timers.count and stale(&self.timers.items[0]):
            timers_pop(&self.timers)
        return timers_due(&self.timers)

    cdef int advance(self, int64_t now) except -1:
        cdef Sequence* s
        cdef size_t i
        self.ready_count = 0
        while self.ready_count < TURN and self.due() <= now:
            s = <Sequence*>self.timers.items[0].owner
            if now - s.due > self.late_max_ns:
                self.late_max_ns = now - s.due
            self.make_ready(s, s.due)
            timers_pop(&self.timers)
        # Set again only now: a late stream must not be twice in one pass.
        for i in range(self.ready_count):
            self.token(self.ready[i])
        return 0

    cdef int token(self, Sequence* s) except -1:
        s.produced = s.output_tokens if s.whole else s.produced + 1
        if s.produced < s.output_tokens:
            s.due += self.itl_ns
            return timers_push(&self.timers, s.due, s, s.generation, 0)
        s.state = SEQUENCE_IDLE
        s.delivered = True
        self.live -= 1
        return 0

    cdef size_t running(self) noexcept:
        return self.live


cdef inline bint stale(Timer* t) noexcept nogil:
    return (<Sequence*>t.owner).generation != t.generation


cdef class Lockstep(Cadence):
    """The first token comes at the first step at or after arrival + ttft; steps lie at multiples of *itl_ns*."""

    def __init__(self, ttft_ns: int, itl_ns: int):
        if itl_ns <= 0:
            raise ValueError(f"itl_ns={itl_ns}: steps need a distance above 0")
        self.ttft_ns = ttft_ns
        self.itl_ns = itl_ns

    def __dealloc__(self):
        places_free(&self.streams)

    cdef int submit(self, Sequence* s, int64_t now) except -1:
        s.generation += 1
        s.state = SEQUENCE_RUNNING
        s.t_admitted = now
        s.due = now + self.ttft_ns
        places_add(&self.streams, s)
        if self.streams.live == 1:
            self.step_ns = -(-s.due // self.itl_ns) * self.itl_ns
        return 0

    cdef int abort(self, Sequence* s) except -1:
        if s.state != SEQUENCE_IDLE:
            s.generation += 1
            s.state = SEQUENCE_IDLE
            places_remove(&self.streams, s)
        return 0

    cdef int64_t due(self) noexcept:
        return self.step_ns if self.streams.live else <int64_t>NEVER

    cdef int advance(self, int64_t now) except -1:
        cdef size_t at
        cdef int64_t step = self.step_ns
        self.ready_count = 0
        if self.due() > now:
            return 0
        if now - step > self.late_max_ns:
            self.late_max_ns = now - step
        for at in range(self.streams.count):
            if self.streams.items[at] != NULL and self.streams.items[at].due <= step:
                self.token(self.streams.items[at], step)
        places_pack(&self.streams)
        self.step_ns = step + self.itl_ns
        return 0

    cdef int token(self, Sequence* s, int64_t step) except -1:
        s.produced += 1
        if s.t_first == 0:
            s.t_first = step
        if not s.whole or s.produced == s.output_tokens:
            self.make_ready(s, step)
        if s.produced == s.output_tokens:
            s.state = SEQUENCE_IDLE
            s.delivered = True
            places_remove(&self.streams, s)
        return 0

    cdef size_t running(self) noexcept:
        return self.streams.live


cdef class Flood(Cadence):
    """Null mode. A stream whose socket is full is held until it drains."""

    def __init__(self, burst: int):
        self.burst = burst

    def __dealloc__(self):
        places_free(&self.streams)

    cdef int submit(self, Sequence* s, int64_t now) except -1:
        s.generation += 1
        s.state = SEQUENCE_RUNNING
        s.t_admitted = now
        return places_add(&self.streams, s)

    cdef int abort(self, Sequence* s) except -1:
        if s.state == SEQUENCE_RUNNING:
            places_remove(&self.streams, s)
        elif s.state == SEQUENCE_WAITING:
            self.held -= 1
        s.generation += 1
        s.state = SEQUENCE_IDLE
        return 0

    cdef int64_t due(self) noexcept:
        return 0 if self.streams.live else <int64_t>NEVER

    cdef int advance(self, int64_t now) except -1:
        cdef Sequence* s
        self.ready_count = 0
        if self.turn >= self.streams.count:
            places_pack(&self.streams)
            self.turn = 0
        while self.turn < self.streams.count and self.ready_count < TURN:
            s = self.streams.items[self.turn]
            self.turn += 1
            if s != NULL:
                self.token(s, now)
        return 0

    cdef int token(self, Sequence* s, int64_t now) except -1:
        s.produced = s.output_tokens if s.whole else <int32_t>min(s.output_tokens, s.produced + self.burst)
        self.make_ready(s, now)
        if s.produced == s.output_tokens:
            s.state = SEQUENCE_IDLE
            s.delivered = True
            places_remove(&self.streams, s)
        return 0

    cdef int hold(self, Sequence* s) except -1:
        if s.state == SEQUENCE_RUNNING:
            places_remove(&self.streams, s)
            s.state = SEQUENCE_WAITING
            self.held += 1
        return 0

    cdef int release(self, Sequence* s) except -1:
        if s.state == SEQUENCE_WAITING:
            s.state = SEQUENCE_RUNNING
            self.held -= 1
            places_add(&self.streams, s)
        return 0

    cdef size_t running(self) noexcept:
        return self.streams.live + self.held
