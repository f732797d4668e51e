# The batching engine: a waiting queue, steps of continuous batching, chunked prefill, KV budget, preemption.
from libc.stdint cimport int32_t, int64_t, uint64_t

from fastllmload._ext.sim.blocks cimport Blocks
from fastllmload._ext.sim.cadence cimport Cadence, Places
from fastllmload._ext.sim.sequence cimport Sequence
from fastllmload._ext.sim.timer cimport Timers

cdef enum:
    MOST_DRAFT_TOKENS = 16

cdef class Batching(Cadence):
    cdef readonly Blocks blocks
    cdef uint64_t seed
    cdef double step_ns, per_sequence_ns, per_prefill_token_ns, per_context_token_ns, jitter
    cdef double prefill_exponent, pause_ns
    cdef int64_t step_tokens, max_running, delay_in_ns, delay_out_ns
    cdef bint by_priority, by_length
    cdef uint64_t pause_every       # steps; 0 = no pauses
    cdef Timers arrivals            # due to enter the queue; key: instant
    cdef Timers queue               # key: priority, then arrival
    cdef Timers outgoing            # tokens held by the output guardrail; key: instant
    cdef Places batch               # running sequences, in order of admission
    cdef size_t queued              # entries of queue that are not stale
    cdef int64_t step_start
    cdef int64_t step_end           # 0 = no step under way
    cdef readonly uint64_t steps
    cdef readonly uint64_t preemptions
    cdef readonly uint64_t prefix_queries
    cdef readonly uint64_t prefix_hits
    cdef int32_t draft_tokens       # of each verification; 0 = no speculative decoding
    cdef double acceptance          # of a draft token after accepted ones
    cdef readonly uint64_t drafts
    cdef uint64_t[MOST_DRAFT_TOKENS] accepted_at
    cdef int begin_step(self, int64_t start) except -1
    cdef int finish_step(self) except -1
    cdef int enqueue(self, Sequence* s) except -1
    cdef int admit_arrivals(self, int64_t upto) except -1
    cdef int64_t schedule_running(self, int64_t budget, bint* preempted) except -1
    cdef int64_t schedule_waiting(self, int64_t budget) except -1
    cdef int64_t chunk(self, Sequence* s, int64_t budget) noexcept
    cdef Sequence* youngest(self) noexcept
    cdef int preempt(self, Sequence* s) except -1
    cdef bint admit(self, Sequence* s, int64_t budget) except -1
    cdef double prefill_cost(self, Sequence* s) noexcept
    cdef int64_t step_time(self) noexcept
    cdef int token(self, Sequence* s) except -1
    cdef int32_t verify(self, Sequence* s) noexcept
    cdef int let_go(self, Sequence* s, int32_t upto, int64_t at) except -1
    cdef Sequence* first_waiting(self) noexcept
