"""Slots of a closed loop: each holds one request, and sends the next at once when it has ended.

A slot whose requests failed ten times in a row rests after each further failure (procedures 0.5): a server that refuses
everything is not hammered.
"""

import numpy

cdef enum:
    ERRORS_IN_A_ROW = 10
    REST_NS = 100_000_000


cdef class Slots:
    """What a worker's slots wait for, one phase after the other."""

    def __cinit__(self):
        self.freed = []
        self.resting = []

    cdef int begin(self, Py_ssize_t count, uint64_t limit) except -1:
        self.issued = 0
        self.limit = limit
        self.errors = numpy.zeros(max(1, count), dtype=numpy.int32)
        return self.clear()

    cdef int clear(self) except -1:
        self.freed = []
        self.resting = []
        return 0

    cdef bint left(self) noexcept:
        return self.limit == 0 or self.issued < self.limit

    cdef int free(self, int32_t slot, bint failed, int64_t now) except -1:
        self.errors[slot] = self.errors[slot] + 1 if failed else 0
        if self.errors[slot] >= ERRORS_IN_A_ROW:
            self.resting.append((now + REST_NS, slot))
        else:
            self.freed.append((slot, now))
        return 0

    cdef int wake(self, int64_t now) except -1:
        while self.resting and self.resting[0][0] <= now:
            self.freed.append((self.resting[0][1], self.resting[0][0]))
            del self.resting[0]
        return 0
