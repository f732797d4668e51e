# Instants and what is due at each, the earliest first: a binary heap in memory of its own. Inline: releases read it.
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef struct Due:
    int64_t t               # CLOCK_MONOTONIC ns
    uint64_t what           # the owner's: a number, or an address that the owner frees

cdef struct Dues:
    Due* at                 # owned; at[0] is the earliest
    uint32_t count
    uint32_t cap

cdef inline void dues_free(Dues* dues) noexcept nogil:
    free(dues.at)
    dues.at = NULL
    dues.count = dues.cap = 0

cdef inline int64_t dues_first(Dues* dues) noexcept nogil:
    return dues.at[0].t if dues.count else INT64_MAX

cdef inline int dues_push(Dues* dues, int64_t t, uint64_t what) except -1 nogil:
    cdef uint32_t place = dues.count
    cdef uint32_t above
    cdef Due* grown
    if dues.count == dues.cap:
        grown = <Due*>realloc(dues.at, (dues.cap * 2 + 64) * sizeof(Due))
        if grown == NULL:
            with gil:
                raise MemoryError("instants")
        dues.at = grown
        dues.cap = dues.cap * 2 + 64
    dues.count += 1
    while place:
        above = (place - 1) // 2
        if dues.at[above].t <= t:
            break
        dues.at[place] = dues.at[above]
        place = above
    dues.at[place].t = t
    dues.at[place].what = what
    return 0

cdef inline uint64_t dues_pop(Dues* dues) noexcept nogil:
    # There must be one.
    cdef uint64_t what = dues.at[0].what
    cdef Due last
    cdef uint32_t place = 0
    cdef uint32_t below = 1
    dues.count -= 1
    last = dues.at[dues.count]
    while below < dues.count:
        if below + 1 < dues.count and dues.at[below + 1].t < dues.at[below].t:
            below += 1
        if last.t <= dues.at[below].t:
            break
        dues.at[place] = dues.at[below]
        place = below
        below = 2 * place + 1
    dues.at[place] = last
    return what
