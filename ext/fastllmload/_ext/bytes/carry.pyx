# How much all carried bytes of the process take.

cdef int64_t TOTAL = 0


cdef int64_t carry_total() noexcept nogil:
    return TOTAL


cdef void carry_count(int64_t grown_by) noexcept nogil:
    global TOTAL
    TOTAL += grown_by


def carried() -> int:
    """Bytes of all buffers for what is not complete yet, in this process."""
    return TOTAL
