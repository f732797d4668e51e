# KV-cache blocks of the batching engine: a budget, and a prefix cache of shared blocks over the same budget.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from fastllmload._ext.sim.sequence cimport Sequence

cdef struct Node:               # one shared block
    uint64_t hash
    uint32_t holders            # sequences that hold it; 0 = cached only, and in the list of idle ones
    int32_t older               # neighbours in the list of idle blocks; -1 = none
    int32_t newer
    int32_t next_free

cdef class Blocks:
    # total = anonymous + shared (held or idle) + free. Idle shared blocks are evicted, oldest first, when none is free.
    cdef readonly int64_t total
    cdef readonly int64_t block_size
    cdef readonly bint sharing
    cdef readonly int64_t anonymous     # held by one sequence each
    cdef readonly int64_t shared        # nodes in use, held or idle
    cdef readonly int64_t idle          # of them, not held
    cdef readonly uint64_t evictions
    cdef Node* nodes                    # owned; `total` of them
    cdef int32_t free_node
    cdef int32_t* table                 # owned; hash -> node + 1, open addressing, a power of two
    cdef uint64_t mask
    cdef int32_t oldest, newest         # of the idle ones
    # Takes the cached blocks at the beginning of its prompt; returns how many.
    cdef int32_t match(self, Sequence* s) noexcept
    # Blocks for *tokens* tokens in all. False: not enough; what was taken stays with the sequence.
    cdef bint grow(self, Sequence* s, int64_t tokens) noexcept
    cdef void release(self, Sequence* s) noexcept
    cdef bint make_room(self) noexcept
    cdef int64_t drop_idle(self) noexcept      # forgets cached blocks that nothing holds; how many
    cdef int32_t find(self, uint64_t word) noexcept
    cdef int32_t insert(self, uint64_t word) noexcept
    cdef void remove(self, int32_t node) noexcept
    cdef void hold(self, int32_t node) noexcept
    cdef void unlink(self, int32_t node) noexcept
