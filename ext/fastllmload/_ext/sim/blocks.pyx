"""Block accounting as paged-attention engines do it: full prompt blocks are shared by hash, all others are anonymous.

A sequence's first `hash_count` blocks are the shared ones: s.nodes[i] is the node of block i while i < s.blocks.
Blocks of produced tokens are not shared: the engine does not know the text's tokens.
"""

from libc.stdlib cimport calloc, free

cdef enum:
    NONE = -1


cdef class Blocks:
    """*total* blocks of *block_size* tokens; *sharing*: the prefix cache is on."""

    def __init__(self, total: int, block_size: int, sharing: bool):
        cdef int32_t i
        cdef uint64_t slots = 16
        self.total = total
        self.block_size = block_size
        self.sharing = sharing
        self.oldest = self.newest = NONE
        if not sharing:
            return
        while slots < 2 * <uint64_t>total:
            slots *= 2
        self.mask = slots - 1
        self.nodes = <Node*>calloc(total, sizeof(Node))
        self.table = <int32_t*>calloc(slots, sizeof(int32_t))
        if self.nodes == NULL or self.table == NULL:
            raise MemoryError(f"no memory for {total} KV blocks")
        for i in range(total):
            self.nodes[i].next_free = i + 1 if i + 1 < total else NONE

    def __dealloc__(self):
        free(self.nodes)
        free(self.table)

    cdef int32_t find(self, uint64_t word) noexcept:
        cdef uint64_t at = word & self.mask
        while self.table[at]:
            if self.nodes[self.table[at] - 1].hash == word:
                return self.table[at] - 1
            at = (at + 1) & self.mask
        return NONE

    cdef int32_t insert(self, uint64_t word) noexcept:
        cdef int32_t node = self.free_node
        cdef uint64_t at = word & self.mask
        self.free_node = self.nodes[node].next_free
        self.nodes[node].hash = word
        self.nodes[node].holders = 1
        while self.table[at]:
            at = (at + 1) & self.mask
        self.table[at] = node + 1
        self.shared += 1
        return node

    cdef void remove(self, int32_t node) noexcept:
        # Open addressing without tombstones: what was pushed past the hole moves back into it.
        cdef uint64_t hole = self.nodes[node].hash & self.mask
        cdef uint64_t at, home
        while self.table[hole] != node + 1:
            hole = (hole + 1) & self.mask
        at = (hole + 1) & self.mask
        while self.table[at]:
            home = self.nodes[self.table[at] - 1].hash & self.mask
            if ((at - home) & self.mask) >= ((at - hole) & self.mask):
                self.table[hole] = self.table[at]
                hole = at
            at = (at + 1) & self.mask
        self.table[hole] = 0
        self.nodes[node].next_free = self.free_node
        self.free_node = node
        self.shared -= 1

    cdef void unlink(self, int32_t node) noexcept:
        cdef Node* n = &self.nodes[node]
        if n.older == NONE:
            self.oldest = n.newer
        else:
            self.nodes[n.older].newer = n.newer
        if n.newer == NONE:
            self.newest = n.older
        else:
            self.nodes[n.newer].older = n.older
        self.idle -= 1

    cdef void hold(self, int32_t node) noexcept:
        if self.nodes[node].holders == 0:
            self.unlink(node)
        self.nodes[node].holders += 1

    cdef int64_t drop_idle(self) noexcept:
        cdef int64_t dropped = self.idle
        cdef int32_t node
        while self.oldest != NONE:
            node = self.oldest
            self.unlink(node)
            self.remove(node)
        return dropped

    cdef bint make_room(self) noexcept:
        # One block more may be taken; evicts the block that has been idle for longest.
        cdef int32_t victim
        if self.anonymous + self.shared < self.total:
            return True
        victim = self.oldest
        if victim == NONE:
            return False
        self.unlink(victim)
        self.remove(victim)
        self.evictions += 1
        return True

    cdef int32_t match(self, Sequence* s) noexcept:
        cdef int32_t node
        # The last token is always computed: its result is the first token produced.
        cdef int64_t most = min(<int64_t>s.hash_count, (s.prompt_tokens - 1) // self.block_size)
        while s.blocks < most:
            node = self.find(s.hashes[s.blocks])
            if node == NONE:
                break
            self.hold(node)
            s.nodes[s.blocks] = node
            s.blocks += 1
        return s.blocks

    cdef bint grow(self, Sequence* s, int64_t tokens) noexcept:
        cdef int64_t needed = (tokens + self.block_size - 1) // self.block_size
        cdef int32_t node
        while s.blocks < needed:
            node = NONE
            if <uint32_t>s.blocks < s.hash_count:
                node = self.find(s.hashes[s.blocks])        # another sequence computes the same block right now
            if node != NONE:
                self.hold(node)
            elif not self.make_room():
                return False
            elif <uint32_t>s.blocks < s.hash_count:
                node = self.insert(s.hashes[s.blocks])
            else:
                self.anonymous += 1
            if node != NONE:
                s.nodes[s.blocks] = node
            s.blocks += 1
        return True

    cdef void release(self, Sequence* s) noexcept:
        # Last block first: a prefix's beginning is the last to be evicted.
        cdef Node* n
        while s.blocks:
            s.blocks -= 1
            if <uint32_t>s.blocks >= s.hash_count:
                self.anonymous -= 1
                continue
            n = &self.nodes[s.nodes[s.blocks]]
            n.holders -= 1
            if n.holders:
                continue
            n.older = self.newest
            n.newer = NONE
            if self.newest == NONE:
                self.oldest = s.nodes[s.blocks]
            else:
                self.nodes[self.newest].newer = s.nodes[s.blocks]
            self.newest = s.nodes[s.blocks]
            self.idle += 1
