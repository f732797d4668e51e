# Names of the servers of a router, as a header of their answers says them: each is a number of its worker.
from libc.stdint cimport uint16_t, uint32_t

cdef enum:
    BACKENDS_MOST = 4095        # different names of one worker
    BACKEND_LONGEST = 250       # bytes of a name that count
    BACKEND_OTHER = 0xFFFF      # RequestRow.backend: a name that came when there was no room

cdef packed struct BackendName:
    uint32_t hash
    uint16_t size
    unsigned char[BACKEND_LONGEST] text

cdef class Backends:
    cdef BackendName* names     # by number - 1; owned
    cdef uint16_t* slots        # numbers, by hash; 0: free; owned
    cdef readonly uint16_t count
    # The number of the name, from 1; BACKEND_OTHER without room for a new one. Allocates nothing.
    cdef uint16_t number(self, const unsigned char* text, size_t size) noexcept nogil
