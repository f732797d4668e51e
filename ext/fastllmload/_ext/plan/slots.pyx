"""Slots of a closed loop: each holds one request, and sends the next at once when it has ended.

A slot whose requests failed ten times in a row rests after each further failure (spec/procedures 0.5): a server that refuses
everything is not hammered.

Where their number changes, slots open at instants of the pacer's schedule. One closes when its request has ended after an
instant of its *closings*; none is cut off.

Slots may be divided into pools, one for each class of requests that is a closed loop. A slot then sends requests of its pool
alone, which repeats them; which of the slots is filled first is one order of all.

Slots that begin in the middle of sessions have requests of their own, which are kept until they open and not repeated.
"""

from libc.stdlib cimport calloc, free

cdef enum:
    ERRORS_IN_A_ROW = 10
    REST_NS = 100_000_000


cdef class Slots:
    """What a worker's slots wait for, one phase after the other."""

    def __dealloc__(self):
        self._forget()

    cdef int _forget(self) noexcept:
        free(self.free_ones)
        free(self.resting)
        free(self.errors)
        free(self.closed)
        free(self.pools)
        free(self.pool_of)
        free(self.ranges)
        self.pools = NULL
        self.pool_of = NULL
        self.ranges = NULL
        self.free_ones = self.resting = NULL
        self.errors = self.closed = NULL
        self.count = 0
        return 0

    cdef int begin(self, Py_ssize_t count, uint64_t limit, const int64_t[::1] closings) except -1:
        cdef size_t most = <size_t>max(1, count)
        self._forget()
        self.clear()
        self.issued = self.kept = 0
        self.limit = limit
        self.free_ones = <Slot*>calloc(most, sizeof(Slot))
        self.resting = <Slot*>calloc(most, sizeof(Slot))
        self.errors = <int32_t*>calloc(most, sizeof(int32_t))
        self.closed = <int32_t*>calloc(most, sizeof(int32_t))
        self.ranges = <SlotRange*>calloc(1, sizeof(SlotRange))
        self.varies = closings is not None
        self.closings = closings
        if (self.free_ones == NULL or self.resting == NULL or self.errors == NULL or self.closed == NULL
                or self.ranges == NULL):
            raise MemoryError(f"{count} slots")
        self.ranges.last = closings.shape[0] if self.varies else 0
        self.count = <uint32_t>most
        return 0

    cdef int divide(self, const uint32_t[::1] counts, const uint32_t[::1] sizes, const uint64_t[::1] limits,
                    const uint32_t[::1] numbers, const uint32_t[::1] closings, const uint32_t[::1] owns,
                    uint32_t plan_size) except -1:
        """*counts*: the most slots of each pool, at most those of begin() together; *sizes*: how many of *numbers* are its
        requests; *closings*: how many of begin()'s closings are its own; *owns*: with how many requests its slots begin.
        """
        cdef Py_ssize_t i, many = counts.shape[0], closing = 0
        cdef uint32_t slot = 0, first = 0, each
        free(self.ranges)
        self.ranges = <SlotRange*>calloc(<size_t>max(1, many), sizeof(SlotRange))
        self.pools = <SlotPool*>calloc(<size_t>max(1, many), sizeof(SlotPool))
        self.pool_of = <uint32_t*>calloc(self.count, sizeof(uint32_t))
        if self.ranges == NULL or self.pools == NULL or self.pool_of == NULL:
            raise MemoryError(f"{many} pools of slots")
        self.numbers = numbers
        self.plan_size = plan_size
        self.limit = 0
        for i in range(many):
            self.pools[i].limit = limits[i]
            self.pools[i].first = first
            self.pools[i].size = sizes[i]
            self.pools[i].own = self.pools[i].kept = owns[i]
            self.kept += owns[i]
            self.limit += limits[i]
            first += sizes[i]
            self.ranges[i].first = <int32_t>slot
            self.ranges[i].closing = closing
            closing += closings[i]
            self.ranges[i].last = closing
            for each in range(counts[i]):
                self.pool_of[slot] = <uint32_t>i
                slot += 1
        if slot > self.count or first != <uint32_t>numbers.shape[0]:
            raise ValueError(f"{slot} slots and {first} requests of pools, where {self.count} and {numbers.shape[0]} are")
        if closing != (self.closings.shape[0] if self.varies else 0):
            raise ValueError(f"pools close {closing} slots, and other instants are given")
        return 0

    cdef bint pool_left(self, int32_t slot) noexcept:
        cdef SlotPool* pool
        if self.pools == NULL:
            return True
        pool = &self.pools[self.pool_of[slot]]
        return pool.issued + pool.kept < pool.limit

    cdef uint32_t next_request(self, int32_t slot) noexcept:
        cdef SlotPool* pool = &self.pools[self.pool_of[slot]]
        cdef uint64_t place = pool.issued + pool.kept - pool.own
        cdef uint64_t size = pool.size - pool.own
        pool.issued += 1
        self.issued += 1
        return <uint32_t>(self.numbers[pool.first + pool.own + place % size] + place // size * self.plan_size)

    cdef bint keeps(self, uint32_t pool) noexcept:
        return (self.kept if self.pools == NULL else self.pools[pool].kept) > 0

    cdef uint32_t own_request(self, uint32_t pool) noexcept:
        cdef SlotPool* of = &self.pools[pool]
        of.kept -= 1
        of.issued += 1
        return self.numbers[of.first + of.own - of.kept - 1]

    cdef int clear(self) noexcept:
        self.freed = self.first_free = self.first_resting = self.rest_count = 0
        return 0

    cdef int _close(self, SlotRange* own, int64_t since) noexcept:
        while own.closing < own.last and self.closings[own.closing] <= since:
            own.closing += 1
            own.excess += 1
        return 0

    cdef int32_t open(self, uint32_t pool, int64_t since) noexcept:
        cdef SlotRange* own = &self.ranges[pool]
        if self.varies:
            self._close(own, since)
            if own.excess:
                own.excess -= 1
                return -1
            if own.closed_count:
                own.closed_count -= 1
                return self.closed[own.first + <int32_t>own.closed_count]
        own.opened += 1
        return own.first + own.opened - 1

    cdef bint stays(self, int32_t slot, int64_t since) noexcept:
        cdef SlotRange* own = &self.ranges[0 if self.pools == NULL else self.pool_of[slot]]
        self._close(own, since)
        if own.excess == 0:
            return True
        own.excess -= 1
        self.closed[own.first + <int32_t>own.closed_count] = slot
        own.closed_count += 1
        return False

    cdef bint left(self) noexcept:
        return self.limit == 0 or self.issued + self.kept < self.limit

    cdef int free(self, int32_t slot, bint failed, int64_t now) noexcept:
        cdef Slot* place
        self.errors[slot] = self.errors[slot] + 1 if failed else 0
        if self.errors[slot] >= ERRORS_IN_A_ROW:
            place = &self.resting[(self.first_resting + self.rest_count) % self.count]
            self.rest_count += 1
            now += REST_NS
        else:
            place = &self.free_ones[(self.first_free + self.freed) % self.count]
            self.freed += 1
        place.at = now
        place.number = slot
        return 0

    cdef int64_t first_at(self) noexcept:
        return self.free_ones[self.first_free].at

    cdef Slot take(self) noexcept:
        cdef uint32_t first = self.first_free
        self.first_free = (first + 1) % self.count
        self.freed -= 1
        return self.free_ones[first]

    cdef int wake(self, int64_t now) noexcept:
        while self.rest_count and self.resting[self.first_resting].at <= now:
            self.free_ones[(self.first_free + self.freed) % self.count] = self.resting[self.first_resting]
            self.freed += 1
            self.first_resting = (self.first_resting + 1) % self.count
            self.rest_count -= 1
        return 0
