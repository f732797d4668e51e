# One clock: CLOCK_MONOTONIC nanoseconds everywhere. CLOCK_REALTIME appears only to map kernel receive stamps.
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

cdef inline int64_t mono_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef inline int64_t thread_cpu_ns() noexcept nogil:
    # Time that the calling thread was on a processor; a system call, unlike the others.
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef inline int64_t real_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef inline int64_t real_minus_mono() noexcept nogil:
    # The realtime read between two monotonic ones; the pair's midpoint halves the read's own delay. A pair that was
    # interrupted in between is worth nothing, so the tightest of a few counts.
    cdef int64_t before, real, after, width, tightest = 1 << 62, offset = 0
    cdef int tries = 0
    while tries < 4:
        before = mono_ns()
        real = real_ns()
        after = mono_ns()
        width = after - before
        if width < tightest:
            tightest = width
            offset = real - (before + width // 2)
        if tightest < 400:
            break
        tries += 1
    return offset
