from libc.stdint cimport int64_t

cdef int64_t[LIVES] begun
cdef int64_t[LIVES] ended


cdef void life_begins(int life) noexcept nogil:
    begun[life] += 1


cdef void life_ends(int life) noexcept nogil:
    ended[life] += 1


def lives() -> dict[str, tuple[int, int]]:
    """Name -> how many were begun and how many have ended, since the process began."""
    return {life.name.removeprefix("LIFE_").lower(): (begun[life.value], ended[life.value]) for life in Life if life.value != LIVES}
