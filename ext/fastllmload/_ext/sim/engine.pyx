"""The engine model, in its own time: everything it does is a function of the arrivals' instants and the seed.

A step runs from `start` to `step_end`; all its tokens come at `step_end`, in order of admission: the burst of real
engines. The next step starts at that instant, however late this process is, so a slow host delays what is written but
never what happens. Requests that arrived up to the start of a step are in the queue for it.

Each step computes at most `step_tokens` tokens. Running sequences come first, one token each, or a chunk of their prompt
(chunked prefill); then waiting ones are admitted while there is budget, a place and KV blocks. When a running sequence
finds no block, the youngest one (of the lowest priority) gives up all of its own and waits again: it will compute its
prompt and what it had produced again, and repeats no token.

With `draft_tokens` a step after a sequence's first token verifies that many drafted tokens, which costs no time: each is accepted
with the probability `acceptance` if those before it were, and comes with the step's own token.
"""

from libc.math cimport pow
from libc.stdint cimport uint32_t

from fastllmload._ext.sim.cadence cimport places_add, places_free, places_pack, places_remove
from fastllmload._ext.sim.sequence cimport (
    DRAW_DRAFT, DRAW_STEP, SEQUENCE_DELAYED, SEQUENCE_IDLE, SEQUENCE_RUNNING, SEQUENCE_WAITING, draw, uniform,
)
from fastllmload._ext.sim.timer cimport NEVER, Timer, timers_due, timers_free, timers_pop, timers_push

cdef enum:
    TURN = 256                  # tokens that the output guardrail lets go in one pass


cdef inline bint stale(Timer* t) noexcept nogil:
    return (<Sequence*>t.owner).generation != t.generation


cdef inline int64_t unfinished(Sequence* s) noexcept nogil:
    # Tokens to compute before the next one can be produced; 1 while decoding.
    return <int64_t>s.prompt_tokens + s.made - s.computed


cdef inline int64_t rank(Sequence* s) noexcept nogil:
    return <int64_t>s.priority * (<int64_t>1 << 32) + s.serial


cdef class Batching(Cadence):
    """*profile* has the attributes of `simulator.profile.Profile`."""

    def __init__(self, profile: object, seed: int):
        self.seed = seed
        self.blocks = Blocks(profile.kv_blocks, profile.block_size, profile.prefix_cache)
        self.step_ns = profile.step_ms * 1e6
        self.per_sequence_ns = profile.per_sequence_us * 1e3
        self.per_prefill_token_ns = profile.per_prefill_token_us * 1e3
        self.per_context_token_ns = profile.per_kilo_context_us
        self.prefill_exponent = profile.prefill_exponent
        self.jitter = profile.jitter
        self.draft_tokens = profile.draft_tokens
        self.acceptance = profile.acceptance
        self.pause_every = profile.pause_every
        self.pause_ns = profile.pause_ms * 1e6
        self.step_tokens = profile.step_tokens
        self.max_running = profile.max_running
        self.delay_in_ns = int((profile.ttft_floor_ms + profile.guard_in_ms) * 1e6)
        self.delay_out_ns = int(profile.guard_out_ms * 1e6)
        self.by_priority = profile.scheduler == "priority"
        self.by_length = profile.scheduler == "shortest"

    def __dealloc__(self):
        timers_free(&self.arrivals)
        timers_free(&self.queue)
        timers_free(&self.outgoing)
        places_free(&self.batch)

    def counters(self) -> dict[str, float]:
        cdef int32_t k
        held = self.blocks.anonymous + self.blocks.shared - self.blocks.idle
        found = {"kv_usage": held / self.blocks.total, "steps": self.steps, "preemptions": self.preemptions,
                 "prefix_queries": self.prefix_queries, "prefix_hits": self.prefix_hits}
        if self.draft_tokens:
            at = {f"accepted_at_{k}": self.accepted_at[k] for k in range(self.draft_tokens)}
            found |= {"drafts": self.drafts, "draft_tokens": self.drafts * <uint64_t>self.draft_tokens,
                      "accepted_tokens": sum(at.values()), **at}
        return found

    def drop_cached(self) -> int:
        """Forgets the cached blocks that no sequence holds; how many."""
        return self.blocks.drop_idle()

    cdef size_t running(self) noexcept:
        return self.batch.live

    cdef size_t waiting(self) noexcept:
        return self.queued

    cdef int submit(self, Sequence* s, int64_t now) except -1:
        s.generation += 1
        s.state = SEQUENCE_DELAYED
        if self.by_length:
            s.priority = s.prompt_tokens
        elif not self.by_priority:
            s.priority = 0
        return timers_push(&self.arrivals, now + self.delay_in_ns, s, s.generation, 0)

    cdef int abort(self, Sequence* s) except -1:
        if s.state == SEQUENCE_RUNNING:
            places_remove(&self.batch, s)
            self.blocks.release(s)
        elif s.state == SEQUENCE_WAITING:
            self.queued -= 1
        s.generation += 1                               # what is queued or held by the output guardrail is stale now
        s.state = SEQUENCE_IDLE
        return 0

    cdef int64_t due(self) noexcept:
        cdef int64_t due = min(self.step_end if self.step_end else <int64_t>NEVER, timers_due(&self.outgoing))
        return due if self.step_end else min(due, timers_due(&self.arrivals))

    cdef int advance(self, int64_t now) except -1:
        """One step at most: its tokens are in `ready`, and the next step has begun."""
        cdef int64_t start = 0
        cdef Sequence* s
        self.ready_count = 0
        if self.step_end and self.step_end <= now:
            self.late_max_ns = max(self.late_max_ns, now - self.step_end)
            start = self.step_end
            self.finish_step()
        elif not self.step_end and timers_due(&self.arrivals) <= now:
            start = timers_due(&self.arrivals)
        if start:
            self.begin_step(start)
        while self.ready_count < TURN and timers_due(&self.outgoing) <= now:
            s = <Sequence*>self.outgoing.items[0].owner
            if not stale(&self.outgoing.items[0]):
                self.let_go(s, <int32_t>self.outgoing.items[0].purpose, timers_due(&self.outgoing))
            timers_pop(&self.outgoing)
        return 0

    cdef int begin_step(self, int64_t start) except -1:
        cdef int64_t budget = self.step_tokens
        cdef bint preempted = False
        self.step_end = 0
        self.step_start = start
        self.admit_arrivals(start)
        budget = self.schedule_running(budget, &preempted)
        if not preempted:
            self.schedule_waiting(budget)
        places_pack(&self.batch)
        if self.batch.live:
            self.step_end = start + self.step_time()
            self.steps += 1
        return 0

    cdef int admit_arrivals(self, int64_t upto) except -1:
        while timers_due(&self.arrivals) <= upto:
            if not stale(&self.arrivals.items[0]):
                self.enqueue(<Sequence*>self.arrivals.items[0].owner)
            timers_pop(&self.arrivals)
        return 0

    cdef int enqueue(self, Sequence* s) except -1:
        s.state = SEQUENCE_WAITING
        self.queued += 1
        return timers_push(&self.queue, rank(s), s, s.generation, 0)

    cdef Sequence* first_waiting(self) noexcept:
        while self.queue.count and stale(&self.queue.items[0]):
            timers_pop(&self.queue)
        return <Sequence*>self.queue.items[0].owner if self.queue.count else NULL

    cdef int64_t chunk(self, Sequence* s, int64_t budget) noexcept:
        return min(unfinished(s), budget)

    cdef int64_t schedule_running(self, int64_t budget, bint* preempted) except -1:
        cdef size_t at
        cdef Sequence* s
        cdef Sequence* victim
        for at in range(self.batch.count):
            s = self.batch.items[at]
            if s == NULL:
                continue
            s.scheduled = <int>self.chunk(s, budget)
            while self.batch.items[at] != NULL and not self.blocks.grow(s, s.computed + s.scheduled):
                victim = self.youngest()
                if victim.place < at:
                    budget += victim.scheduled
                preempted[0] = True
                self.preempt(victim)
            if self.batch.items[at] != NULL:
                budget -= s.scheduled
        return budget

    cdef Sequence* youngest(self) noexcept:
        cdef Sequence* found = NULL
        cdef size_t at
        for at in range(self.batch.count):
            if self.batch.items[at] != NULL and (found == NULL or rank(self.batch.items[at]) > rank(found)):
                found = self.batch.items[at]
        return found

    cdef int preempt(self, Sequence* s) except -1:
        places_remove(&self.batch, s)
        self.blocks.release(s)
        s.computed = s.scheduled = 0
        s.preemptions += 1
        self.preemptions += 1
        return self.enqueue(s)

    cdef int64_t schedule_waiting(self, int64_t budget) except -1:
        cdef Sequence* s = self.first_waiting()
        while s != NULL and budget > 0 and self.batch.live < <size_t>self.max_running:
            if not self.admit(s, budget):
                break
            budget -= s.scheduled
            timers_pop(&self.queue)
            self.queued -= 1
            s.state = SEQUENCE_RUNNING
            places_add(&self.batch, s)
            s = self.first_waiting()
        return budget

    cdef bint admit(self, Sequence* s, int64_t budget) except -1:
        cdef int64_t found = self.blocks.match(s) * self.blocks.block_size if self.blocks.sharing else 0
        s.computed = <int>found
        s.scheduled = <int>self.chunk(s, budget)
        if not self.blocks.grow(s, s.computed + s.scheduled):
            self.blocks.release(s)
            s.computed = s.scheduled = 0
            return False
        if s.preemptions == 0:
            s.t_admitted = self.step_start
            s.cached_tokens = s.computed
            if self.blocks.sharing:
                self.prefix_queries += <uint64_t>s.prompt_tokens
                self.prefix_hits += <uint64_t>found
        return True

    cdef double prefill_cost(self, Sequence* s) noexcept:
        # In tokens of an engine whose prefill is linear; chunks of one prompt add up to its length to the exponent.
        if self.prefill_exponent == 1.0:
            return s.scheduled
        return pow(s.computed + s.scheduled, self.prefill_exponent) - pow(s.computed, self.prefill_exponent)

    cdef int64_t step_time(self) noexcept:
        cdef double time = self.step_ns
        cdef double context = 0.0, prefill = 0.0
        cdef size_t at
        cdef Sequence* s
        for at in range(self.batch.count):
            s = self.batch.items[at]
            context += s.computed
            if s.scheduled > 1 or s.made == 0:
                prefill += self.prefill_cost(s)
        time += self.per_sequence_ns * self.batch.live
        time += self.per_prefill_token_ns * prefill + self.per_context_token_ns * context
        if self.jitter > 0.0:
            time *= 1.0 + self.jitter * (2.0 * uniform(draw(self.seed, self.steps, DRAW_STEP)) - 1.0)
        if self.pause_every and self.steps % self.pause_every == 0:
            time += self.pause_ns
        return max(<int64_t>time, <int64_t>1000)

    cdef int finish_step(self) except -1:
        cdef size_t at
        cdef Sequence* s
        for at in range(self.batch.count):
            s = self.batch.items[at]
            if s == NULL:                               # aborted during the step
                continue
            s.computed += s.scheduled
            if unfinished(s) == 0:
                self.token(s)
        places_pack(&self.batch)
        return 0

    cdef int token(self, Sequence* s) except -1:
        # The token exists at step_end; an output guardrail holds it back: `produced` is what may be sent.
        cdef int32_t more = self.verify(s) if self.draft_tokens and s.made else 0
        s.made += 1 + more
        s.computed += more
        if s.made == s.output_tokens:
            s.state = SEQUENCE_IDLE
            places_remove(&self.batch, s)
            self.blocks.release(s)
        if s.whole and s.made < s.output_tokens:
            if s.made == 1:
                s.t_first = self.step_end
            return 0
        if self.delay_out_ns:
            return timers_push(&self.outgoing, self.step_end + self.delay_out_ns, s, s.generation, <uint32_t>s.made)
        return self.let_go(s, s.made, self.step_end)

    cdef int32_t verify(self, Sequence* s) noexcept:
        # Accepted draft tokens that fit into the reply. Counted are also those that do not, as engines do.
        cdef int32_t k, accepted = 0
        cdef uint64_t which = (<uint64_t>s.serial << 32) + <uint64_t>s.made * MOST_DRAFT_TOKENS
        self.drafts += 1
        for k in range(self.draft_tokens):
            if uniform(draw(self.seed, which + <uint64_t>k, DRAW_DRAFT)) >= self.acceptance:
                break
            self.accepted_at[k] += 1
            accepted += 1
        return min(accepted, s.output_tokens - s.made - 1)

    cdef int let_go(self, Sequence* s, int32_t upto, int64_t at) except -1:
        s.produced = upto
        s.delivered = s.produced == s.output_tokens
        return self.make_ready(s, at)
