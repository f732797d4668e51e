# One clock: CLOCK_MONOTONIC nanoseconds everywhere. CLOCK_REALTIME appears only to map kernel receive stamps.
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef inline int64_t mono_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef inline int64_t real_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef inline int64_t real_minus_mono() noexcept nogil:
    # The realtime read between two monotonic ones; the pair's midpoint halves the read's own delay.
    cdef int64_t before = mono_ns()
    cdef int64_t real = real_ns()
    cdef int64_t after = mono_ns()
    return real - (before + (after - before) // 2)
