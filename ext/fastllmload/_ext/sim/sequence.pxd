# One request inside the simulated engine. It lives in its connection, which outlives it; cadences only borrow pointers.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum SequenceState:
    SEQUENCE_IDLE = 0           # not in the engine: never submitted, finished, or aborted
    SEQUENCE_DELAYED = 1        # before the waiting queue: overhead, input guardrail
    SEQUENCE_WAITING = 2
    SEQUENCE_RUNNING = 3

cdef struct Sequence:
    uint32_t serial             # arrival order of the request in this process; every draw is a function of (seed, serial)
    uint32_t generation         # one more at each submission and abort; a borrowed (pointer, generation) pair is stale when it differs
    uint8_t state               # SequenceState
    uint8_t whole               # the reply is one document: only the last token's instant matters
    uint8_t delivered           # the cadence has let go of it: produced == output_tokens
    int32_t priority            # lower runs earlier
    int32_t prompt_tokens
    int32_t output_tokens       # tokens that it will produce, at least 1
    int32_t produced            # tokens that may be written so far
    int32_t preemptions
    int32_t cached_tokens       # prompt tokens found in the prefix cache at the first admission
    int64_t t_arrival           # CLOCK_MONOTONIC: the last byte of the request was read
    int64_t t_admitted          # left the waiting queue for the first time; 0 = not yet
    int64_t t_first             # produced its first token; 0 = not yet
    int64_t due                 # constant cadences: instant of its next token
    # Of the batching engine
    int32_t made                # tokens that exist; more than `produced` after an output guardrail
    int32_t computed            # tokens whose KV entries exist
    int32_t scheduled           # tokens that the current step computes
    uint32_t place              # index in the cadence's list
    int32_t blocks              # KV blocks held; the first min(blocks, hash_count) are shared ones
    uint32_t hash_count         # full prompt blocks that the prefix cache may share
    uint32_t hash_cap
    uint64_t* hashes            # chained block hashes; owned, NULL until needed
    int32_t* nodes              # the shared block of each hash while held; owned, same length as hashes

cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    # splitmix64's finaliser: a fixed permutation without visible structure.
    x += 0x9E3779B97F4A7C15ULL
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL
    return x ^ (x >> 31)

cdef inline uint64_t draw(uint64_t seed, uint64_t serial, uint64_t purpose) noexcept nogil:
    # A random word that depends on nothing but its three arguments.
    return mix(mix(seed ^ mix(purpose)) + serial)

cdef inline double uniform(uint64_t word) noexcept nogil:
    return <double>(word >> 11) / 9007199254740992.0        # [0, 1)

cdef enum Purpose:              # third argument of draw()
    DRAW_PHASE = 1
    DRAW_LENGTH = 2
    DRAW_STEP = 3
    DRAW_FAULT = 4
    DRAW_SPLIT = 5
    DRAW_WORD = 6
    DRAW_ID = 7
    DRAW_DRAFT = 8
