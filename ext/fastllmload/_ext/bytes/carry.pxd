# Bytes carried over from one read to the next: a growing buffer that is only touched when a line, an event or
# a head is split between reads. The struct that embeds the three fields owns the memory and frees it.
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from fastllmload._ext.system.life cimport LIFE_BUFFER, life_begins, life_ends

cdef enum:
    CARRY_FIRST = 256           # bytes of the first allocation
    CARRY_KEEP = 65536          # buffers above this are given back between streams

# Bytes of all such buffers of the process: an owner of many of them bounds their sum.
cdef int64_t carry_total() noexcept nogil
cdef void carry_count(int64_t grown_by) noexcept nogil

# 0, or -1 when memory ran out (the buffer is unchanged then). *bytes* is never NULL afterwards, also for size
# 0.
cdef inline int carry_add(unsigned char** bytes, size_t* used, size_t* cap, const unsigned char* data,
                          size_t size) noexcept nogil:
    cdef size_t wanted = cap[0]
    cdef unsigned char* grown
    if bytes[0] == NULL or used[0] + size > wanted:
        wanted = CARRY_FIRST if wanted < CARRY_FIRST else wanted
        while wanted < used[0] + size:
            wanted *= 2
        grown = <unsigned char*>realloc(bytes[0], wanted)
        if grown == NULL:
            return -1
        carry_count(<int64_t>wanted - <int64_t>cap[0])
        if cap[0] == 0:
            life_begins(LIFE_BUFFER)
        bytes[0] = grown
        cap[0] = wanted
    if size > 0:                # memcpy from NULL is undefined even for 0 bytes
        memcpy(bytes[0] + used[0], data, size)
    used[0] += size
    return 0

# Empties the buffer for the next stream.
cdef inline void carry_reset(unsigned char** bytes, size_t* used, size_t* cap) noexcept nogil:
    used[0] = 0
    if cap[0] > CARRY_KEEP:
        carry_free(bytes, used, cap)

cdef inline void carry_free(unsigned char** bytes, size_t* used, size_t* cap) noexcept nogil:
    if cap[0]:
        carry_count(-<int64_t>cap[0])
        life_ends(LIFE_BUFFER)
    free(bytes[0])
    bytes[0] = NULL
    used[0] = 0
    cap[0] = 0
