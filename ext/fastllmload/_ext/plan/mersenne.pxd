# Python's own generator (MT19937) at C speed: the workload's random stream is defined by random.Random (IETF A.1.4), and
# a plan draws tens of millions of token ids from it.
from libc.stdint cimport uint32_t

cdef enum:
    MT_WORDS = 624
    MT_SHIFT = 397

cdef class Mersenne:
    # Draws exactly what random.Random(seed) draws, call for call. Not thread-safe.
    cdef uint32_t[624] state
    cdef int at                         # next word of *state* to temper; MT_WORDS: the state must be renewed first

    cdef void _renew(self) noexcept nogil
    cdef uint32_t _word(self) noexcept nogil
    cdef uint32_t _below(self, uint32_t n, int shift) noexcept nogil
