"""MT19937 with the draws of random.Random: `random()`, `randint(a, b)`, and `below(n, out)` for many at once."""

import random as python_random

cimport cython


cdef class Mersenne:
    """The stream of `random.Random(seed)`; *seed* is an int or a str, as there."""

    def __init__(self, seed):
        if not isinstance(seed, (int, str)):
            raise TypeError(f"seed must be int or str, not {type(seed).__name__}")
        words = python_random.Random(seed).getstate()[1]
        for i in range(MT_WORDS):
            self.state[i] = words[i]
        self.at = words[MT_WORDS]

    @cython.boundscheck(False)
    cdef void _renew(self) noexcept nogil:
        cdef int i
        cdef uint32_t y
        cdef uint32_t* mt = self.state
        for i in range(MT_WORDS):
            y = (mt[i] & 0x80000000U) | (mt[(i + 1) % MT_WORDS] & 0x7fffffffU)
            mt[i] = mt[(i + MT_SHIFT) % MT_WORDS] ^ (y >> 1) ^ ((y & 1) * <uint32_t>0x9908b0dfU)
        self.at = 0

    cdef inline uint32_t _word(self) noexcept nogil:
        cdef uint32_t y
        if self.at == MT_WORDS:
            self._renew()
        y = self.state[self.at]
        self.at += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9d2c5680U
        y ^= (y << 15) & 0xefc60000U
        return y ^ (y >> 18)

    cdef inline uint32_t _below(self, uint32_t n, int shift) noexcept nogil:
        # Python's _randbelow: as many bits as n has, drawn again while they are not below n.
        cdef uint32_t r = self._word() >> shift
        while r >= n:
            r = self._word() >> shift
        return r

    def random(self):
        """A float in [0, 1) with 53 random bits."""
        cdef uint32_t a = self._word() >> 5
        cdef uint32_t b = self._word() >> 6
        return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0)

    def randint(self, low, high):
        """An int in [low, high]. ValueError when the range is empty or wider than 32 bits."""
        width = high - low + 1
        if not 0 < width < 1 << 32:
            raise ValueError(f"randint({low}, {high}): the range must hold 1 to {(1 << 32) - 1} numbers")
        return low + self._below(width, 32 - width.bit_length())

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def below(self, uint32_t n, uint32_t[::1] out, Py_ssize_t start, Py_ssize_t stop):
        """Fill out[start:stop] with randint(0, n - 1). ValueError for n = 0, IndexError for a slice outside of *out*."""
        cdef Py_ssize_t i
        cdef int shift
        if n == 0:
            raise ValueError("below: n must be at least 1")
        if not 0 <= start <= stop <= out.shape[0]:
            raise IndexError(f"below: [{start}:{stop}] is outside of an array of {out.shape[0]}")
        shift = 32 - (<object>n).bit_length()
        with nogil:
            for i in range(start, stop):
                out[i] = self._below(n, shift)
